"""Standard input, output and error, as `python3 -u` makes them."""

import sys
from _io import BytesIO, FileIO, TextIOWrapper, open as _open

_encodings = None  # of the interpreter's own streams, in order
_streams = None  # the output streams that a cell starts with


def renew():
    """Make the three streams anew. A fork needs it: its descriptors are other files than its parent's were."""
    global _encodings, _streams
    if _encodings is None:
        first = sys.__stdin__, sys.__stdout__, sys.__stderr__
        _encodings = [(s.encoding, s.errors) if s else ("utf-8", "strict") for s in first]
    _streams = None
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            stream = _stream(number, name)
        except OSError:  # a closed descriptor: the interpreter itself puts None there
            stream = None
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)


def renew_for_pipes():
    """The same in a zygote, whose forks have pipes for descriptors: a stream keeps what it sees of its file when it is made."""
    from posix import close, dup, dup2, pipe

    kept = [dup(number) for number in range(3)]
    ends = pipe()
    for number in range(3):
        dup2(ends[number > 0], number)
    renew()
    for number, descriptor in enumerate(kept):
        dup2(descriptor, number)
    for descriptor in (*kept, *ends):
        close(descriptor)


def _stream(number, name):
    encoding, errors = _encodings[number]
    wanted = belljar.environment.variable("PYTHONIOENCODING")
    if wanted:
        encoding, _, wanted = wanted.partition(":")
        encoding = encoding or "utf-8"
        errors = "backslashreplace" if number == 2 else wanted or "strict"
    if number == 0:
        raw = _open(0, "rb", closefd=False)
        raw.raw.name = "<stdin>"
    else:
        raw = FileIO(number, "wb", closefd=False)
        raw.name = "<%s>" % name
    stream = TextIOWrapper(raw, encoding, errors, newline="\n", write_through=True)
    stream.mode = "w" if number else "r"
    return stream


def begin(text):
    """Before a cell: its input, and the output streams as they were, whatever the last cell did with them."""
    global _streams
    sys.stdin = TextIOWrapper(BytesIO((text or "").encode("utf-8", "surrogatepass")), "utf-8", newline="\n")
    if _streams is None:
        _streams = [sys.stdout, sys.stderr]
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = _streams[number - 1]
        if stream is None or stream.closed:
            try:
                encoding = ("utf-8", "strict" if number == 1 else "backslashreplace")
                raw = FileIO(number, "wb", closefd=False)
                stream = TextIOWrapper(raw, *encoding, newline="\n", write_through=True)
            except OSError:
                stream = None
            _streams[number - 1] = stream
        setattr(sys, name, stream)


def flush():
    """After a cell. Whatever the guest has put there, this must not fail."""
    for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None), *(_streams or ())):
        try:
            stream.flush()
        except BaseException:
            pass
