# P24: a socket of every family and type, and of odd protocols. Only those of the allowlist may exist.
import ctypes, errno

libc = ctypes.CDLL(None, use_errno=True)
SOCKET, SOCKETPAIR = 41, 53
CLOEXEC = 0o2000000


def tell(name, result):
    error = errno.errorcode[ctypes.get_errno()] if result < 0 else "ok"
    if error != "EPERM":
        print(f"{name}: {error}")


for family in range(46):
    for kind in range(11):
        tell(f"{family} {kind} 0", libc.syscall(SOCKET, family, kind | CLOEXEC, 0))
        pair = (ctypes.c_int * 2)()
        if family != 1:
            tell(f"pair {family} {kind}", libc.syscall(SOCKETPAIR, family, kind, 0, pair))
# ICMP, SCTP, UDP-Lite, raw IP and multipath TCP where TCP and UDP are fine.
for family in (2, 10):
    for kind in (1, 2):
        for protocol in (1, 58, 132, 136, 255, 262):
            tell(f"{family} {kind} {protocol}", libc.syscall(SOCKET, family, kind, protocol))
print("done: ok")
