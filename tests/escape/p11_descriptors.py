# P11: opens N descriptors. Must fail with EMFILE at the limit.
import errno, os, sys

held, stopped = 0, "none"
try:
    for held in range(int(sys.argv[1])):
        os.open("/dev/null", os.O_RDONLY)
except OSError as error:
    stopped = errno.errorcode[error.errno]
print(f"held: {held}")
print(f"stopped by: {stopped}")
