# Runs `pip download` and lets it start nothing: no build, no version control, no hook. Wheels are
# only unpacked to read what they depend on, so no foreign code runs here.
import os, runpy, sys

def refuse(event, args):
    if event in STARTS:
        raise PermissionError("nothing may be started while packages are fetched (%s): a package that "
                              "has to be built is not taken" % event)

STARTS = {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn"}
pip, parent = sys.argv[1], int(sys.argv[2])
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL: not without the one who waits for it
except (ImportError, OSError, AttributeError):
    pass
if parent and os.getppid() != parent:
    sys.exit(1)
sys.path.insert(0, os.path.dirname(pip))
sys.argv = ["pip"] + sys.argv[3:]
sys.addaudithook(refuse)
runpy.run_module("pip", run_name="__main__", alter_sys=True)
