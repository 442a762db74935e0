"""The end of a guest's interpreter: what CPython does that code can notice, without the time that the rest takes.

Threads are joined, exit handlers run, and what the guest's modules hold is let go of, so that a file which was
never closed is written and `__del__` is called. The interpreter itself is not taken down: the process ends.
"""

import sys

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
    except BaseException as error:
        _ignored(error)
    written = _flush()
    _let_go()
    return _flush() and written


def _let_go():
    import gc

    main = sys.modules.get("__main__")
    mine = []
    for name in reversed([name for name in sys.modules if name not in _known]):
        module = sys.modules.get(name)
        if _is_guests(module):
            mine.append(module)
    for module in [main, *mine]:
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict):
            continue
        # First what begins with an underscore, then the rest, as CPython does; builtins stay to the end.
        for private in (True, False):
            for name in list(names):
                if isinstance(name, str) and name != "__builtins__":
                    if (name.startswith("_") and not name.startswith("__")) == private:
                        try:
                            names[name] = None
                        except BaseException:
                            pass
    try:
        gc.collect()
    except BaseException:
        pass


def _is_guests(module):
    """Whether its objects may hold something unwritten: not the interpreter's own modules, and not what was installed."""
    path = getattr(module, "__file__", None)
    if not isinstance(path, str):
        return False
    return "/site-packages/" not in path and "/dist-packages/" not in path and not path.startswith(belljar.tracebacks.STDLIB)


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
