"""A zygote for the tests, and the part of a sandbox's init that its forks talk to."""

import array
import collections
import os
import select
import socket
import struct
import tempfile
import time

import fake

if os.uname().machine == "aarch64":
    GETPID, DUP3, SETNS, PRCTL, CHDIR, CHROOT, WRITEV, UMASK = 172, 24, 268, 167, 49, 51, 66, 166
else:
    GETPID, DUP3, SETNS, PRCTL, CHDIR, CHROOT, WRITEV, UMASK = 39, 292, 308, 157, 80, 161, 20, 95
PIDFD_OPEN = 434

# A list of calls, as PROTOCOL.md describes it.
MOST = 256
SHARED_MEMORY = 2 * MOST


class HEAD:
    """The head of a list: how many fixes and calls, and how many of the calls are late."""

    FORM = struct.Struct("<4I")
    size = FORM.size

    @classmethod
    def pack(cls, fixes, calls, late=0):
        return cls.FORM.pack(fixes, calls, late, 0)


FIX = struct.Struct("<2I")
CALL = struct.Struct("<i2B6s3Iq6q")
NUMBER, FD, RESULT, MEMORY = range(4)
OPTIONAL, SEND, EXPECT = 1, 2, 4

REQUEST = struct.Struct("<Q4i")
ANSWER = struct.Struct("<4i")
PROGRAM, REHEARSE, HOLD = 1, 2, 4

# `failed` is the index of the call that failed, and -1 where all went well; `sent` is a descriptor or None.
Answer = collections.namedtuple("Answer", "pid holder failed errno sent")


def call(number, kinds=(), values=(), flags=0, expect=0, left=(0, 0, 0)):
    """One call as it stands in a list."""
    count = len(values)
    return CALL.pack(number, flags, count, bytes(kinds).ljust(6, b"\0"), *left, expect, *values, *[0] * (6 - count))


def encode(calls):
    """A list from calls such as `{"nr": N, "args": [ARG], "expect": N, "optional": True, "send": True, "late": True, "out": (I, BYTES)}`.

    An ARG is a number, `{"fd": I}`, `{"result": I}`, or `{"bytes": BYTES, "pointers": [(OFFSET, BYTES)]}`. What is already a
    list goes as it is."""
    if isinstance(calls, bytes):
        return calls
    fixes = [pointer for one in calls for arg in one["args"] if isinstance(arg, dict) for pointer in arg.get("pointers", ())]
    start = HEAD.size + len(fixes) * FIX.size + len(calls) * CALL.size
    memory, fixed, written = bytearray(), [], []

    def put(data):
        memory.extend(bytes(-len(memory) % 8))
        memory.extend(data)
        return start + len(memory) - len(data)

    for one in calls:
        kinds, values = [], []
        for arg in one["args"]:
            if not isinstance(arg, dict):
                kind, value = NUMBER, arg
            elif "fd" in arg:
                kind, value = FD, arg["fd"]
            elif "result" in arg:
                kind, value = RESULT, arg["result"]
            else:
                kind, value = MEMORY, put(arg["bytes"])
                fixed += [FIX.pack(value + offset, put(data)) for offset, data in arg.get("pointers", ())]
            kinds.append(kind)
            values.append(value)
        left = (0, 0, 0)
        if "out" in one:
            index, data = one["out"]
            left = (put(data), values[index], len(data))
        flags = OPTIONAL * ("optional" in one) | SEND * ("send" in one) | EXPECT * ("expect" in one)
        written.append(call(one["nr"], kinds, values, flags, one.get("expect", 0), left))
    late = sum("late" in one for one in calls)
    return HEAD.pack(len(fixed), len(calls), late) + b"".join(fixed + written) + bytes(memory)


def frame(data):
    return len(data).to_bytes(4, "little") + data


