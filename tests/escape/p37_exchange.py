# P37: exchanges a wanted file with a link to a host file, as fast as it can, from a child that goes on
# while files are taken out. The host file must never be read.
import ctypes, os, sys, time

RENAMEAT2, HERE, EXCHANGE = 316, -100, 2
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs("out")
os.symlink(sys.argv[1], "out/other")
with open("out/wanted", "w") as file:
    file.write("honest")
if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        libc.syscall(RENAMEAT2, HERE, b"out/other", HERE, b"out/wanted", EXCHANGE)
time.sleep(0.05)
# Ends at an odd or an even exchange, whichever it is.
