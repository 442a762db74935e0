"""Programs that the engine asks for between cells, by `command`.

Such a program has a process group of its own, so that an interrupt reaches what it has started in turn, as at a terminal.
Its input is a pipe that is fed while it runs. Its output goes where the interpreter's goes.
"""

import _signal
from posix import (
    P_PID, POSIX_SPAWN_CLOSE, POSIX_SPAWN_DUP2, WEXITED, WEXITSTATUS, WIFSIGNALED, WNOHANG, WNOWAIT, WTERMSIG,
    close, kill, killpg, listdir, pipe, posix_spawnp, set_blocking, sysconf, waitid, waitpid, write,
)
from select import POLLOUT

PAUSE = 10  # milliseconds between looks at a program that was interrupted
PATIENCE = 200  # how many of them it has before it is killed
GLANCE = 100  # milliseconds between looks at a program that does not read
MOST_DESCRIPTORS = 1 << 16


class Command:
    """A program that runs, or is about to."""

    def __init__(self, argv, text):
        self._name = argv[0]
        self._argv = [part.encode("utf-8", "surrogateescape") for part in argv]
        self._input = (text or "").encode("utf-8", "surrogatepass")
        self._pid = None
        self._interrupted = False

    def run(self):
        """Run it to its end. Gives what a `done` says of that."""
        with _Signals():
            try:
                feed = self._start()
            except OSError as error:
                return {"error": self._failure(error)}
            try:
                if self._interrupted:
                    self._end()
                try:
                    self._feed(feed)
                finally:
                    close(feed)
                waitid(P_PID, self._pid, WEXITED | WNOWAIT)
            except ChildProcessError:
                return {"error": {"type": "ChildProcessError", "message": "how `%s` ended is lost: the session waited for it itself" % self._name}}
            except BaseException:  # a handler of the session's own, for some other signal
                self._end()
                raise
            finally:
                belljar.interrupts.stop()  # from here on the number may be another process's
                status = _reaped(self._pid)
        if WIFSIGNALED(status):
            return {"signal": WTERMSIG(status)}
        return {"exit_code": WEXITSTATUS(status)}

    def interrupt(self):
        """SIGINT, when it is called by the handler of ours. Says that this has been dealt with."""
        if not self._interrupted:
            self._interrupted = True
            if self._pid is not None:
                self._end()
        return True

    def _start(self):
        """Start it. Gives the descriptor that its input is written to."""
        end, feed = pipe()
        try:
            set_blocking(feed, False)
            actions = [(POSIX_SPAWN_DUP2, end, 0)]
            actions += [(POSIX_SPAWN_CLOSE, number) for number in _descriptors() if number > 2]
            signals = {"setsigmask": (), "setsigdef": _signal.valid_signals()}
            self._pid = posix_spawnp(self._argv[0], self._argv, belljar.environment.variables(), file_actions=actions, setpgroup=0, **signals)
        except BaseException:
            close(feed)
            raise
        finally:
            close(end)
        return feed

    def _feed(self, feed):
        """Write its input, as far as it reads that."""
        rest = memoryview(self._input)
        ready = belljar.channel.poll()
        ready.register(feed, POLLOUT)
        while rest:
            try:
                rest = rest[write(feed, rest) :]
            except BlockingIOError:
                # Something that it started may have the pipe open for longer than it runs.
                if not ready.poll(GLANCE) and self._is_over():
                    return
            except OSError:  # nobody will read it
                return

    def _end(self):
        """Ask it to end, and see to it."""
        if self._is_over():
            return
        self._signal(_signal.SIGINT)
        wait = belljar.channel.poll().poll
        for _ in range(PATIENCE):
            if self._is_over():
                return
            wait(PAUSE)
        self._signal(_signal.SIGKILL)

    def _signal(self, number):
        for send in (killpg, kill):  # the second for one that has left its group
            try:
                send(self._pid, number)
                if number != _signal.SIGKILL:
                    return
            except OSError:
                pass

    def _is_over(self):
        try:
            return waitid(P_PID, self._pid, WEXITED | WNOHANG | WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _failure(self, error):
        if isinstance(error, FileNotFoundError):
            return {"type": "FileNotFoundError", "message": "`%s` is not there" % self._name}
        if isinstance(error, PermissionError):
            return {"type": "PermissionError", "message": "`%s` cannot be executed" % self._name}
        kind = "BlockingIOError" if isinstance(error, BlockingIOError) else "OSError"
        return {"type": kind, "message": "`%s` cannot be started: %s" % (self._name, error.strerror)}


class _Signals:
    """Around a program: whatever the session did with signals must not end the runner, nor take the program's end away."""

    def __enter__(self):
        self._handlers = [(_signal.SIGPIPE, _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN))]
        if _signal.getsignal(_signal.SIGCHLD) == _signal.SIG_IGN:
            self._handlers.append((_signal.SIGCHLD, _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)))
        # A handler that waits for every child comes too late for this one.
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGCHLD,))

    def __exit__(self, *unused):
        for number, handler in self._handlers:
            if handler is not None:  # one that is not Python's cannot be put back
                _signal.signal(number, handler)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask)


def _descriptors():
    """The numbers of all that is open, and perhaps of more."""
    try:
        return [int(name) for name in listdir("/proc/self/fd")]
    except OSError:
        return range(min(sysconf("SC_OPEN_MAX"), MOST_DESCRIPTORS))


def _reaped(pid):
    """Its wait status; 0 if somebody else has that."""
    try:
        return waitpid(pid, 0)[1]
    except ChildProcessError:
        return 0
