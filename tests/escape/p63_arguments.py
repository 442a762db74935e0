# P63: requests of ioctl, fcntl, prctl and setsockopt that are on no list, and some that are.
import ctypes, errno, os, socket

libc = ctypes.CDLL(None, use_errno=True)
memory = ctypes.create_string_buffer(4096)
directory = os.open(".", os.O_RDONLY)
reader, writer = os.pipe()
stream = socket.socket()


def said(name, result):
    number = ctypes.get_errno() if result < 0 else 0
    print(f"{name}: {errno.errorcode.get(number, number)}")


for name, fd, number in [
    ("FS_IOC_ADD_ENCRYPTION_KEY", directory, 0xC0506617),
    ("FS_IOC_SETFLAGS", directory, 0x40086602),
    ("FS_IOC_FIEMAP", directory, 0xC020660B),
    ("TIOCSTI", reader, 0x5412),
    ("TIOCLINUX", reader, 0x541C),
    ("SIOCETHTOOL", stream.fileno(), 0x8946),
    ("FIONREAD", reader, 0x541B),
]:
    said(f"ioctl {name}", libc.ioctl(fd, ctypes.c_ulong(number), memory))
for name, number in [
    ("F_SETLEASE", 1024), ("F_NOTIFY", 1026), ("F_SETPIPE_SZ", 1031), ("F_OFD_SETLK", 37), ("F_SET_RW_HINT", 1036),
    ("number 999", 999), ("F_GETFD", 1), ("F_GETPIPE_SZ", 1032),
]:
    said(f"fcntl {name}", min(libc.fcntl(writer, number, memory if number in (37, 1036) else 4096), 0))
for name, number in [
    ("PR_SET_SECCOMP", 22), ("PR_SET_MM", 35), ("PR_SET_VMA", 0x53564D41), ("PR_SCHED_CORE", 62), ("PR_FUTEX_HASH", 78),
    ("PR_SET_PTRACER", 0x59616D61), ("number 9999", 9999), ("PR_GET_NAME", 16), ("PR_SET_TIMERSLACK", 29),
]:
    said(f"prctl {name}", min(libc.prctl(number, memory if number == 16 else 0, 0, 0, 0), 0))
for name, level, number in [
    ("SO_ZEROCOPY", 1, 60), ("SO_BINDTODEVICE", 1, 25), ("SO_TXTIME", 1, 61), ("TCP_ULP", 6, 31), ("TCP_MD5SIG", 6, 14),
    ("IPT_SO_SET_REPLACE", 0, 64), ("SOL_TLS", 282, 1), ("SO_REUSEADDR", 1, 2), ("TCP_NODELAY", 6, 1),
]:
    said(f"setsockopt {name}", libc.setsockopt(stream.fileno(), level, number, ctypes.byref(ctypes.c_int(1)), 4))
