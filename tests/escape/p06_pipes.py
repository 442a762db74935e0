# P06: asks for pipes of 1 MiB each and fills them. The kernel's limit for a user without privileges
# (EPERM) or the sandbox's memory must end it.
import errno, fcntl, os

MIB = 1 << 20
total, stopped = 0, "none"
for _ in range(200):
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, MIB)
    except OSError as error:
        stopped = errno.errorcode[error.errno]
        break
    total += os.write(writer, b"x" * MIB) // MIB
print(f"total: {total}")
print(f"stopped by: {stopped}")
