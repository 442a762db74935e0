# P57: a child that is its parent's sibling (CLONE_PARENT) would be outside of the tree of processes that is watched.
import ctypes, errno, os, signal, time

libc = ctypes.CDLL(None, use_errno=True)
CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
CLONE_PARENT = 0x8000
child = libc.syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
if child == 0:
    time.sleep(5)
    os._exit(0)
number = ctypes.get_errno() if child < 0 else 0
print(f"CLONE_PARENT: {errno.errorcode.get(number, number)}")
