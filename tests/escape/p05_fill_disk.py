# P05: fills every place it may write to, one file of 4 MiB after the other. All of them together must
# end in ENOSPC at the disk limit.
import errno, os

MIB = 1 << 20
total = 0
for place in ("/tmp", "/dev/shm", "/workspace"):
    try:
        for number in range(256):
            with open(f"{place}/{number}", "wb", buffering=0) as file:
                for _ in range(4):
                    total += file.write(b"x" * MIB) // MIB
        print(f"{place}: none")
    except OSError as error:
        print(f"{place}: {errno.errorcode[error.errno]}")
print(f"total: {total}")
