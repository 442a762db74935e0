"""The end of a guest's interpreter: what CPython does that code can notice, without the time that the rest takes.

Threads are joined, exit handlers run, and what the guest's modules hold is let go of, so that a file which was
never closed is written and `__del__` is called. The interpreter itself is not taken down: the process ends.
"""

import atexit
import gc
import sys
from _io import BufferedRandom, BufferedWriter, TextIOWrapper
from _weakref import ref

_modules = sys.modules  # the interpreter's own table, whatever the guest puts in its place
_BUFFERED = (TextIOWrapper, BufferedWriter, BufferedRandom)
_known = frozenset()  # the modules that were there before the guest's code
_last = None  # the youngest of them


def begin():
    """Remember what is not the guest's. In a fork the zygote has done that."""
    global _known, _last
    if next(reversed(_modules)) != _last:
        _known = frozenset(_modules)
        _last = next(reversed(_modules))


def _others():
    """The names of modules that came after that, the youngest first.

    What is in the table longest comes first there, so not all of it has to be looked at, and copied."""
    names = []
    for name in reversed(_modules):
        if name == _last:
            break
        if name not in _known and name != "__main__":
            names.append(name)
    if "__main__" in _modules:
        names.append("__main__")
    return names


def finish(join=True):
    """Returns whether the output could be written out."""
    threading = _modules.get("threading")
    if join and threading is not None:
        try:
            threading._shutdown()
        except BaseException as error:
            _ignored(error)
    try:
        atexit._run_exitfuncs()
    except BaseException:  # it has said so itself; before 3.10 it also raises the last one
        pass
    written = _flush()
    _let_go()
    return _flush() and written


def rehearse():
    """What of the end can be done at any time."""
    _flush()
    _write_files()
    _collect()


def _let_go():
    for name in ("last_type", "last_value", "last_traceback", "last_exc", "ps1", "ps2", "argv"):
        if hasattr(sys, name):  # an exception holds frames, and they hold what they had open
            setattr(sys, name, None)
    _write_files()
    # First without their names, so that a `__del__` finds its globals; what is then still there loses them.
    modules = [ref(_modules.pop(name)) for name in _others() if _is_guests(name)]
    _collect()
    for reference in modules:
        module = reference()
        if module is not None:
            _clear(module)
        module = None
    _collect()


def _write_files():
    # Among objects that hold each other the collector might close a file before what is buffered for it is written.
    for thing in gc.get_objects():
        if type(thing) in _BUFFERED:
            try:
                thing.flush()
            except BaseException:
                pass


def _collect():
    try:
        gc.collect()
    except BaseException:
        pass


def _clear(module):
    """Let a module's names go: first those with an underscore, then the rest, as CPython does."""
    names = vars(module)
    for private in (True, False):
        for name in list(names):
            if isinstance(name, str) and name != "__builtins__":
                if (name.startswith("_") and not name.startswith("__")) == private:
                    names[name] = None


def _is_guests(name):
    """Whether its objects may be the guest's: not those of the interpreter's own modules, and of what was installed."""
    module = _modules[name]
    if type(module) is not type(sys):
        return False
    path = vars(module).get("__file__")
    return name == "__main__" or isinstance(path, str) and belljar.tracebacks.is_guests(path)


def _flush():
    written = True
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        if stream is None or getattr(stream, "closed", False):
            continue
        try:
            stream.flush()
        except BaseException as error:
            if name == "stdout":
                _ignored(error, stream)
                written = False
    return written


def _ignored(error, stream=None):
    """Say so in the words of the interpreter."""
    try:
        where = "Exception ignored in: %r\n" % (stream,) if stream is not None else ""
        sys.stderr.write(where)
        sys.__excepthook__(type(error), error, belljar.tracebacks.own(error.__traceback__))
    except BaseException:
        pass
