"""A zygote for the tests, and the part of a sandbox's init that its forks talk to."""

import os
import select
import socket
import tempfile
import time

import fake

if os.uname().machine == "aarch64":
    GETPID, DUP3, SETNS, PRCTL, PIPE2 = 172, 24, 268, 167, 59
else:
    GETPID, DUP3, SETNS, PRCTL, PIPE2 = 39, 292, 308, 157, 293


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
        self.init.sock.close()


class Zygote(fake.Runner):
    arguments = ("zygote",)

    def __init__(self, modules=()):
        # For primed.py, which stands for whatever a guest's favourite modules do when they are imported.
        super().__init__(started=False, variables={"PYTHONPATH": os.path.dirname(os.path.abspath(__file__))})
        self.guest = 0
        self.channel.send({"op": "import", "modules": list(modules)})
        self.ready = self.channel.receive()

    def fork(self, namespaces=(), pid_namespace=None, first=(), second=(), stdin=None, out=None, err=None):
        """Fork a runner; `namespaces` are descriptors that its first calls enter."""
        self.guest += 1
        ours, theirs = socket.socketpair()
        control, its_control = socket.socketpair()
        out = out or tempfile.TemporaryFile()
        err = err or tempfile.TemporaryFile()
        null = stdin if stdin is not None else os.open(os.devnull, os.O_RDONLY)
        descriptors = [theirs.fileno(), its_control.fileno(), null, out.fileno(), err.fileno(), *namespaces]
        calls = [{"step": "enter", "nr": SETNS, "args": [{"fd": 5 + n}, 0], "expect": 0} for n in range(len(namespaces))]
        calls += first
        message = {"op": "fork", "guest": self.guest, "channel": 0, "calls": calls}
        if pid_namespace is not None:
            message["pid_namespace"] = len(descriptors)
            descriptors.append(pid_namespace)
        standard = [{"step": "streams", "nr": DUP3, "args": [{"fd": n}, n, 0], "expect": n} for n in range(4)]
        started = time.perf_counter()
        self.channel.send(message, descriptors)
        init = fake.Channel(ours)
        init.send({"calls": standard + list(second)}, [null, out.fileno(), err.fileno(), its_control.fileno()])
        theirs.close()
        its_control.close()
        if stdin is None:
            os.close(null)
        # A fork answers where its init is; a zygote that could not fork says so itself.
        heard, _, _ = select.select([ours, self.channel.sock], [], [], 30)
        if ours not in heard:
            return self.channel.receive()
        answer = init.receive()
        channel = fake.Channel(control)
        if "failed" not in answer:
            ready = channel.receive()
            assert ready["event"] == "ready", ready
        return Fork(channel, init, answer, time.perf_counter() - started, out, err)