class Init:
    """A sandbox's init, as far as a fork sees it. `theirs` is the fork's end."""

    def __init__(self):
        self.sock, self.theirs = socket.socketpair()
        self.sock.settimeout(fake.TIMEOUT)

    def send(self, calls, descriptors=()):
        fake.Channel(self.sock).send_bytes(frame(encode(calls)), descriptors)

    def receive(self):
        """The fork's answer."""
        size = 4 + ANSWER.size
        data, ancillary, _, _ = self.sock.recvmsg(size, socket.CMSG_SPACE(64))
        if not data:
            raise fake.Closed
        assert data[:4] == ANSWER.size.to_bytes(4, "little") and len(data) == size, data
        sent = array.array("i")
        for _, _, rights in ancillary:
            sent.frombytes(rights)
        assert len(sent) <= 1, sent
        return Answer(*ANSWER.unpack(data[4:]), sent[0] if sent else None)

    def close(self):
        self.sock.close()
        self.theirs.close()


class Fork:
    """A runner that the zygote forked."""

    def __init__(self, channel, init, answer, seconds, out, err):
        self.channel = channel
        self.init = init
        self.answer = answer
        self.seconds = seconds
        self.out = out
        self.err = err
        self.count = 0

    def setup(self, **options):
        self.channel.send(dict({"op": "setup", "env": {}, "globals": {}, "tools": [], "imports": None, "forbidden_calls": [], "limits": fake.LIMITS}, **options))

    def value(self, code):
        self.count += 1
        self.channel.send({"op": "execute", "id": self.count, "code": code, "stdin": None})
        while True:
            message = self.channel.receive()
            if message["event"] == "done":
                assert message["status"] == "ok", message
                return message.get("value")

    def close(self):
        self.channel.sock.close()
        self.init.close()
        if self.answer.sent is not None:
            os.close(self.answer.sent)


class Zygote(fake.Runner):
    arguments = ("zygote",)

    def __init__(self, modules=()):
        # For primed.py, which stands for whatever a guest's favourite modules do when they are imported.
        super().__init__(started=False, variables={"PYTHONPATH": os.path.dirname(os.path.abspath(__file__))})
        self.guest = 0
        self.channel.send({"op": "import", "modules": list(modules)})
        self.ready = self.channel.receive()

    def request(self, descriptors, guest=1, channel=0, pid_namespace=-1, flags=0, calls=()):
        """Ask for a fork, in words of the caller's own."""
        message = REQUEST.pack(guest, channel, pid_namespace, flags, 0) + encode(calls)
        self.channel.send_bytes(frame(message), descriptors)

    def fork(self, namespaces=(), pid_namespace=None, first=(), second=(), flags=0, stdin=None, out=None, err=None):
        """Fork a runner; `namespaces` are descriptors that its first calls enter.

        `first` comes after those, `second` after the calls that place its streams; a list in bytes stands for all of them."""
        self.guest += 1
        init = Init()
        control, its_control = socket.socketpair()
        out = out or tempfile.TemporaryFile()
        err = err or tempfile.TemporaryFile()
        null = stdin if stdin is not None else os.open(os.devnull, os.O_RDONLY)
        descriptors = [init.theirs.fileno(), its_control.fileno(), null, out.fileno(), err.fileno(), *namespaces]
        if not isinstance(first, bytes):
            first = [{"nr": SETNS, "args": [{"fd": 5 + n}, 0], "expect": 0} for n in range(len(namespaces))] + list(first)
        index = -1
        if pid_namespace is not None:
            index = len(descriptors)
            descriptors.append(pid_namespace)
        if not isinstance(second, bytes):
            second = [{"nr": DUP3, "args": [{"fd": n}, n, 0], "expect": n} for n in range(4)] + list(second)
        started = time.perf_counter()
        self.request(descriptors, self.guest, 0, index, flags, first)
        init.send(second, [null, out.fileno(), err.fileno(), its_control.fileno()])
        init.theirs.close()
        its_control.close()
        if stdin is None:
            os.close(null)
        # A fork answers where its init is; a zygote that could not fork says so itself.
        heard, _, _ = select.select([init.sock, self.channel.sock], [], [], 30)
        if init.sock not in heard:
            return self.channel.receive()
        answer = init.receive()
        channel = fake.Channel(control)
        if answer.failed < 0:
            ready = channel.receive()
            assert ready["event"] == "ready", ready
        return Fork(channel, init, answer, time.perf_counter() - started, out, err)
