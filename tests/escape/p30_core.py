# P30: raises the limit on core files as far as it goes and crashes. No core file may come to be, and no
# handler on the host may be started for one.
import errno, os, resource, signal

try:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print("raise: ok")
except (OSError, ValueError):
    print("raise: refused")
most = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
child = os.fork()
if child == 0:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)
_, status = os.waitpid(child, 0)
print(f"dumped: {os.WCOREDUMP(status)}")
print("files: " + " ".join(name for name in os.listdir(".") if name.startswith("core")))
