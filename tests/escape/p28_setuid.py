# P28: makes setuid and setgid files, in every way there is, where a mount would carry them to the host;
# then runs a setuid program of the host's. No such file may come to be, and no uid may change.
import ctypes, errno, os, sys

PLACE = "/workspace/shared"
SETUID, SETGID = 0o4755, 0o2755
FCHMODAT2 = 452
here = os.open("/", os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)


def without_a_name(path, mode):
    file = os.open(PLACE, os.O_TMPFILE | os.O_WRONLY, mode)
    os.link(f"/proc/self/fd/{file}", path, src_dir_fd=here, follow_symlinks=True)


def with_the_newest_call(path, mode):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o755))
    if libc.syscall(FCHMODAT2, -100, path.encode(), mode, 0) < 0:
        raise OSError(ctypes.get_errno(), "fchmodat2")


def made_then(change):
    def way(path, mode):
        file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o755)
        change(file, path, mode)

    return way


ways = {
    "chmod": made_then(lambda file, path, mode: os.chmod(path, mode)),
    "fchmod": made_then(lambda file, path, mode: os.fchmod(file, mode)),
    "fchmodat": made_then(lambda file, path, mode: os.chmod(path[1:], mode, dir_fd=here)),
    "fchmodat2": with_the_newest_call,
    "open": lambda path, mode: os.close(os.open(path, os.O_CREAT | os.O_WRONLY, mode)),
    "mknod": lambda path, mode: os.mknod(path, mode | 0o100000),
    "tmpfile": without_a_name,
}
os.umask(0)
for name, way in ways.items():
    for word, mode in ("setuid", SETUID), ("setgid", SETGID):
        try:
            way(f"{PLACE}/{name}-{word}", mode)
            print(f"{name} {word}: ok")
        except OSError as error:
            print(f"{name} {word}: {errno.errorcode[error.errno]}")
if os.path.exists(f"{PLACE}/host-id"):
    sys.stdout.flush()
    os.execv(f"{PLACE}/host-id", ["id", "-u"])
