"""What a neighbour needs of the kernel while `attack.py` holds what it can: starts, forks, descriptors, memory.

Prints one `name: ok` or `name: ERRNO` for each, and its time in microseconds after it with --times.
"""

import ctypes
import errno
import fcntl
import os
import signal
import socket
import sys
import tempfile
import threading
import time


def forks():
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)


def descriptors():
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
    for fd in held:
        os.close(fd)


def memory():
    block = bytearray(24 << 20)
    for at in range(0, len(block), 4096):
        block[at] = 1


def pipes():
    for _ in range(20):
        read, write = os.pipe()
        os.write(write, bytes(4096))
        if len(os.read(read, 4096)) != 4096:
            raise OSError(errno.EIO, "a pipe lost data")
        os.close(read)
        os.close(write)


def passes_descriptor():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    socket.send_fds(one, [b"x"], [0])
    os.close(socket.recv_fds(other, 1, 1)[1][0])


def thread():
    made = threading.Thread(target=lambda: None)
    made.start()
    made.join()


def signals():
    number = signal.SIGRTMIN
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    for _ in range(50):
        signal.pthread_kill(threading.get_ident(), number)
        signal.sigwait([number])


def timer():
    libc = ctypes.CDLL(None, use_errno=True)
    made = ctypes.c_int()
    if libc.syscall(222, 1, None, ctypes.byref(made)) != 0:
        raise OSError(ctypes.get_errno(), "timer_create")
    libc.syscall(226, made)


def lock():
    with tempfile.TemporaryFile() as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def files():
    with tempfile.TemporaryDirectory() as place:
        for name in range(20):
            with open(f"{place}/{name}", "w") as file:
                file.write("x" * 4096)


def main():
    for work in (forks, descriptors, memory, pipes, passes_descriptor, thread, signals, timer, lock, files):
        started = time.monotonic_ns()
        try:
            work()
            answer = "ok"
        except (OSError, MemoryError, RuntimeError) as error:
            answer = errno.errorcode.get(getattr(error, "errno", None), type(error).__name__)
        took = (time.monotonic_ns() - started) // 1000
        print(f"{work.__name__}: {answer}" + (f" {took}" if "--times" in sys.argv else ""))


main()
