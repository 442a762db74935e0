"""A small engine for the tests: it starts a runner and talks to it as PROTOCOL.md says."""

import array
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time

RUNNER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python", "__main__.py")
LIMITS = {"value_bytes": 1 << 20, "values": 100_000, "depth": 32, "displays": 8, "display_bytes": 1 << 20}
TIMEOUT = 60

for _name in os.listdir("/proc/self/fd"):  # what this process itself inherited is not the guest's
    if int(_name) > 2 and os.path.exists("/proc/self/fd/" + _name):
        os.set_inheritable(int(_name), False)


def frame(message):
    data = json.dumps(message).encode()
    return len(data).to_bytes(4, "little") + data


class Closed(Exception):
    """The runner closed its channel."""


class Channel:
    """The engine's end of a control channel."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(TIMEOUT)
        self.received = b""

    def send(self, message, descriptors=()):
        self.send_bytes(frame(message), descriptors)

    def send_bytes(self, data, descriptors=()):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        sent = self.sock.sendmsg([data], rights)
        if sent < len(data):
            self.sock.sendall(data[sent:])

    def receive(self):
        while True:
            if len(self.received) >= 4:
                end = 4 + int.from_bytes(self.received[:4], "little")
                if len(self.received) >= end:
                    data, self.received = self.received[4:end], self.received[end:]
                    return json.loads(data.decode())
            part = self.sock.recv(1 << 20)
            if not part:
                raise Closed
            self.received += part


def spawn(arguments, sock, stdin, stdout, stderr, env, cwd):
    """Start a process with these as its descriptors 0 to 3."""
    program = "import os,sys; os.chdir(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
    # A first interpreter changes the directory: posix_spawn cannot, and fork with threads is no good.
    actions = [
        (os.POSIX_SPAWN_DUP2, stdin, 0),
        (os.POSIX_SPAWN_DUP2, stdout, 1),
        (os.POSIX_SPAWN_DUP2, stderr, 2),
    ]
    if sock is not None:
        actions.append((os.POSIX_SPAWN_DUP2, sock, 3))
    command = [sys.executable, "-I", "-S", "-c", program, cwd, *arguments]
    return os.posix_spawn(sys.executable, command, env, file_actions=actions)


class Runner:
    """A runner and what it printed. `with Runner() as r: r.run("1 + 1")`."""

    arguments = ()

    def __init__(self, setup=None, env=None, cwd=None, limits=None, started=True, **options):
        self.directory = tempfile.TemporaryDirectory()
        self.cwd = cwd or self.directory.name
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        null = os.open(os.devnull, os.O_RDONLY)
        variables = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]}
        variables.update(options.get("variables", {}))
        command = [sys.executable, RUNNER, *self.arguments]
        self.pid = spawn(command, theirs.fileno(), null, self.out.fileno(), self.err.fileno(), variables, self.cwd)
        os.close(null)
        theirs.close()
        self.status = None
        self.count = 0
        self.events = []
        self.tools = {}
        if started:
            try:
                self.ready = self.channel.receive()
            except Closed:
                raise AssertionError("the runner did not start: " + self.printed(self.err))
            self.channel.send(
                {
                    "op": "setup",
                    "env": variables if env is None else env,
                    "globals": options.get("globals", {}),
                    "tools": [{"name": name} for name in options.get("tools", ())],
                    "imports": options.get("imports"),
                    "forbidden_calls": options.get("forbidden_calls", []),
                    "limits": dict(LIMITS, **(limits or {})),
                }
            )
            if isinstance(options.get("tools"), dict):
                self.tools = options["tools"]

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        self.channel.sock.close()
        if self.status is None:
            self.wait(kill=True)
        self.directory.cleanup()
        self.out.close()
        self.err.close()

    def wait(self, kill=False):
        end = time.monotonic() + (2 if kill else TIMEOUT)
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
            elif time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                self.status = os.waitpid(self.pid, 0)[1]
            else:
                time.sleep(0.002)
        return self.status

    def start(self, code, stdin=None, **given):
        self.count += 1
        self.channel.send(dict({"op": "execute", "id": self.count, "code": code, "stdin": stdin}, **given))
        return self.count

    def start_command(self, *argv, stdin=None):
        self.count += 1
        self.channel.send({"op": "command", "id": self.count, "argv": argv, "stdin": stdin})
        return self.count

    def finish(self, ident=None):
        """Answer tool calls until the cell is done."""
        self.events = []
        while True:
            message = self.channel.receive()
            if message["event"] == "done":
                assert message["id"] == (ident or self.count), message
                return message
            self.events.append(message)
            if message["event"] == "tool_call":
                self.answer(message)

    def answer(self, message):
        tool = self.tools.get(message["name"])
        if tool is None:
            return
        try:
            self.channel.send({"op": "tool_result", "call": message["call"], "value": tool(*message["args"], **message["kwargs"])})
        except Exception as error:
            self.channel.send({"op": "tool_error", "call": message["call"], "type": type(error).__name__, "message": str(error)})

    def run(self, code, stdin=None, **given):
        self.start(code, stdin, **given)
        return self.finish()

    def command(self, *argv, stdin=None):
        """How a program ended: its `done`, without what every one has."""
        self.start_command(*argv, stdin=stdin)
        done = self.finish()
        assert (done.pop("event"), done.pop("id"), done.pop("status")) == ("done", self.count, "command"), done
        return done

    def value(self, code, stdin=None, **given):
        done = self.run(code, stdin, **given)
        assert done["status"] == "ok", done
        return done.get("value")

    def interrupt(self):
        os.kill(self.pid, signal.SIGINT)

    def displays(self):
        return [event for event in self.events if event["event"] == "display"]

    def printed(self, file=None):
        file = file or self.out
        file.seek(0)
        return file.read().decode()


def private_dirty(pid):
    with open("/proc/%d/smaps_rollup" % pid) as file:
        for line in file:
            if line.startswith("Private_Dirty:"):
                return int(line.split()[1])


def readable(sock, seconds):
    return bool(select.select([sock], [], [], seconds)[0])
