# P26: reading and steering other processes: a child, and init. Each must be refused; init's files must
# not even be there.
import ctypes, errno, os, signal, sys, time

libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if child == 0:
    time.sleep(20)
    os._exit(0)


class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


secret = ctypes.create_string_buffer(b"secret")
into = ctypes.create_string_buffer(8)
none = ctypes.c_long(0)
ours, theirs = Part(ctypes.addressof(into), 6), Part(ctypes.addressof(secret), 6)
PTRACE, ATTACH, READV, WRITEV, PIDFD_OPEN, PIDFD_GETFD, KCMP = 101, 16, 310, 311, 434, 438, 312
handle = libc.syscall(PIDFD_OPEN, child, 0)
attempts = {
    "process_vm_readv": (READV, child, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, none),
    "process_vm_writev": (WRITEV, child, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, none),
    "pidfd_getfd": (PIDFD_GETFD, handle, 1, 0),
    "kcmp": (KCMP, os.getpid(), child, 0, 1, 1),
    "ptrace": (PTRACE, ATTACH, child, 0, 0),
    "ptrace init": (PTRACE, ATTACH, 1, 0, 0),
}
for name, arguments in attempts.items():
    result = libc.syscall(*arguments)
    print(f"{name}: {'ok' if result >= 0 else errno.errorcode[ctypes.get_errno()]}", flush=True)
for name in "mem", "maps", "environ", "root", "cwd", "fd", "exe":
    path = f"/proc/1/{name}"
    try:
        os.listdir(path) if name in ("root", "cwd", "fd") else open(path, "rb").read(1)
        print(f"{path}: ok")
    except OSError as error:
        print(f"{path}: {errno.errorcode[error.errno]}")
PRLIMIT, NOFILE = 302, 7
result = libc.syscall(PRLIMIT, 1, NOFILE, (ctypes.c_ulong * 2)(1, 1), None)
print(f"prlimit init: {'ok' if result >= 0 else errno.errorcode[ctypes.get_errno()]}")
os.kill(child, signal.SIGKILL)
# Init must outlive this, or nobody tells how the program ended.
for number in signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP:
    try:
        os.kill(1, number)
    except OSError:
        pass
sys.exit(7)
