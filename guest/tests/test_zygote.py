"""The zygote: forks into namespaces, with system calls that the engine lists, and no two alike."""

import base64
import os
import signal
import socket
import struct
import time
import unittest

import fake
from fakezygote import DUP3, GETPID, PIPE2, PRCTL, SETNS, Zygote


def octets(data):
    return base64.b64encode(data).decode()


class Holder:
    """A process in new namespaces, for its descriptors."""

    def __init__(self):
        reader, writer = os.pipe()
        command = ["unshare", "--pid", "--fork", "--kill-child", "--uts", "--net", "--ipc", "sh", "-c", "echo; exec sleep 600"]
        self.pid = os.posix_spawnp("unshare", command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)])
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        with open("/proc/%d/task/%d/children" % (self.pid, self.pid)) as file:
            self.inner = int(file.read().split()[0])

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
            {"step": "getpid", "nr": GETPID, "args": []},
            {"step": "optional", "nr": DUP3, "args": [-1, 5, 0], "optional": True},
            # PR_SET_NAME, then PR_GET_NAME into memory whose contents are checked.
            {"step": "name", "nr": PRCTL, "args": [15, {"bytes": octets(b"named\0")}, 0, 0, 0], "expect": 0},
            {"step": "look", "nr": PRCTL, "args": [16, {"bytes": octets(bytes(16))}, 0, 0, 0], "out": [1, octets(b"named\0")]},
            {"step": "dup", "nr": DUP3, "args": [{"fd": 1}, 200, 0], "send": True},
            {"step": "dup of it", "nr": DUP3, "args": [{"result": 8}, 201, 0]},
        ]
        fork = self.zygote.fork(second=second)
        results = fork.answer["results"]
        self.assertEqual(results[4], fork.answer["pid"])
        self.assertEqual(results[5], -1)
        self.assertEqual(results[8:], [200, 201])
        fork.setup()
        self.assertEqual(fork.value("open('/proc/self/comm').read()"), "named\n")
        self.assertEqual(fork.value("import os\n[os.path.exists('/proc/self/fd/%d' % n) for n in (200, 201)]"), [False, False])
        self.end(fork)

    def test_sent_descriptor(self):
        """A descriptor that a call made arrives with the answer."""
        ours, theirs = socket.socketpair()
        reader, writer = os.pipe()
        call = {"step": "dup", "nr": DUP3, "args": [{"fd": 0}, 77, 0], "send": True}
        self.zygote.channel.send({"op": "fork", "guest": 500, "channel": 0, "calls": []}, [theirs.fileno()])
        theirs.close()
        fake.Channel(ours).send({"calls": [call]}, [writer])
        os.close(writer)
        data, ancillary, _, _ = ours.recvmsg(4096, 1024)
        ((_, _, rights),) = ancillary
        (descriptor,) = struct.unpack("i", rights)
        os.write(descriptor, b"through")
        os.close(descriptor)
        self.assertEqual(os.read(reader, 100), b"through")
        ours.close()
        os.close(reader)
        self.ended()  # its descriptor 3 is no channel

    def test_pointers(self):
        """writev with an iovec that points to further memory."""
        reader, writer = os.pipe()
        number = 66 if os.uname().machine == "aarch64" else 20
        iovec = {"bytes": octets(bytes(8) + struct.pack("Q", 5)), "pointers": [[0, octets(b"hello")]]}
        first = [{"step": "writev", "nr": number, "args": [{"fd": 5}, iovec, 1], "expect": 5}]
        ours, theirs = socket.socketpair()
        self.zygote.channel.send({"op": "fork", "guest": 600, "channel": 0, "calls": first}, [theirs.fileno()] * 5 + [writer])
        os.close(writer)
        theirs.close()
        self.assertEqual(os.read(reader, 100), b"hello")
        os.close(reader)
        ours.close()
        self.assertEqual(os.WEXITSTATUS(self.ended()["status"]), 127)

    def test_failing_calls(self):
        for calls in (
            [{"step": "bad", "nr": DUP3, "args": [-1, 5, 0]}],
            [{"step": "bad", "nr": GETPID, "args": [], "expect": -5}],
            [{"step": "bad", "nr": PRCTL, "args": [16, {"bytes": octets(bytes(16))}, 0, 0, 0], "out": [1, octets(b"other")]}],
            [{"step": "bad", "nr": GETPID, "args": [{"fd": 50}]}],
            [{"step": "bad", "nr": GETPID, "args": [{"result": 50}]}],
            [{"step": "bad", "nr": GETPID, "args": [{"fd": -1}]}],
            [{"step": "bad", "nr": GETPID, "args": ["text"]}],
            [{"step": "bad", "nr": GETPID, "args": [{"bytes": "", "pointers": [[99, ""]]}]}],
            [{"step": "bad", "args": []}],
            [{"step": "bad", "nr": GETPID, "args": [1] * 50}],
            ["text"],
        ):
            for where in ("first", "second"):
                fork = self.zygote.fork(**{where: calls})
                self.assertIn("failed", fork.answer, calls)
                if calls != ["text"]:
                    self.assertEqual(fork.answer["failed"]["step"], "bad")
                self.assertEqual(os.WEXITSTATUS(self.end(fork)["status"]), 127)

    def test_shared_memory_is_refused(self):
        with Zygote(["sharing"]) as zygote:
            fork = zygote.fork()
            self.assertEqual(fork.answer, {"failed": {"step": "SharedMemory", "errno": 1}})
            fork.close()

    def test_bad_requests(self):
        ours, theirs = socket.socketpair()
        for request in (
            {"op": "fork"},
            {"op": "fork", "guest": 1, "channel": 0},
            {"op": "fork", "guest": 1, "channel": "x"},
            {"op": "fork", "guest": 1, "channel": -1},
            {"op": "other", "guest": 1},
            [],
            5,
            {"op": "fork", "guest": 1, "channel": 0, "pid_namespace": 9},
        ):
            self.zygote.channel.send(request, [theirs.fileno()] if isinstance(request, dict) and "pid_namespace" in request else ())
            answer = self.zygote.channel.receive()
            self.assertEqual((answer["event"], answer["step"]), ("not_forked", "request"))
        self.zygote.channel.sock.sendall(b"\x03\0\0\0{{{")
        self.assertEqual(self.zygote.channel.receive()["event"], "not_forked")
        self.zygote.channel.send({"op": "fork", "guest": 7, "channel": 0, "pid_namespace": 0, "calls": []}, [theirs.fileno()])
        answer = self.zygote.channel.receive()
        self.assertEqual((answer["event"], answer["guest"], answer["step"], answer["errno"]), ("not_forked", 7, "pid namespace", 22))
        ours.close()
        theirs.close()
        self.end(self.zygote.fork())

    def test_init_that_goes(self):
        ours, theirs = socket.socketpair()
        self.zygote.channel.send({"op": "fork", "guest": 8, "channel": 0, "calls": []}, [theirs.fileno()])
        theirs.close()
        ours.sendall(b"\x10\0")
        ours.close()
        self.assertEqual(os.WEXITSTATUS(self.ended()["status"]), 127)

    def test_statuses(self):
        fork = self.zygote.fork()
        fork.setup()
        fork.channel.send({"op": "execute", "id": 1, "code": "import os; os._exit(9)", "stdin": None})
        self.assertEqual(os.WEXITSTATUS(self.ended()["status"]), 9)
        fork.close()
        fork = self.zygote.fork()
        os.kill(fork.answer["pid"], signal.SIGKILL)
        self.assertEqual(os.WTERMSIG(self.ended()["status"]), signal.SIGKILL)
        fork.close()
        forks = [self.zygote.fork() for _ in range(8)]
        for fork in forks:
            fork.close()
        self.assertEqual(len({self.ended()["guest"] for _ in forks}), 8)

    def test_nothing_is_left(self):
        self.end(self.zygote.fork())
        before = sorted(os.listdir("/proc/%d/fd" % self.zygote.pid))
        for _ in range(5):
            self.end(self.zygote.fork())
        self.assertEqual(sorted(os.listdir("/proc/%d/fd" % self.zygote.pid)), before)
        with open("/proc/%d/task/%d/children" % (self.zygote.pid, self.zygote.pid)) as file:
            self.assertEqual(file.read().split(), [])

    def test_half_a_frame(self):
        """The zygote waits for the rest of a request."""
        ours, theirs = socket.socketpair()
        data = fake.frame({"op": "other", "guest": 3})
        self.zygote.channel.sock.sendall(data[:2])
        time.sleep(0.05)
        self.zygote.channel.sock.sendall(data[2:9])
        time.sleep(0.05)
        self.zygote.channel.sock.sendall(data[9:])
        self.assertEqual(self.zygote.channel.receive()["event"], "not_forked")

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

    def draw(self, holders):
        seen = []
        for holder in holders:
            descriptor = holder.open("pid") if holder else None
            fork = self.zygote.fork(pid_namespace=descriptor)
            if holder:
                os.close(descriptor)
                self.pids.add(fork.answer["pid"])
            fork.setup()
            seen += fork.value(self.DRAW)
            self.end(fork)
        self.assertEqual(len(seen), len(set(seen)))
        self.assertEqual(len(seen), len(holders) * (12 if "numpy" in self.zygote.ready["imported"] else 10))

    @unittest.skipUnless(os.geteuid() == 0, "NOT TESTED: namespaces (they need root)")
    def test_namespaces(self):
        holder = Holder()
        self.addCleanup(holder.close)
        names = ("uts", "net", "ipc")
        descriptors = [holder.open(name) for name in names]
        pid_namespace = holder.open("pid")
        fork = self.zygote.fork(namespaces=descriptors, pid_namespace=pid_namespace)
        for descriptor in [*descriptors, pid_namespace]:
            os.close(descriptor)
        self.assertEqual(fork.answer["pid"], 2)
        fork.setup()
        self.assertEqual(fork.value("import os\nos.getpid()"), 2)
        self.assertEqual(fork.value("open('/proc/net/dev').read().count(':')"), 1)
        # The zygote itself has stayed outside.
        self.assertEqual(os.readlink("/proc/%d/ns/pid" % self.zygote.pid), os.readlink("/proc/self/ns/pid"))
        self.assertEqual(os.readlink("/proc/%d/ns/pid_for_children" % self.zygote.pid), os.readlink("/proc/self/ns/pid"))
        another = self.zygote.fork()
        self.assertGreater(another.answer["pid"], 2)
        self.end(another)
        self.assertEqual(self.end(fork)["status"], 0)

    @unittest.skipUnless(os.geteuid() == 0, "NOT TESTED: namespaces (they need root)")
    def test_random_numbers_differ_with_the_same_pid(self):
        holders = [Holder() for _ in range(10)]
        for holder in holders:
            self.addCleanup(holder.close)
        self.pids = set()
        self.draw(holders)
        self.assertEqual(self.pids, {2})


if __name__ == "__main__":
    unittest.main()
