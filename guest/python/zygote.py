"""The zygote: a warm interpreter that forks runners into sandboxes.

It imports what guests are likely to want, freezes its heap so that a fork shares it, and then only waits: for the engine to ask
for a fork, and for forks to end. It never runs a guest's code and never sees its data; a bad request is answered, and no
reason to die.
"""

import sys

CHANNEL = 3
OWN_NAMESPACE = 4
_NEW_PID = 0x20000000
_EINVAL = 22
_EPERM = 1
_ETOOMANYREFS = 109

# What a runner imports at its first need; here it is paid once, and shared. Not asyncio and threading, which make every
# fork slower: whoever wants them warm names them in `import`.
_OWN = ("atexit", "linecache", "reprlib", "select", "traceback", "warnings", "_symtable")
_MODULES = (
    "cells channel check decode displays encode ending environment holder imports interrupts loop program reseed runner session "
    "sources streams tools tracebacks watch"
).split()


class _Closed(Exception):
    """The engine has gone."""


def serve():
    """Fork whenever the engine asks. Returns in each fork, when that is a runner; in the zygote itself it never returns."""
    import _socket
    import posix

    channel = _socket.socket(fileno=CHANNEL)
    try:
        belljar.calls
    except Exception as error:
        _send(channel, {"event": "unfit", "why": "ctypes: %s" % error})
        posix._exit(1)
    try:
        zygote = _Zygote(channel, _own_namespace())
        zygote.prepare()
        zygote.loop()
    except _Closed:
        posix._exit(0)


def _own_namespace():
    """A handle of the pid namespace to come back to; where nobody gave one, what `/proc` has."""
    import posix

    try:
        posix.fstat(OWN_NAMESPACE)
        return OWN_NAMESPACE
    except OSError:
        return posix.open("/proc/self/ns/pid", posix.O_RDONLY | posix.O_CLOEXEC)


