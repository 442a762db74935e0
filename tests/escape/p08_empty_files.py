# P08: makes empty files, which cost the kernel memory and no disk. Must end in ENOSPC well before N.
import errno, os, sys

made, stopped = 0, "none"
try:
    for made in range(int(sys.argv[1])):
        os.close(os.open(f"/tmp/{made}", os.O_CREAT | os.O_WRONLY))
except OSError as error:
    stopped = errno.errorcode[error.errno]
print(f"made: {made}")
print(f"stopped by: {stopped}")
