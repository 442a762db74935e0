# P27: types a command into the terminal that belljar was started from. There must be no terminal to be
# had, and the request itself must be refused with EPERM.
import errno, fcntl, os, sys

TIOCSTI, TIOCLINUX, TIOCGPGRP = 0x5412, 0x541C, 0x540F
for path in "/dev/tty", "/dev/console", "/dev/ptmx", "/dev/pts/0":
    try:
        os.open(path, os.O_RDWR)
        print(f"{path}: ok")
    except OSError as error:
        print(f"{path}: {errno.errorcode[error.errno]}")
for descriptor in range(3):
    print(f"terminal {descriptor}: {os.isatty(descriptor)}")
    for name, request in ("TIOCSTI", TIOCSTI), ("TIOCLINUX", TIOCLINUX):
        try:
            fcntl.ioctl(descriptor, request, b"x")
            print(f"{name} {descriptor}: ok")
        except OSError as error:
            print(f"{name} {descriptor}: {errno.errorcode[error.errno]}")
