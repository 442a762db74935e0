"""What a curious program finds under the glass.

    belljar run examples/hello.py

It opens, looks and asks, and changes nothing but note.txt: without belljar it is harmless too.
"""

import os
import socket
import time


def read(path):
    return open(path).read()


def reach_localhost():
    """Not even that: the sandbox's own loopback is down, and the host's is somewhere else."""
    with socket.socket() as line:
        line.settimeout(2)
        line.connect(("127.0.0.1", 80))


def have_twenty_children():
    children = []
    try:
        while len(children) < 20:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} after {len(children)}") from None
    finally:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)


WISHES = {
    "read /etc/shadow": lambda: read("/etc/shadow"),
    "list /home": lambda: os.listdir("/home"),
    "reach localhost": reach_localhost,
    "become root": lambda: os.setuid(0),
    "open a system file for writing": lambda: open("/usr/bin/env", "r+b").close(),
    "have twenty children": have_twenty_children,
    "write a note": lambda: open("note.txt", "w").write("I was here"),
}

print(f"Hello! I am user {os.getuid()} on {socket.gethostname()}, in {os.getcwd()}.")
for wish, attempt in WISHES.items():
    try:
        attempt()
        print(f"  yes  {wish}")
    except OSError as error:
        print(f"  no   {wish}: {error.strerror or error}")
pids = [name for name in os.listdir("/proc") if name.isdigit()]
print(f"I see {len(pids)} process{'es' * (len(pids) != 1)}, and the variables {', '.join(sorted(os.environ))}.")
