# P54: `plant` leaves marks wherever a run could leave some and holds them for a while, `scan` searches
# for them. A run must find its own and never those of another one.
import ctypes, os, socket, sys, time

MARK = b"belljar-p54"
libc = ctypes.CDLL(None, use_errno=True)
IPC_CREAT, KEY = 0o1000, 0x70354
MQ_OPEN, MQ_NAME = 240, b"p54"
files = ["/tmp/p54", "/dev/shm/p54", "/workspace/p54", "/var/tmp/p54-var"]
held = []


def plant():
    for path in files:
        with open(path, "wb") as file:
            file.write(MARK)
    for number, rest in (29, (4096, IPC_CREAT | 0o666)), (64, (1, IPC_CREAT | 0o666)), (68, (IPC_CREAT | 0o666,)):
        libc.syscall(number, KEY, *rest)
    libc.syscall(MQ_OPEN, MQ_NAME, os.O_CREAT | os.O_RDWR, 0o666, None)
    # In no file system: the name is in the network namespace.
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(b"\0" + MARK)
    listener.listen()
    held.append(listener)


def holds_our_memory(pid):
    # The holder of a warm program's memory is the program's own child, and sleeps. It may have yet to fall asleep.
    for _ in range(100):
        with open(f"/proc/{pid}/status") as status, open(f"/proc/{pid}/syscall") as call:
            if f"PPid:\t{os.getpid()}\n" in status.read() and call.read().startswith("271 "):
                return True
        time.sleep(0.01)
    return False


def scan():
    for path in files:
        if os.path.exists(path):
            yield path
    for name, number, rest in ("shm", 29, (0, 0)), ("sem", 64, (0, 0)), ("msg", 68, (0,)):
        if libc.syscall(number, KEY, *rest) >= 0:
            yield name
    if libc.syscall(MQ_OPEN, MQ_NAME, os.O_RDWR, 0, None) >= 0:
        yield "mq"
    try:
        socket.socket(socket.AF_UNIX).connect(b"\0" + MARK)
        yield "abstract"
    except OSError:
        pass
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) not in (1, os.getpid()) and not holds_our_memory(pid):
            yield f"process-{pid}"


for word in sys.argv[1:]:
    if word == "plant":
        plant()
    elif word == "scan":
        print(f"found: {' '.join(scan()) or 'nothing'}", flush=True)
    else:
        time.sleep(float(word))