class _Zygote:
    def __init__(self, channel, own_namespace):
        self._channel = channel
        self._own_namespace = own_namespace
        self._guests = {}
        self._report = None  # where the first forks say that they share no memory

    def prepare(self):
        import gc
        import os

        message, _ = receive(self._channel)
        os.environ.setdefault("MPLBACKEND", "Agg")
        imported, failed = [], {}
        for name in message.get("modules") or ():
            try:
                __import__(name)
                imported.append(name)
            except BaseException as error:
                failed[name] = "%s: %s" % (type(error).__name__, error)
        for name in _OWN:
            try:
                __import__(name)
            except Exception:  # a small interpreter without it: the runner says so when it needs it
                pass
        for name in _MODULES:
            getattr(belljar, name)
        if "numpy" in sys.modules:
            belljar.tables
        _rehearse()
        gc.collect()
        gc.disable()
        gc.freeze()
        _send(
            self._channel,
            {
                "event": "ready",
                "language": "python",
                "version": sys.version.split()[0],
                "imported": imported,
                "failed": failed,
            },
        )

    def loop(self):
        import _signal
        import posix
        import select

        ended, wake = posix.pipe2(posix.O_CLOEXEC | posix.O_NONBLOCK)
        self._ended = ended
        _signal.signal(_signal.SIGCHLD, _noticed)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
        poll = select.poll()
        poll.register(CHANNEL, select.POLLIN)
        poll.register(ended, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == ended:
                    try:
                        posix.read(ended, 4096)
                    except BlockingIOError:
                        pass
                    self._reap()
                elif self._serve_one():
                    return

    def _serve_one(self):
        """Take one request. Returns whether this is the fork."""
        import posix

        message, descriptors = receive(self._channel)
        guest = message.get("guest") if isinstance(message, dict) else None
        try:
            if not isinstance(message, dict) or message.get("op") != "fork":
                raise belljar.calls.Failed("request", _EINVAL)
            try:
                channel = descriptors[belljar.calls._index(message["channel"])]
                namespace = message.get("pid_namespace")
                if namespace is not None:
                    namespace = descriptors[belljar.calls._index(namespace)]
                calls = list(message.get("calls") or ())
            except (KeyError, IndexError, TypeError):
                raise belljar.calls.Failed("request", _EINVAL) from None
            clean, report = self._look_at_memory()
            pid = self._fork(namespace)
            if pid == 0:
                # Descriptor 3 will be another. Until then it must stay taken, by something that nobody can write to: a
                # runner whose calls forgot to replace it must not speak to the engine in the zygote's name.
                posix.dup2(self._ended, self._channel.detach())
                _become_guest(channel, calls, descriptors, message.get("rehearse"), None if clean else report)
                descriptors = ()
                return True
            self._guests[pid] = guest
        except belljar.calls.Failed as failed:
            _send(self._channel, {"event": "not_forked", "guest": guest, "step": failed.step, "errno": failed.errno})
        finally:
            for descriptor in descriptors:
                try:
                    posix.close(descriptor)
                except OSError:
                    pass
        return False

    def _look_at_memory(self):
        """Whether a fork has found its memory shared with nobody, and where one may say so."""
        import posix

        if self._report is None:
            self._clean, (self._heard, self._report) = False, posix.pipe2(posix.O_CLOEXEC | posix.O_NONBLOCK)
        if not self._clean:
            try:
                self._clean = posix.read(self._heard, 1) == b"c"
            except BlockingIOError:
                pass
        return self._clean, self._report

    def _fork(self, namespace):
        import os

        Failed = belljar.calls.Failed
        if namespace is not None:
            errno = belljar.calls.setns(namespace, _NEW_PID)
            if errno:
                raise Failed("pid namespace", errno)
        error = 0
        try:
            pid = os.fork()  # not posix.fork: modules have asked to be told
        except OSError as failed:
            pid, error = -1, failed.errno
        if pid == 0:
            return 0
        if namespace is not None:
            back = belljar.calls.setns(self._own_namespace, _NEW_PID)
            if back:  # it could only ever fork into that sandbox again
                raise _Closed
        if error:
            raise Failed("fork", error)
        return pid

    def _reap(self):
        import posix

        while True:
            try:
                pid, status, usage = posix.wait4(-1, posix.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._guests:
                micros = int((usage.ru_utime + usage.ru_stime) * 1_000_000)
                guest = self._guests.pop(pid)
                _send(self._channel, {"event": "ended", "guest": guest, "status": status, "cpu_micros": micros})


def _rehearse():
    """Do once what every fork will do, so that what the interpreter and the linker prepare for it is shared."""
    belljar.streams.renew()
    for number in range(20):
        belljar.reseed.reseed()
        _rehearse_cell(number)
        belljar.program.rehearse()
        try:
            eval("1 / 0", {})
        except ZeroDivisionError as error:
            belljar.tracebacks.report(error, "<rehearsal>")


def _rehearse_cell(number):
    """Touch what a cell touches: a fork which waits then has its own copy of that."""
    limits = {"value_bytes": 1 << 20, "depth": 32}
    message = belljar.channel.loads(belljar.channel.frame({"op": "execute", "id": number})[4:])
    cell = belljar.cells.Cell("rehearsal = 1\nrehearsal + %d" % number, "<rehearsal>", 0)
    cell.compile("rehearsal = 1\nrehearsal + %d" % number)
    names = {}
    eval(cell.body, names)
    belljar.encode.value([eval(cell.tail, names), message, "", 0.5], limits)


def _noticed(number, frame):
    """The number arrives through the wakeup descriptor; Python wants a handler as well."""


def _become_guest(descriptor, calls, descriptors, rehearse, report):
    """In the fork: enter the sandbox, and be a runner."""
    import gc

    import _signal
    import _socket
    import posix

    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    channel = _socket.socket(fileno=descriptor)
    holder = 0
    try:
        try:
            belljar.calls.perform(calls, descriptors)
            message, further = receive(channel)
            results, sent = belljar.calls.perform(message.get("calls") or (), further)
            if report is not None:  # nobody has looked yet
                if _shares_memory():
                    raise belljar.calls.Failed("SharedMemory", _EPERM)
                posix.write(report, b"c")
        except belljar.calls.Failed as failed:
            _send(channel, {"failed": {"step": failed.step, "errno": failed.errno}})
            posix._exit(127)
        holder = belljar.holder.hold() if rehearse == "program" else 0
        _send(channel, {"pid": posix.getpid(), "holder": holder, "results": results}, sent)
    except BaseException:  # init has gone, or sent nonsense
        if holder:  # or it would hold our descriptors as well, and nobody would see that we have gone
            posix.kill(holder, _signal.SIGKILL)
        posix._exit(127)
    channel.detach()
    belljar.calls.close_above(CHANNEL)
    belljar.reseed.reseed()
    belljar.streams.renew()
    sys.argv = [""]
    gc.enable()
    if rehearse == "program":
        belljar.program.rehearse()
    elif rehearse == "cell":
        _rehearse_cell(0)


def _shares_memory():
    """Whether it shares memory that can be written with the zygote, and so with every other fork.

    A module that was imported beforehand may have made some. Asked in the sandbox, where there is a `/proc`; where there is
    none, nobody can say."""
    import _io

    try:
        with _io.open("/proc/self/maps", "rb") as file:
            maps = file.read()
    except OSError:
        return False
    for line in maps.splitlines():
        fields = line.split(None, 5)
        if fields[1][3:4] == b"s":
            path = fields[5] if len(fields) > 5 else b""
            if fields[1][1:2] == b"w" or not path.startswith((b"/usr/", b"/lib", b"/etc/")):
                return True
    return False


def receive(channel):
    """One frame, and the descriptors that came with its first byte."""
    import _socket

    size = _socket.CMSG_SPACE(253 * 4)
    header, ancillary, flags, _ = channel.recvmsg(4, size, _socket.MSG_CMSG_CLOEXEC)
    descriptors = []
    for level, kind, data in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            for start in range(0, len(data) - len(data) % 4, 4):
                descriptors.append(int.from_bytes(data[start : start + 4], sys.byteorder))
    header += _exactly(channel, 4 - len(header), header)
    length = int.from_bytes(header, "little")
    try:
        return belljar.channel.loads(_exactly(channel, length)), descriptors
    except ValueError:
        return None, descriptors


def _exactly(channel, length, before=b"."):
    if not before:
        raise _Closed
    data = b""
    while len(data) < length:
        part = channel.recv(length - len(data))
        if not part:
            raise _Closed
        data += part
    return data


def _first(channel, data, ancillary):
    """Send the first part. The kernel counts descriptors that are under way for all of a user's processes together, so
    where there are too many of them it is a matter of time."""
    import time

    for _ in range(1000):
        try:
            return channel.sendmsg([data], ancillary)
        except OSError as error:
            if error.errno != _ETOOMANYREFS:
                raise
            time.sleep(0.002)
    return channel.sendmsg([data], ancillary)


def _send(channel, message, descriptors=()):
    import _socket
    import posix

    data = belljar.channel.frame(message)
    ancillary = []
    if descriptors:
        rights = b"".join(d.to_bytes(4, sys.byteorder) for d in descriptors)
        ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)]
    try:
        sent = _first(channel, data, ancillary)
        while sent < len(data):
            sent += channel.send(data[sent:])
    except OSError:
        raise _Closed from None
    for descriptor in descriptors:
        posix.close(descriptor)
