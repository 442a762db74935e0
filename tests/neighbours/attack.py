"""P55 to P61: holds as much of one shared kernel resource as its limits give, until standard input ends.

    attack.py RESOURCE [SIZE]

Prints `held: COUNT`, `stopped by: ERRNO` and `holding`. SIZE bounds what is taken where a limit is host-wide, so that a missing
control costs a test machine nothing. Resources that are used up rather than held are used by a child until the end.
"""

import ctypes
import errno
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
LIBC.mmap.restype = ctypes.c_long
LIBC.mmap.argtypes = [ctypes.c_long, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
KEPT = []


def call(number, *args):
    """A system call by its number; raises OSError."""
    result = LIBC.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def take(most, one):
    """Takes `one(i)` up to `most` times. Returns the count and the error that ended it."""
    for count in range(most):
        try:
            KEPT.append(one(count))
        except (OSError, MemoryError, RuntimeError) as error:
            return count, errno.errorcode.get(getattr(error, "errno", None), type(error).__name__)
    return most, "none"


def forever(work):
    """Does `work` again and again in a child."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            work()
    return pid


def sleeping_child(_):
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    return pid


def processes(size):
    return take(size, sleeping_child)


def threads(size):
    stop = threading.Event()

    def one(_):
        thread = threading.Thread(target=stop.wait, daemon=True)
        thread.start()
        return thread

    return take(size, one)


def descriptors(size):
    return take(size, lambda _: os.open("/dev/null", os.O_RDONLY))


def pipes(size):
    def one(_):
        ends = os.pipe()
        os.set_blocking(ends[1], False)
        os.write(ends[1], bytes(65536))
        return ends

    return take(size, one)


def in_flight(size):
    """P58: descriptors in messages that nobody receives."""
    own = os.open("/dev/null", os.O_RDONLY)
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ends[0].setblocking(False)
    KEPT.append(ends)

    def one(_):
        try:
            socket.send_fds(KEPT[0][0], [b"x"], [own] * 8)
        except BlockingIOError:
            more = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            more[0].setblocking(False)
            KEPT.insert(0, more)
            socket.send_fds(more[0], [b"x"], [own] * 8)

    return take(size, one)


def locks(size):
    """P59: byte-range locks, each apart from the next so that they do not merge."""
    import fcntl

    held = os.open("locked", os.O_CREAT | os.O_RDWR, 0o600)
    return take(size, lambda i: fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * i))


def signals(size):
    """P60: queued signals that nobody takes."""
    number = signal.SIGRTMIN
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    info = struct.pack("iiiii", number, 0, -1, os.getpid(), os.getuid()).ljust(128, b"\0")
    return take(size, lambda _: call(129, os.getpid(), int(number), ctypes.create_string_buffer(info, 128)))


def timers(size):
    """P60: each timer keeps one queued signal."""

    def one(_):
        made = ctypes.c_int()
        return call(222, 1, None, ctypes.byref(made))

    return take(size, one)


def memory(size):
    def one(_):
        block = bytearray(1 << 20)
        block[::4096] = b"x" * 256
        return block

    return take(size, one)


def files(size):
    return take(size, lambda i: os.close(os.open(f"/tmp/f{i}", os.O_CREAT | os.O_WRONLY, 0o600)))


def symlinks(size):
    return take(size, lambda i: os.symlink("x" * 100, f"/tmp/l{i}"))


def watches(size):
    """Every descriptor in every epoll instance."""
    watched = [os.eventfd(0) for _ in range(100)]
    KEPT.append(watched)

    def one(_):
        made = select.epoll()
        for fd in watched:
            made.register(fd)
        return made

    return take(size, one)


def sockets(size):
    def one(_):
        ends = socket.socketpair()
        ends[0].setblocking(False)
        try:
            while True:
                ends[0].send(bytes(32768))
        except BlockingIOError:
            return ends

    return take(size, one)


def cycles(size):
    """Sockets that hold each other in flight: only the kernel's garbage collector frees them."""

    def one():
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            socket.send_fds(a, [b"x"], [a.fileno(), b.fileno()])
        except OSError:
            pass
        a.close()
        b.close()

    forever(one)
    return size, "none"


def queues(size):
    """System V messages."""

    def one(_):
        queue = call(68, 0, 0o600)
        message = ctypes.create_string_buffer(struct.pack("l", 1) + bytes(4096), 4104)
        call(69, queue, message, 4096, 0o4000)
        return queue

    return take(size, one)


def huge_pages(size):
    """Pages of the host's pool, which no memory cgroup charges."""

    def one(_):
        address = LIBC.mmap(0, 2 << 20, 3, 0x40022, -1, 0)
        if address == -1:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        ctypes.memset(address, 1, 4096)

    return take(size, one)


RETURN_ZERO = struct.pack("HBBI", 6, 0, 0, 0)


def filters(size):
    """P55, never more than a few dozen: socket filters, which take from the host's JIT budget."""
    program = ctypes.create_string_buffer(RETURN_ZERO, 8)
    header = struct.pack("HxxxxxxQ", 1, ctypes.addressof(program))

    def one(_):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        KEPT.append(made)
        made.setsockopt(socket.SOL_SOCKET, 26, header)

    return take(min(size, 24), one)


def acls(size):
    """P56: access lists of directories."""
    entries = struct.pack("<I", 2)
    named = [(2, 7, os.getuid())] * 500
    for tag, permissions, who in [(1, 7, 2**32 - 1), *named, (4, 5, 2**32 - 1), (16, 7, 2**32 - 1), (32, 5, 2**32 - 1)]:
        entries += struct.pack("<HHI", tag, permissions, who)

    def one(i):
        os.mkdir(f"/tmp/d{i}")
        os.setxattr(f"/tmp/d{i}", "system.posix_acl_access", entries)

    return take(size, one)


def groups(size):
    """IPv6 multicast groups, which the kernel charges to nobody."""
    listener = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    KEPT.append(listener)

    def join(i):
        group = b"\xff\x12" + bytes(10) + struct.pack(">I", i)
        listener.setsockopt(socket.IPPROTO_IPV6, 20, group + struct.pack("i", 1))

    return take(size, join)


def landlock_rules(size):
    """Rules on ports in one rule set."""
    ruleset = call(444, ctypes.create_string_buffer(struct.pack("QQ", 0, 3), 16), 16, 0)
    return take(size, lambda i: call(445, ruleset, 2, ctypes.create_string_buffer(struct.pack("QQ", 1, i), 16), 0))


def mappings(size):
    """Areas of memory that do not merge."""

    def one(i):
        address = LIBC.mmap(0, 4096, 1 + 2 * (i % 2), 0x22, -1, 0)
        if address == -1:
            raise OSError(ctypes.get_errno(), "mmap")

    return take(size, one)


def shared_mappings(size):
    """Each is an open file of the host."""

    def one(_):
        if LIBC.mmap(0, 4096, 3, 0x21, -1, 0) == -1:
            raise OSError(ctypes.get_errno(), "mmap")

    return take(size, one)


def page_cache(size):
    """Drops the host's cached pages of shared system files."""
    paths = [os.path.join(place, name) for place, _, names in os.walk("/usr/lib/python3") for name in names][:size]
    shared = [os.open(path, os.O_RDONLY) for path in paths[:100] if os.path.isfile(path)]
    count, stopped = take(len(shared), lambda i: os.posix_fadvise(shared[i], 0, 0, os.POSIX_FADV_DONTNEED))
    if stopped == "none":
        forever(lambda: [os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED) for fd in shared])
    return count, stopped


