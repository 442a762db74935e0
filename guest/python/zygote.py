"""The zygote: a warm interpreter that forks runners into sandboxes.

It imports what guests are likely to want, freezes its heap so that a fork shares it, and hands over to native code
(sys/native of belljar-linux): that waits for the engine, forks, and takes the fork into its sandbox, and Python goes on only there. It never
runs a guest's code and never sees its data.
"""

import sys
from posix import _exit, read, write

CHANNEL = 3
OWN_NAMESPACE = 4
# What a fork is for.
PROGRAM = 1  # one program; else cells
REHEARSE = 2

# What a runner imports at its first need; here it is paid once, and shared. Not asyncio and threading, which make every
# fork slower: whoever wants them warm names them in `import`.
_OWN = ("atexit", "linecache", "reprlib", "select", "traceback", "warnings", "_symtable")
_MODULES = (
    "cells channel check commands decode displays encode ending environment imports interrupts loop program reseed runner session "
    "sources streams tools tracebacks watch"
).split()


def serve():
    """Fork whenever the engine asks. Returns only in a fork, and only if that is to run a program: the program."""
    import gc

    try:
        native = _native()
    except Exception as error:
        _tell({"event": "unfit", "why": "ctypes: %s" % error})
        _exit(1)
    native.belljar_begin()
    ready = _prepare(_asked())
    native.belljar_prepare()
    _tell(ready)
    flags = native.belljar_serve(CHANNEL, _own_namespace())
    belljar.reseed.reseed()
    gc.enable()
    if flags & PROGRAM:
        if flags & REHEARSE:
            belljar.program.rehearse()
        return belljar.program.wait()
    belljar.program.withdraw()
    if flags & REHEARSE:
        _rehearse_cell(0)
    return belljar.runner.serve()


def _native():
    import ctypes

    # Not CDLL: it calls functions of the interpreter, so it must not let go of the interpreter's lock.
    return ctypes.PyDLL(belljar.directory.rpartition("/")[0] + "/native/zygote.so")


def _own_namespace():
    """A handle of the pid namespace to come back to; where nobody gave one, what `/proc` has."""
    import posix

    try:
        posix.fstat(OWN_NAMESPACE)
        return OWN_NAMESPACE
    except OSError:
        return posix.open("/proc/self/ns/pid", posix.O_RDONLY | posix.O_CLOEXEC)


def _prepare(message):
    import gc
    import os

    belljar.streams.renew_for_pipes()
    variables = dict(os.environ)
    os.environ.setdefault("MPLBACKEND", "Agg")
    imported, failed = [], {}
    for name in message.get("modules") or ():
        try:
            __import__(name)
            imported.append(name)
        except BaseException as error:
            failed[name] = "%s: %s" % (type(error).__name__, error)
    belljar.environment.replace(variables)  # whatever modules have done to them
    for name in _OWN:
        try:
            __import__(name)
        except Exception:  # a small interpreter without it: the runner says so when it needs it
            pass
    for name in _MODULES:
        getattr(belljar, name)
    if "numpy" in sys.modules:
        belljar.tables
    belljar.runner.prepare()
    belljar.reseed.prepare()
    belljar.program.prepare()
    _rehearse()
    belljar.ending.begin()
    gc.collect()
    gc.disable()
    gc.freeze()
    belljar.program.renew()
    version = sys.version.split()[0]
    return {"event": "ready", "language": "python", "version": version, "imported": imported, "failed": failed}


def _asked():
    """The one message that Python reads itself."""
    length = int.from_bytes(_exactly(4), "little")
    return belljar.channel.loads(_exactly(length))


def _exactly(length):
    data = b""
    while len(data) < length:
        part = read(CHANNEL, length - len(data))
        if not part:  # the engine has gone
            _exit(0)
        data += part
    return data


def _tell(message):
    data = belljar.channel.frame(message)
    try:
        while data:
            data = data[write(CHANNEL, data) :]
    except OSError:
        _exit(0)


def _rehearse():
    """Do once what every fork will do, so that what the interpreter and the linker prepare for it is shared."""
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
    limits = {"value_bytes": 1 << 20, "values": 100_000, "depth": 32}
    message = belljar.channel.loads(belljar.channel.frame({"op": "execute", "id": number})[4:])
    cell = belljar.cells.Cell("rehearsal = 1\nrehearsal + %d" % number, "<rehearsal>", 0)
    cell.compile("rehearsal = 1\nrehearsal + %d" % number)
    names = {}
    eval(cell.body, names)
    belljar.encode.value([eval(cell.tail, names), message, "", 0.5], limits)
