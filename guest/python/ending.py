"""The end of a guest's interpreter: what CPython does that code can notice, without the time that the rest takes.

Threads are joined, exit handlers run, and what the guest's modules hold is let go of, so that a file which was
never closed is written and `__del__` is called. The interpreter itself is not taken down: the process ends.
"""

import sys
from _io import BufferedRandom, BufferedWriter, TextIOWrapper

_BUFFERED = (TextIOWrapper, BufferedWriter, BufferedRandom)
_known = frozenset()  # the modules that were there before the guest's code


def begin():
    """Remember what is not the guest's."""
    global _known
    _known = frozenset(sys.modules)


def finish(join=True):
    """Returns whether the output could be written out."""
    threading = sys.modules.get("threading")
    if join and threading is not None:
        try:
            threading._shutdown()
        except BaseException as error:
            _ignored(error)
    atexit = sys.modules.get("atexit")
    if atexit is None:
        import atexit
    try:
        atexit._run_exitfuncs()
    except BaseException:  # it has said so itself; before 3.10 it also raises the last one
        pass
    written = _flush()
    _let_go()
    return _flush() and written


def rehearse(gc):
    """What of the end can be done at any time."""
    _flush()
    _write_files(gc)
    _collect(gc)


def _let_go():
    import gc

    for name in ("last_type", "last_value", "last_traceback", "last_exc", "ps1", "ps2", "argv"):
        if hasattr(sys, name):  # an exception holds frames, and they hold what they had open
            setattr(sys, name, None)
    _write_files(gc)
    # First without their names, so that a `__del__` finds its globals; what is then still there loses them.
    names = [name for name in sys.modules if name == "__main__" or name not in _known]
    modules = [_weak(sys.modules.pop(name)) for name in reversed(names) if _is_guests(name)]
    _collect(gc)
    for reference in modules:
        module = reference()
        if module is not None:
            _clear(module)
        module = None
    _collect(gc)


def _write_files(gc):
    # Among objects that hold each other the collector might close a file before what is buffered for it is written.
    for thing in gc.get_objects():
        if type(thing) in _BUFFERED:
            try:
                thing.flush()
            except BaseException:
                pass


def _weak(module):
    from _weakref import ref

    return ref(module)


def _collect(gc):
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
    module = sys.modules[name]
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
