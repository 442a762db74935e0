# P56: sets extended attributes by every system call there is, the old and the new ones. POSIX ACLs are kernel memory that no
# cgroup counts, 64 KiB for each attribute.
import ctypes, errno, os, struct

libc = ctypes.CDLL(None, use_errno=True)
SETXATTRAT = 463
# Version 2; the owner, one named user, the group, a mask and the others.
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, 7, who) for tag, who in [(1, 0xFFFFFFFF), (2, 1000), (4, 0xFFFFFFFF), (16, 0xFFFFFFFF), (32, 0xFFFFFFFF)]
)
os.mkdir("d")
open("d/f", "w").close()
fd = os.open("d", os.O_RDONLY)


def said(name, result):
    number = ctypes.get_errno() if result < 0 else 0
    print(f"{name}: {errno.errorcode.get(number, number)}")


class Args(ctypes.Structure):
    _fields_ = [("value", ctypes.c_uint64), ("size", ctypes.c_uint32), ("flags", ctypes.c_uint32)]


for name, value in [(b"system.posix_acl_access", ACL), (b"system.posix_acl_default", ACL), (b"user.note", b"x")]:
    word = name.decode()
    said(f"setxattr {word}", libc.setxattr(b"d", name, value, len(value), 0))
    said(f"lsetxattr {word}", libc.lsetxattr(b"d", name, value, len(value), 0))
    said(f"fsetxattr {word}", libc.fsetxattr(fd, name, value, len(value), 0))
    memory = ctypes.create_string_buffer(value)
    args = Args(ctypes.addressof(memory), len(value), 0)
    said(f"setxattrat {word}", libc.syscall(SETXATTRAT, -100, b"d", 0, name, ctypes.byref(args), ctypes.sizeof(args)))