def write_back(size):
    """Has the kernel write the host's dirty pages to disk."""
    count, stopped = take(1, lambda _: call(162))
    if stopped == "none":
        forever(os.sync)
    return count, stopped


def lookups(size):
    """Names that do not exist, in directories of the host."""

    def one():
        for i in range(size):
            try:
                os.stat(f"/usr/lib/{os.getpid()}-{time.monotonic_ns()}-{i}")
            except OSError:
                pass

    forever(one)
    return size, "none"


def crashes(size):
    """Segmentation faults, of which the kernel writes a line into its log."""

    def one():
        pid = os.fork()
        if pid == 0:
            ctypes.string_at(0)
        os.waitpid(pid, 0)

    forever(one)
    return size, "none"


def fork_loop(size):
    def one():
        try:
            pid = os.fork()
        except OSError:
            return
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    forever(one)
    return size, "none"


def spin(size):
    for _ in range(min(size, 4)):
        forever(lambda: None)
    return size, "none"


# How much each takes unless told otherwise.
SIZES = {
    processes: 64, threads: 400, descriptors: 2000, pipes: 110, in_flight: 200, locks: 20000, signals: 4000, timers: 4000,
    memory: 40, files: 20000, symlinks: 20000, watches: 120, sockets: 100, cycles: 1, queues: 2000, huge_pages: 4, filters: 24, acls: 50,
    groups: 2000, landlock_rules: 5000, mappings: 20000, shared_mappings: 20000, page_cache: 100, write_back: 1, lookups: 100, crashes: 1, fork_loop: 1, spin: 2,
}


def main():
    known = {function.__name__.replace("_", "-"): function for function in SIZES}
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        sys.exit(f"usage: attack.py RESOURCE [SIZE]; resources: {' '.join(known)}")
    function = known[sys.argv[1]]
    count, stopped = function(int(sys.argv[2]) if len(sys.argv) > 2 else SIZES[function])
    print(f"held: {count}\nstopped by: {stopped}\nholding", flush=True)
    sys.stdin.read()
    print("peak:", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
    os._exit(0)


main()
