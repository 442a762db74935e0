# P04: fills files that have no name, up to N MiB. Must run out of memory, or be refused such files where
# nothing could count them.
import errno, os, sys

MIB = 1 << 20
try:
    for _ in range(int(sys.argv[1]) // 8):
        memory = os.memfd_create("p04")
        for _ in range(8):
            os.write(memory, b"x" * MIB)
    print(f"held: {sys.argv[1]} MiB")
except OSError as error:
    print(f"stopped by: {errno.errorcode[error.errno]}")
