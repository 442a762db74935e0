# P01, counted: starts up to N children that stay, hidden from /proc as far as a guest can. No more may
# live at once than the limit says; the next fork fails with EAGAIN.
import ctypes, errno, os, signal, sys, time

PR_SET_DUMPABLE = 4
ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
children, stopped = [], "none"
for _ in range(int(sys.argv[1])):
    try:
        child = os.fork()
    except OSError as error:
        stopped = errno.errorcode[error.errno]
        break
    if child == 0:
        time.sleep(20)
        os._exit(0)
    children.append(child)
print(f"children: {len(children)}")
print(f"stopped by: {stopped}")
for child in children:
    os.kill(child, signal.SIGKILL)
