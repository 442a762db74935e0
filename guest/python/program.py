"""A file run as `python3 FILE ARGUMENTS` would run it.

The code runs in a fresh `__main__`, on the bottom frame of the runner. What it can still notice: that one frame, modules
that a zygote had imported already, and a hash seed that it shares with its siblings.
"""

import _signal
import sys
from posix import O_CLOEXEC, O_RDONLY, _exit, close, getpid, kill, open as posix_open, read, write

DIRECTORY = "/workspace"  # where a guest starts
PATH = "main.py"  # there: what the engine calls a program that came as text

_prepared = None  # a program at that path, but for what a request says
_usual = None  # the frame that asks for it, and for nothing else


class Program:
    """A program that is about to run."""

    def __init__(self, path, directory=None):
        """`directory` is where it is, for one that is not there yet."""
        self.path = path
        self.status = 0
        self.signal = False
        sys.argv = [path]
        self.first = None  # what it was given to import from
        if not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated:
            self.first = directory or _directory(path)
            belljar.environment.import_path(self.first)
        self.directory = directory
        self.renew()

    def renew(self):
        """Make its module anew."""
        self.module = self._main()
        self.namespace = self.module.__dict__

    def _main(self):
        import builtins
        import os

        module = type(sys)("__main__")
        path = self.path
        if sys.version_info >= (3, 9):
            path = self.directory + "/" + path if self.directory else os.path.abspath(path)
        module.__loader__ = _loader("__main__", path)
        module.__annotations__ = {}
        module.__builtins__ = builtins
        module.__file__ = path
        module.__cached__ = None
        return module

    def begin(self):
        """From here on the interpreter is the program's."""
        close(belljar.runner.CHANNEL)
        belljar.interrupts.stop()
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        belljar.ending.begin()
        sys.modules["__main__"] = self.module
        return self

    def withdraw(self):
        """It will not run after all."""
        if self.first is not None:
            sys.path.remove(self.first)
        sys.argv = [""]

    def code(self):
        """Its code; ends the process if there is none."""
        try:
            source = _content(self.path)
        except OSError as error:
            name = (getattr(sys, "orig_argv", None) or [sys.executable])[0]
            sys.stderr.write("%s: can't open file %r: [Errno %d] %s\n" % (name, self.module.__file__, error.errno, error.strerror))
            _exit(2)
        return compile(source, self.module.__file__, "exec", dont_inherit=True)

    def failed(self, error):
        """It raised: say so, and remember the exit status, as the interpreter does."""
        self.status = 1
        if issubclass(type(error), SystemExit):
            self.status = exit_status(error)
            return
        error.__traceback__ = belljar.tracebacks.own(error.__traceback__)
        try:
            sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
            if sys.version_info >= (3, 12):
                sys.last_exc = error
            sys.excepthook(type(error), error, error.__traceback__)
        except SystemExit as another:
            self.status = exit_status(another)
        except BaseException as another:
            sys.stderr.write("Error in sys.excepthook:\n")
            another.__traceback__ = belljar.tracebacks.own(another.__traceback__)
            sys.__excepthook__(type(another), another, another.__traceback__)
            sys.stderr.write("\nOriginal exception was:\n")
            sys.__excepthook__(type(error), error, error.__traceback__)
        self.signal = issubclass(type(error), KeyboardInterrupt)

    def end(self):
        self.module = self.namespace = None
        if not belljar.ending.finish():
            self.status = 120
        if self.signal:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
            kill(getpid(), _signal.SIGINT)
            self.status = 130
        _exit(self.status & 0xFF)


def prepare():
    """In the zygote: have ready for all its forks what is the same for nearly all of their programs."""
    global _prepared, _usual
    _usual = belljar.channel.frame({"op": "program", "path": PATH})
    _prepared = Program(PATH, DIRECTORY)


def renew():
    """In the zygote, after its heap was frozen: what is frozen is never let go of, and a program's module must be."""
    _prepared.renew()


def withdraw():
    """In a fork that will run cells."""
    if _prepared is not None:
        _prepared.withdraw()


def wait():
    """Say that it is ready, and wait for a program to run; without the means of a session, which a fork would have to copy."""
    data = b""
    try:
        write(belljar.runner.CHANNEL, belljar.runner.ready)
        while True:
            part = read(belljar.runner.CHANNEL, 1 << 16)
            if not part:
                break
            data = data + part if data else part
            if data == _usual:
                return _prepared.begin()
            if len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4], "little"):
                withdraw()
                return belljar.runner.serve(data)
    except OSError:  # nobody wants it any more
        pass
    belljar.runner.closed()


def of(message):
    """The program that a message asks for."""
    import os

    if message.get("env") is not None:
        belljar.environment.replace(message["env"])
        if belljar.environment.variable("PYTHONIOENCODING"):
            belljar.streams.renew()
    program = Program(os.fspath(message["path"]))
    sys.argv += message.get("args") or ()
    return program.begin()


def _content(path):
    """What is in a file; by means of which a fork has less to copy than of a file object."""
    descriptor = posix_open(path, O_RDONLY | O_CLOEXEC)
    try:
        content = read(descriptor, 1 << 16)
        while len(content) >= 1 << 16:
            further = read(descriptor, 1 << 20)
            content += further
            if not further:
                break
        return content
    finally:
        close(descriptor)


def _directory(path):
    """Where the file really is."""
    import os

    return os.path.dirname(os.path.realpath(path))


def rehearse():
    """Touch what a program touches, so that a fork which waits has its own copy of it."""
    _content(__file__)
    namespace = dict(_prepared.namespace)
    exec(compile(b"def f(x):\n    return [x]\nx = f(1 + 1)\nprint(end='')", PATH, "exec", dont_inherit=True), namespace)
    belljar.ending.rehearse()


def exit_status(error):
    """The number that a SystemExit stands for; a message goes to standard error."""
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code) & 0xFFFFFFFF if -(1 << 63) <= code < (1 << 63) else 0xFF
    try:
        sys.stderr.write(str(code) + "\n")
    except BaseException:
        pass
    return 1


def _loader(name, path):
    import _frozen_importlib_external

    return _frozen_importlib_external.SourceFileLoader(name, path)
