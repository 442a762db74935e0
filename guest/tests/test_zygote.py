"""The zygote: forks into namespaces, with system calls that the engine lists, and no two alike."""

import errno
import os
import signal
import struct
import tempfile
import time
import unittest
import unittest.mock

import fake
import fakezygote
from fakezygote import CALL, DUP3, FIX, GETPID, HEAD, HOLD, MEMORY, MOST, NUMBER, PIDFD_OPEN, PRCTL, PROGRAM, REHEARSE, RESULT, UMASK
from fakezygote import WRITEV, Init, Zygote, call

SET_NAME, GET_NAME = 15, 16  # of prctl


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return [int(child) for child in file.read().split()]


def maps(pid):
    with open("/proc/%d/maps" % pid) as file:
        return file.read()


def heap_is_moved(pid):
    """Whether the heap lies in memory that came from huge pages: the kernel leaves it alone then."""
    with open("/proc/%d/smaps" % pid) as file:
        heap = file.read().partition("[heap]")[2]
    return " nh" in heap.partition("VmFlags:")[2].partition("\n")[0]


def gather(data):
    """What writev takes: where these bytes are, and how many."""
    return {"bytes": bytes(8) + struct.pack("Q", len(data)), "pointers": [(0, data)]}


class Namespaces:
    """A process in new namespaces, for its descriptors."""

    def __init__(self):
        reader, writer = os.pipe()
        command = ["unshare", "--pid", "--fork", "--kill-child", "--uts", "--net", "--ipc", "sh", "-c", "echo; exec sleep 600"]
        self.pid = os.posix_spawnp("unshare", command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)])
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        self.inner = children(self.pid)[0]

    def open(self, name):
        return os.open("/proc/%d/ns/%s" % (self.inner, name), os.O_RDONLY)

    def close(self):
        os.kill(self.inner, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Zygotes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.zygote = Zygote(["json", "random", "uuid", "tempfile", "ssl", "secrets", "multiprocessing", "no.such", "numpy", "primed"])

    @classmethod
    def tearDownClass(cls):
        cls.zygote.close()

    def ended(self):
        message = self.zygote.channel.receive()
        self.assertEqual(message["event"], "ended", message)
        return message

    def end(self, fork):
        fork.close()
        return self.ended()

    def test_ready(self):
        ready = self.zygote.ready
        self.assertEqual((ready["event"], ready["language"]), ("ready", "python"))
        self.assertIn("uuid", ready["imported"])
        self.assertIn("ModuleNotFoundError", ready["failed"]["no.such"])

    def test_session(self):
        fork = self.zygote.fork()
        fork.setup(env={"A": "b"}, globals={"n": 2})
        self.assertEqual(fork.value("import os\n[n + 1, os.environ['A'], __name__]"), [3, "b", "__main__"])
        self.assertEqual(fork.value("os.listdir('/proc/self/fd').__len__()"), 5)  # 0 to 3, and the listing itself
        self.assertEqual(fork.value("import signal\nsignal.getsignal(signal.SIGCHLD) == signal.SIG_DFL"), True)
        self.assertEqual(fork.value("import gc\ngc.isenabled()"), True)
        self.assertEqual(fork.value("import asyncio\nawait asyncio.sleep(0, 1)"), 1)
        fork.channel.send({"op": "execute", "id": 99, "code": "print('out')", "stdin": None})
        self.assertEqual(fork.channel.receive()["id"], 99)
        fork.out.seek(0)
        self.assertEqual(fork.out.read(), b"out\n")
        ended = self.end(fork)
        self.assertEqual(ended["status"], 0)
        self.assertGreater(ended["cpu_micros"], 0)

    def test_calls(self):
        second = [
            {"nr": GETPID, "args": []},
            {"nr": DUP3, "args": [-1, 5, 0], "optional": True},
            # What failed has returned -1, whose last nine bits are what the second of these returns.
            {"nr": UMASK, "args": [{"result": 5}]},
            {"nr": UMASK, "args": [0o22], "expect": 0o777},
            # A name is set, and read into memory whose contents are checked.
            {"nr": PRCTL, "args": [SET_NAME, {"bytes": b"named\0"}, 0, 0, 0], "expect": 0},
            {"nr": PRCTL, "args": [GET_NAME, {"bytes": bytes(16)}, 0, 0, 0], "out": (1, b"named\0")},
            {"nr": DUP3, "args": [{"fd": 1}, 200, 0], "expect": 200},
            {"nr": DUP3, "args": [{"result": 10}, 201, 0], "expect": 201},
            {"nr": PIDFD_OPEN, "args": [{"result": 4}, 0], "send": True},
            {"nr": DUP3, "args": [-1, 5, 0], "optional": True, "send": True},
            {"nr": GETPID, "args": [], "optional": True, "expect": -5},
        ]
        fork = self.zygote.fork(second=second)
        self.assertEqual(fork.answer[2:4], (-1, 0))
        with open("/proc/self/fdinfo/%d" % fork.answer.sent) as file:
            self.assertIn("Pid:\t%d\n" % fork.answer.pid, file.read())
        fork.setup()
        self.assertEqual(fork.value("import os\nos.getpid()"), fork.answer.pid)
        self.assertEqual(fork.value("open('/proc/self/comm').read()"), "named\n")
        self.assertEqual(fork.value("[os.path.exists('/proc/self/fd/%d' % n) for n in (200, 201)]"), [False, False])
        self.end(fork)

    def test_as_many_calls_as_there_may_be(self):
        fork = self.zygote.fork(second=[{"nr": GETPID, "args": []}] * (MOST - 5) + [{"nr": DUP3, "args": [{"fd": 0}, 9, 0], "expect": 9}])
        self.assertEqual(fork.answer.failed, -1)
        self.end(fork)

    def test_sent_descriptor(self):
        """A descriptor that a call made arrives with the answer."""
        init = Init()
        reader, writer = os.pipe()
        self.zygote.request([init.theirs.fileno()], guest=500)
        init.theirs.close()
        init.send([{"nr": DUP3, "args": [{"fd": 0}, 77, 0], "send": True}], [writer])
        os.close(writer)
        answer = init.receive()
        os.write(answer.sent, b"through")
        os.close(answer.sent)
        self.assertEqual(os.read(reader, 100), b"through")
        self.assertEqual(os.read(reader, 100), b"")  # the fork has closed its own
        init.close()
        os.close(reader)
        self.assertEqual(self.ended()["guest"], 500)  # its descriptor 3 is no channel

    def test_pointers(self):
        """writev with an iovec that points to further memory, in both lists."""
        reader, writer = os.pipe()
        two = {"bytes": bytes(8) + struct.pack("Q", 5) + bytes(8) + struct.pack("Q", 6), "pointers": [(0, b"hello"), (16, b" there")]}
        init = Init()
        self.zygote.request([init.theirs.fileno()] * 5 + [writer], guest=600, calls=[{"nr": WRITEV, "args": [{"fd": 5}, two, 2], "expect": 11}])
        self.assertEqual(os.read(reader, 100), b"hello there")
        init.send([{"nr": WRITEV, "args": [{"fd": 0}, gather(b"again"), 1], "expect": 5}], [writer])
        os.close(writer)
        self.assertEqual(os.read(reader, 100), b"again")
        os.close(reader)
        self.assertEqual(init.receive().failed, -1)
        init.close()
        self.ended()

    def test_the_engines_channel(self):
        """A fork cannot write to it, even if its calls leave descriptor 3 as it is."""
        fork = self.zygote.fork(first=[{"nr": WRITEV, "args": [3, gather(b"\x02\0\0\0{}"), 1]}])
        self.assertEqual(fork.answer[2:4], (MOST, errno.EBADF))
        self.end(fork)

    def refused(self, calls, failed, number):
        """Whichever list it is, this call of it fails so; a list in bytes is the whole list."""
        for where, index in (("first", MOST + failed), ("second", failed if isinstance(calls, bytes) else 4 + failed)):
            with self.subTest(calls=calls, where=where):
                fork = self.zygote.fork(flags=HOLD, **{where: calls})
                self.assertEqual(tuple(fork.answer), (0, 0, index, number, None))
                ended = self.end(fork)
                self.assertEqual((ended["guest"], os.WEXITSTATUS(ended["status"])), (self.zygote.guest, 127))

    def test_failing_calls(self):
        good = {"nr": GETPID, "args": []}
        for bad, number in (
            ({"nr": DUP3, "args": [-1, 5, 0]}, errno.EBADF),
            ({"nr": DUP3, "args": [-1, 5, 0], "send": True}, errno.EBADF),
            ({"nr": GETPID, "args": [], "expect": -5}, errno.EPERM),
            ({"nr": PRCTL, "args": [GET_NAME, {"bytes": bytes(16)}, 0, 0, 0], "out": (1, b"other")}, errno.EPERM),
            ({"nr": GETPID, "args": [{"fd": 50}]}, errno.EINVAL),
            ({"nr": GETPID, "args": [{"fd": -1}]}, errno.EINVAL),
            ({"nr": GETPID, "args": [{"fd": 1 << 40}]}, errno.EINVAL),
            ({"nr": GETPID, "args": [{"result": 50}]}, errno.EINVAL),
            ({"nr": GETPID, "args": [{"result": -1}]}, errno.EINVAL),
            ({"nr": 100_000, "args": []}, errno.ENOSYS),
            ({"nr": -1, "args": []}, errno.ENOSYS),
        ):
            self.refused([bad], 0, number)
            self.refused([good, bad, good], 1, number)
        # Not what optional is for.
        self.refused([{"nr": GETPID, "args": [{"fd": 50}], "optional": True}], 0, errno.EINVAL)

    def test_results_that_are_not_there_yet(self):
        plain = call(GETPID)
        for index in (1, 2, 255, 256, 1 << 40, -1):
            self.refused(HEAD.pack(0, 3) + plain + call(GETPID, [RESULT], [index]) + plain, 1, errno.EINVAL)
        self.refused(HEAD.pack(0, 1) + call(GETPID, [RESULT], [0]), 0, errno.EINVAL)

    def test_broken_lists(self):
        plain = call(GETPID)
        for data, failed in (
            (b"", 0),
            (b"text", 0),
            (HEAD.pack(0, 1), 0),
            (HEAD.pack(0, 1) + plain[:-1], 0),
            (HEAD.pack(0, 2) + plain, 1),
            (HEAD.pack(0, 2) + plain + plain[:40], 1),
            (HEAD.pack(0, MOST + 1), 0),
            (HEAD.pack(0, 0xFFFFFFFF) + plain, 0),
            (HEAD.pack(1, 0), 0),
            (HEAD.pack(1, 1) + FIX.pack(16, 16)[:-1], 0),
            (HEAD.pack(MOST + 1, 1) + FIX.pack(HEAD.size + (MOST + 1) * FIX.size + CALL.size, 0) * (MOST + 1) + plain + bytes(8), 0),
            (HEAD.pack(0xFFFFFFFF, 1) + plain, 0),
            (HEAD.pack(0, 2) + plain + call(GETPID, [NUMBER, 4], [1, 1]), 1),
            (HEAD.pack(0, 1) + call(GETPID, [255], [0]), 0),
            (HEAD.pack(0, 1) + CALL.pack(GETPID, 0, 7, bytes(6), 0, 0, 0, 0, *[0] * 6), 0),
        ):
            self.refused(data, failed, errno.EINVAL)

    def test_too_many_calls(self):
        """One more than there may be, all of them there; the zygote's own list is too small for that many."""
        fork = self.zygote.fork(second=[{"nr": GETPID, "args": []}] * (MOST - 3))
        self.assertEqual(fork.answer[2:4], (0, errno.EINVAL))
        self.end(fork)

    def test_fixes_outside_of_the_list(self):
        size = HEAD.size + FIX.size + CALL.size + 16
        for place, target in ((size - 7, 0), (size, 0), (size + 1, 0), (0xFFFFFFFF, 0), (0xFFFFFFF8, 0), (size - 16, size + 1), (size - 16, 0xFFFFFFFF)):
            self.refused(HEAD.pack(1, 1) + FIX.pack(place, target) + call(GETPID) + bytes(16), 0, errno.EINVAL)
        fork = self.zygote.fork(first=HEAD.pack(1, 1) + FIX.pack(size - 8, size) + call(GETPID) + bytes(16))
        self.assertEqual(fork.answer.failed, -1)  # these are the last that lie within it
        self.end(fork)

    def test_memory_outside_of_the_list(self):
        size = HEAD.size + CALL.size + 16
        for offset in (size, size + 1, 0xFFFFFFFF, 1 << 62, -1, -size):
            self.refused(HEAD.pack(0, 1) + call(GETPID, [MEMORY], [offset]) + bytes(16), 0, errno.EINVAL)
        for left in ((size - 7, 0, 8), (0, size - 7, 8), (0, 0, size + 1), (size + 1, 0, 0), (0, 0xFFFFFFFF, 0), (0xFFFFFFFF, 0, 0xFFFFFFFF), (0, 0, 0xFFFFFFFF)):
            self.refused(HEAD.pack(0, 1) + call(GETPID, left=left) + bytes(16), 0, errno.EINVAL)
        # The last that lie within it: what fails is the comparison, of zeros with the size of the head.
        self.refused(HEAD.pack(0, 1) + call(GETPID, [MEMORY], [size - 1], left=(size - 8, 0, 8)) + bytes(16), 0, errno.EPERM)

    def test_shared_memory_is_refused(self):
        with Zygote(["sharing"]) as zygote:
            for _ in range(2):
                fork = zygote.fork()
                self.assertEqual(tuple(fork.answer), (0, 0, fakezygote.SHARED_MEMORY, errno.EPERM, None))
                fork.close()
                self.assertEqual(os.WEXITSTATUS(zygote.channel.receive()["status"]), 127)

    def test_memory_is_moved(self):
        """By what the first fork saw of it; unless a thread might write to it meanwhile."""
        for module, expected in (("json", True), ("unblocked", True), ("threaded", False)):
            with Zygote([module]) as zygote:
                self.assertEqual(zygote.ready["imported"], [module])
                for _ in range(3):
                    fork = zygote.fork()
                    fork.setup()
                    self.assertEqual(fork.value("import json, sys\nlen([str(vars(module)) for module in list(sys.modules.values())]) > 30 and json.loads('[1]')"), [1])
                    fork.close()
                    self.assertEqual(zygote.channel.receive()["status"], 0)
                self.assertEqual(heap_is_moved(zygote.pid), expected, module)

    def not_forked(self):
        message = self.zygote.channel.receive()
        self.assertEqual(message["event"], "not_forked", message)
        return message["guest"], message["step"], message["errno"]

    def test_bad_requests(self):
        init = Init()
        theirs = [init.theirs.fileno()]
        nobody = (1 << 64) - 1
        for channel, pid_namespace, descriptors in (
            (0, -1, []),
            (1, -1, theirs),
            (-1, -1, theirs),
            (-(1 << 31), -1, theirs),
            ((1 << 31) - 1, -1, theirs),
            (0, 1, theirs),
            (0, 9, theirs),
            (0, -2, theirs),
            (0, 0, []),
        ):
            with self.subTest(channel=channel, pid_namespace=pid_namespace):
                self.zygote.request(descriptors, guest=12, channel=channel, pid_namespace=pid_namespace)
                self.assertEqual(self.not_forked(), (12, "request", errno.EINVAL))
        whole = fakezygote.REQUEST.pack(12, 0, -1, 0, 0)
        for data in (b"", b"{{{", whole[:8], whole[:-1], fake.frame({"op": "fork"})[4:]):
            with self.subTest(data=data):
                self.zygote.channel.send_bytes(fakezygote.frame(data), theirs)
                self.assertEqual(self.not_forked(), (nobody, "request", errno.EINVAL))
        self.zygote.request(theirs, guest=nobody - 1, pid_namespace=0)
        self.assertEqual(self.not_forked(), (nobody - 1, "pid namespace", errno.EINVAL))
        # Not a word to init, and nobody has kept its channel.
        init.theirs.close()
        self.assertEqual(init.sock.recv(100), b"")
        init.close()
        self.end(self.zygote.fork())

    def test_init_that_goes(self):
        half = fakezygote.frame(fakezygote.encode([{"nr": GETPID, "args": []}] * 2))[:-100]
        for said in (b"", b"\x10\0", b"\x10\0\0\0", half):
            init = Init()
            self.zygote.request([init.theirs.fileno()], guest=8)
            init.theirs.close()
            init.sock.sendall(said)
            init.close()
            ended = self.ended()
            self.assertEqual((ended["guest"], os.WEXITSTATUS(ended["status"])), (8, 127))

    def test_init_that_goes_before_it_is_answered(self):
        """Then nobody is left to hold the memory either."""
        init = Init()
        init.send([{"nr": GETPID, "args": []}])
        init.sock.close()
        self.zygote.request([init.theirs.fileno()], guest=9, flags=HOLD)
        init.close()
        ended = self.ended()
        self.assertEqual((ended["guest"], os.WEXITSTATUS(ended["status"])), (9, 127))
        self.nobody_is_left()

    def test_long_frames(self):
        """Who sends more than there is room for is not served any further."""
        init = Init()
        with Zygote() as zygote:
            zygote.request([init.theirs.fileno()])
            init.theirs.close()
            init.sock.sendall(((64 << 10) + 1).to_bytes(4, "little"))
            ended = zygote.channel.receive()
            self.assertEqual((ended["event"], os.WEXITSTATUS(ended["status"])), ("ended", 127))
            zygote.channel.sock.sendall(((32 << 10) + 1).to_bytes(4, "little"))
            self.assertEqual(zygote.wait(), 0)
        init.close()

    def test_statuses(self):
        fork = self.zygote.fork()
        fork.setup()
        fork.channel.send({"op": "execute", "id": 1, "code": "import os; os._exit(9)", "stdin": None})
        self.assertEqual(os.WEXITSTATUS(self.ended()["status"]), 9)
        fork.close()
        fork = self.zygote.fork()
        os.kill(fork.answer.pid, signal.SIGKILL)
        self.assertEqual(os.WTERMSIG(self.ended()["status"]), signal.SIGKILL)
        fork.close()
        forks = [self.zygote.fork() for _ in range(8)]
        for fork in forks:
            fork.close()
        self.assertEqual(len({self.ended()["guest"] for _ in forks}), 8)

    def nobody_is_left(self):
        """The zygote reaps those whose end it does not tell a little later."""
        end = time.monotonic() + 10
        while children(self.zygote.pid) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(children(self.zygote.pid), [])

    def test_nothing_is_left(self):
        self.end(self.zygote.fork())
        before = sorted(os.listdir("/proc/%d/fd" % self.zygote.pid))
        for _ in range(5):
            self.end(self.zygote.fork())
        self.assertEqual(sorted(os.listdir("/proc/%d/fd" % self.zygote.pid)), before)
        self.assertEqual(children(self.zygote.pid), [])

    def test_holder(self):
        fork = self.zygote.fork()
        self.assertEqual(fork.answer.holder, 0)
        self.assertEqual(children(self.zygote.pid), [fork.answer.pid])
        self.end(fork)
        fork = self.zygote.fork(flags=HOLD)
        holder = fork.answer.holder
        self.assertNotIn(holder, (0, fork.answer.pid))
        self.assertEqual(children(self.zygote.pid), [fork.answer.pid])
        self.assertEqual(children(fork.answer.pid), [holder])  # which the guest's own wait does not return
        fork.setup()
        self.assertEqual(fork.value("import os\ntry:\n    os.wait()\nexcept ChildProcessError:\n    found = 'none'\nfound"), "none")
        # What the one maps the other has, and what the one closed the other has not.
        before = maps(holder)
        fork.value("memory = bytearray(64 << 20)\nmemory[::4096] = memory[::4096]")
        self.assertNotEqual(maps(holder), before)
        self.assertEqual(maps(holder), maps(fork.answer.pid))
        self.assertEqual(sorted(os.listdir("/proc/%d/fd" % holder)), ["0", "1", "2", "3"])
        # Nothing but the end that cannot be refused ends it.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            os.kill(holder, number)
        self.assertEqual(fork.value("len(memory)"), 64 << 20)
        # The guest's end is told while it is still there; its own is not told.
        fork.channel.send({"op": "execute", "id": 99, "code": "import os; os._exit(3)", "stdin": None})
        ended = self.ended()
        self.assertEqual((ended["guest"], os.WEXITSTATUS(ended["status"])), (self.zygote.guest, 3))
        self.assertEqual(children(self.zygote.pid), [])
        self.assertEqual(maps(holder) != "", True)
        os.kill(holder, signal.SIGKILL)
        fork.close()
        self.nobody_is_left()
        self.end(self.zygote.fork())

    def test_late_calls(self):
        """They are made after the answer, so that no limit of theirs stands in its way; one that fails ends the fork."""
        prlimit, nofile = (261 if os.uname().machine == "aarch64" else 302), 7
        limit = {"nr": prlimit, "args": [0, nofile, {"bytes": struct.pack("2Q", 40, 40)}, 0], "late": True}
        fork = self.zygote.fork(second=[{"nr": GETPID, "args": []}, limit])
        self.assertEqual(fork.answer.failed, -1)
        fork.setup()
        self.assertEqual(fork.value("import resource\nlist(resource.getrlimit(resource.RLIMIT_NOFILE))"), [40, 40])
        self.end(fork)
        init = Init()
        init.send([{"nr": GETPID, "args": []}, {"nr": GETPID, "args": [], "expect": 1, "late": True}])
        self.zygote.request([init.theirs.fileno()], guest=9)
        ended = self.ended()
        self.assertEqual((ended["guest"], os.WEXITSTATUS(ended["status"])), (9, 127))
        init.close()

    def test_modules_are_told(self):
        """Those that want to know of a fork, and the interpreter itself: its locks are free, its only thread is the first."""
        fork = self.zygote.fork()
        fork.setup()
        self.assertEqual(fork.value("import os, primed\nprimed.told == ['before', os.getpid()]"), True)
        self.assertEqual(fork.value("import threading\n[threading.current_thread() is threading.main_thread(), threading.active_count()]"), [True, 1])
        self.assertEqual(fork.value("found = []\nthread = threading.Thread(target=lambda: found.append(__import__('colorsys')), daemon=True)\nthread.start()\nthread.join(10)\nlen(found)"), 1)
        self.end(fork)

    def test_errands(self):
        """Whatever a fork was to be for, and however it prepared for that, it runs cells if it is asked to."""
        for flags in range(8):
            with self.subTest(flags=flags):
                fork = self.zygote.fork(flags=flags)
                self.assertEqual(fork.answer.holder > 0, flags & HOLD > 0)
                fork.setup()
                self.assertEqual(fork.value("[__name__, 'rehearsal' in dir(), 1 + 1]"), ["__main__", False, 2])
                self.assertEqual(fork.value("import sys\n[sys.argv, '/workspace' in sys.path]"), [[""], False])
                if flags & HOLD:
                    os.kill(fork.answer.holder, signal.SIGKILL)
                self.end(fork)
        self.nobody_is_left()

    def test_channel_is_closed_on_exec(self):
        fork = self.zygote.fork()
        fork.setup()
        self.assertEqual(fork.value("import fcntl\nfcntl.fcntl(3, fcntl.F_GETFD)"), 1)
        self.assertEqual(fork.value("import os\nos.popen('exec 2>&1; ls -l /proc/self/fd/3').close() is not None"), True)
        self.end(fork)

    def test_signals(self):
        """None is blocked in a fork, and a child's end means what it means in any process."""
        for flags in (0, HOLD, PROGRAM | REHEARSE | HOLD):
            fork = self.zygote.fork(flags=flags)
            fork.setup()
            self.assertEqual(fork.value("import signal\n[sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL]"), [[], True])
            with open("/proc/%d/status" % fork.answer.pid) as file:
                status = dict(line.split(":", 1) for line in file)
            bit = 1 << (signal.SIGCHLD - 1)
            self.assertEqual([int(status[name], 16) & bit for name in ("SigBlk", "SigIgn", "SigCgt")], [0, 0, 0])
            self.assertEqual(int(status["SigBlk"], 16), 0)
            self.assertEqual(fork.value("seen = []\nsignal.signal(signal.SIGCHLD, lambda *given: seen.append(1))\nimport os\n[os.system('exit 3') >> 8, len(seen)]"), [3, 1])
            if flags & HOLD:
                os.kill(fork.answer.holder, signal.SIGKILL)
            self.end(fork)

    def test_interrupt_of_the_zygote(self):
        """It goes on, and so does whoever is forked then."""
        os.kill(self.zygote.pid, signal.SIGINT)
        fork = self.zygote.fork()
        fork.setup()
        self.assertEqual(fork.value("1 + 1"), 2)
        self.end(fork)

    def test_as_many_guests_as_there_may_be(self):
        """One more is not forked, and when there is room again the next one is."""
        with Zygote() as zygote:
            init = Init()
            for guest in range(1024):
                zygote.request([init.theirs.fileno()], guest=guest)
            zygote.request([init.theirs.fileno()], guest=2000)
            message = zygote.channel.receive()
            self.assertEqual(message, {"event": "not_forked", "guest": 2000, "step": "fork", "errno": errno.EAGAIN})
            init.close()  # which ends all of them: they wait for its list
            ended = [zygote.channel.receive() for _ in range(1024)]
            self.assertEqual({message["guest"] for message in ended}, set(range(1024)))
            self.assertEqual({os.WEXITSTATUS(message["status"]) for message in ended}, {127})
            fork = zygote.fork()
            self.assertEqual(fork.answer.failed, -1)
            fork.close()

    def test_half_a_frame(self):
        """The zygote waits for the rest of a request."""
        data = fakezygote.frame(fakezygote.REQUEST.pack(3, 5, -1, 0, 0) + fakezygote.encode([]))
        for part in (data[:2], data[2:9], data[9:30], data[30:]):
            self.zygote.channel.sock.sendall(part)
            time.sleep(0.05)
        self.assertEqual(self.not_forked(), (3, "request", errno.EINVAL))

    def test_half_a_list(self):
        """And a fork for the rest of its init's list."""
        init = Init()
        self.zygote.request([init.theirs.fileno()], guest=4)
        init.theirs.close()
        data = fakezygote.frame(fakezygote.encode([{"nr": GETPID, "args": []}] * 2))
        for part in (data[:3], data[3:50], data[50:]):
            init.sock.sendall(part)
            time.sleep(0.05)
        self.assertEqual(init.receive().failed, -1)
        init.close()
        self.ended()

    def test_addresses_that_are_not_random(self):
        """Then the heap follows the program's own data without a gap."""
        import ctypes

        personality = ctypes.CDLL(None).personality
        before = personality(ctypes.c_ulong(0xFFFFFFFF))
        personality(ctypes.c_ulong(before | 0x40000))
        try:
            zygote = Zygote(["json"])
        finally:
            personality(ctypes.c_ulong(before))
        with zygote:
            for flags in (0, PROGRAM | REHEARSE):
                fork = zygote.fork(flags=flags)
                fork.setup()
                self.assertEqual(fork.value("import json\njson.loads('[1]')"), [1])
                fork.close()
                self.assertEqual(zygote.channel.receive()["status"], 0)

    def test_without_the_library(self):
        with tempfile.TemporaryDirectory() as directory:
            os.symlink(os.path.dirname(fake.RUNNER), directory + "/python")
            with unittest.mock.patch("fake.RUNNER", directory + "/python/__main__.py"), Zygote() as zygote:
                self.assertEqual(zygote.ready["event"], "unfit")
                self.assertIn("zygote.so", zygote.ready["why"])
                self.assertEqual(os.WEXITSTATUS(zygote.wait()), 1)

    def test_end(self):
        zygote = Zygote()
        zygote.channel.sock.close()
        self.assertEqual(zygote.wait(), 0)
        zygote.close()

    DRAW = """
import random, uuid, tempfile, secrets, ssl, multiprocessing.process, sys, os
drawn = [random.random(), random.Random().random(), str(uuid.uuid1()), str(uuid.uuid4()), tempfile.mktemp(), next(tempfile._get_candidate_names()),
         secrets.token_hex(), ssl.RAND_bytes(16).hex(), multiprocessing.process.current_process().authkey.hex(), os.urandom(8).hex()]
if 'numpy' in sys.modules:
    import numpy
    drawn += [float(numpy.random.rand()), float(numpy.random.default_rng().random())]
drawn"""

    def test_random_numbers_differ(self):
        self.draw([None] * 40)

    def draw(self, sandboxes):
        seen = []
        for sandbox in sandboxes:
            descriptor = sandbox.open("pid") if sandbox else None
            fork = self.zygote.fork(pid_namespace=descriptor)
            if sandbox:
                os.close(descriptor)
                self.pids.add(fork.answer.pid)
            fork.setup()
            seen += fork.value(self.DRAW)
            self.end(fork)
        self.assertEqual(len(seen), len(set(seen)))
        self.assertEqual(len(seen), len(sandboxes) * (12 if "numpy" in self.zygote.ready["imported"] else 10))

    @unittest.skipUnless(os.geteuid() == 0, "NOT TESTED: namespaces (they need root)")
    def test_namespaces(self):
        sandbox = Namespaces()
        self.addCleanup(sandbox.close)
        names = ("uts", "net", "ipc")
        descriptors = [sandbox.open(name) for name in names]
        pid_namespace = sandbox.open("pid")
        fork = self.zygote.fork(namespaces=descriptors, pid_namespace=pid_namespace)
        for descriptor in [*descriptors, pid_namespace]:
            os.close(descriptor)
        self.assertEqual(fork.answer.pid, 2)
        fork.setup()
        self.assertEqual(fork.value("import os\nos.getpid()"), 2)
        self.assertEqual(fork.value("open('/proc/net/dev').read().count(':')"), 1)
        # The zygote itself has stayed outside.
        self.assertEqual(os.readlink("/proc/%d/ns/pid" % self.zygote.pid), os.readlink("/proc/self/ns/pid"))
        self.assertEqual(os.readlink("/proc/%d/ns/pid_for_children" % self.zygote.pid), os.readlink("/proc/self/ns/pid"))
        another = self.zygote.fork()
        self.assertGreater(another.answer.pid, 2)
        self.end(another)
        self.assertEqual(self.end(fork)["status"], 0)

    @unittest.skipUnless(os.geteuid() == 0, "NOT TESTED: namespaces (they need root)")
    def test_random_numbers_differ_with_the_same_pid(self):
        sandboxes = [Namespaces() for _ in range(10)]
        for sandbox in sandboxes:
            self.addCleanup(sandbox.close)
        self.pids = set()
        self.draw(sandboxes)
        self.assertEqual(self.pids, {2})


if __name__ == "__main__":
    unittest.main()
