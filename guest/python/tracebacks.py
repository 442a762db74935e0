"""What the guest's code raised, in the words of Python, with the guest's own frames only.

Frames of the runner, of the standard library and of installed packages are left out: the line that matters to whoever
wrote the cell is the one they wrote.
"""

import os

MESSAGE = 64 << 10  # characters of a message, of a traceback, and frames of a traceback that are kept
TEXT = 256 << 10
FRAMES = 2000

_RUNNER = belljar.directory + "/"
STDLIB = os.__file__.rpartition("/")[0] + "/"


def own(traceback):
    """The traceback without the runner's frames at its start."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_RUNNER):
        traceback = traceback.tb_next
    return traceback


def report(error, cell):
    """The `error` of a `done`."""
    line, column = place(error, cell)
    kind = type_name(error)
    message = text_of(error)
    try:
        trace = _formatted(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # out of memory, or an exception made to spite whoever prints it
        trace = "%s: %s\n" % (kind, message)
    return {"type": kind, "message": message, "traceback": cut(trace, TEXT), "line": line, "column": column}


# What follows asks the types, never the object (as isinstance does): an exception may define __class__ and
# __getattribute__ as it likes.
_traceback = BaseException.__dict__["__traceback__"].__get__


def type_name(error):
    return type.__dict__["__name__"].__get__(type(error))


def text_of(error):
    """str(error), whatever the guest made of it."""
    try:
        if issubclass(type(error), SyntaxError) and isinstance(error.msg, str):
            return cut(error.msg, MESSAGE)
        return cut(str.__str__(str(error)), MESSAGE)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return "<the message of this %s cannot be shown>" % type_name(error)


def cut(text, limit):
    if len(text) <= limit:
        return text
    half = limit // 2
    return "%s\n... %d characters left out ...\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


def place(error, cell):
    """Line and column in the cell's own code, from 1, or None."""
    if issubclass(type(error), SyntaxError):
        try:
            if error.filename == cell:
                return _number(error.lineno), _number(error.offset)
        except Exception:
            pass
    found = None
    traceback = _traceback(error)
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == cell:
            found = traceback
        traceback = traceback.tb_next
    if found is None:
        return None, None
    return found.tb_lineno, _column(found)


def _number(value):
    return value if type(value) is int and value > 0 else None


def _column(traceback):
    positions = getattr(traceback.tb_frame.f_code, "co_positions", None)
    if positions is None:  # before 3.11
        return None
    try:
        import linecache
        from itertools import islice

        line, _, offset, _ = next(islice(positions(), traceback.tb_lasti // 2, None), (None,) * 4)
        if offset is None or line != traceback.tb_lineno:
            return None
        text = linecache.getline(traceback.tb_frame.f_code.co_filename, line)
    except Exception:  # the guest broke imports, or the standard library
        return None
    return len(text.encode("utf-8", "surrogatepass")[:offset].decode("utf-8", "replace")) + 1


def _formatted(error):
    import traceback

    tree = traceback.TracebackException(type(error), error, _traceback(error), limit=FRAMES)
    seen = set()
    todo = [tree]
    while todo:
        part = todo.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        part.stack[:] = [frame for frame in part.stack if is_guests(frame.filename)]
        todo += [part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ())]
    if not tree.stack and len(seen) == 1:
        return "".join(tree.format_exception_only())
    return "".join(tree.format())


def is_guests(filename):
    return not (
        filename.startswith((_RUNNER, STDLIB, "<frozen "))
        or "/site-packages/" in filename
        or "/dist-packages/" in filename
    )
