# P62: kills the process beside a warm program that holds its memory, for which a task is reserved, and uses that task for a child
# of its own. No more children than permitted may live then. Prints how many live once the count has settled.
import glob, os, signal, sys, time

permitted = int(sys.argv[1])
WCLONE = 0x80000000


def is_child(path):
    try:
        return f"PPid:\t{os.getpid()}\n" in open(path + "/status").read()
    except OSError:
        return False


holders = [int(path[6:]) for path in glob.glob("/proc/[0-9]*") if is_child(path)]
for pid in holders:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, WCLONE - (1 << 32))
print(f"holders: {len(holders)}")
children = []
for _ in range(permitted + 5):
    try:
        child = os.fork()
    except OSError:
        break
    if child == 0:
        time.sleep(60)
        os._exit(0)
    children.append(child)


dead = set()
deadline = time.monotonic() + 20
while True:
    for child in children:
        if child not in dead and os.waitpid(child, os.WNOHANG)[0] != 0:
            dead.add(child)
    if len(children) - len(dead) < permitted or time.monotonic() > deadline:
        break
    time.sleep(0.01)
print(f"living: {1 + len(children) - len(dead)}")
for child in children:
    if child not in dead:
        os.kill(child, signal.SIGKILL)
