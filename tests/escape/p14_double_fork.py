# P14: a daemon: forked twice, in a session of its own, no stream open. It writes to a file on the host
# for a second while the program that made it ends as soon as it has begun. Nothing may be written after the result.
import os, sys, time

TICKS = "/workspace/shared/ticks"
if os.fork():
    while not os.path.exists(TICKS) or os.path.getsize(TICKS) == 0:
        time.sleep(0.01)
    print("left a daemon behind")
    sys.exit()
os.setsid()
if os.fork():
    os._exit(0)
os.closerange(0, 256)
file = os.open(TICKS, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
for _ in range(100):
    os.write(file, b".")
    time.sleep(0.01)
os.write(file, b"end")
