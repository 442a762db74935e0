"""SIGINT: an interrupt of the running cell, and of nothing else.

While a cell runs it raises KeyboardInterrupt, as Python's own handler would. Between cells it does nothing. While the
runner itself is at work in the middle of a cell (it writes a frame, say) it waits until that is done.
"""

import _signal
from _thread import get_ident

_main = get_ident()
_running = False  # a cell is running
_cell = None  # the code of the runner's function below which the cell's own code runs
_held = 0  # how many parts of the runner must not be interrupted
_late = False  # one arrived meanwhile
cancel = None  # set while an event loop runs: a function that says whether it has dealt with the interrupt


def install():
    global _main
    _main = get_ident()
    _signal.signal(_signal.SIGINT, _interrupted)


def start(code):
    """A cell begins, below a function of this code; only there interrupts are raised.

    The handler is installed anew each time: the last cell may have put its own there."""
    global _running, _late, _cell
    _cell = code
    _late = False
    install()
    _running = True


def check():
    """Raise the interrupt that arrived before the cell began."""
    global _late
    if _late:
        _late = False
        raise KeyboardInterrupt


def stop():
    global _running
    _running = False


def hold():
    """Until `release`, an interrupt waits. Other threads are never interrupted, so for them this does nothing."""
    global _held
    if get_ident() == _main:
        _held += 1


def release():
    global _held, _late
    if get_ident() == _main:
        _held -= 1
        if _late and not _held:
            _late = False
            if _running:
                raise KeyboardInterrupt


def during(wait):
    """Call this, which takes its time, and let an interrupt end it although interrupts are held."""
    global _held, _late
    if get_ident() != _main:
        return wait()
    held, _held = _held, 0
    try:
        if _late and _running:
            _late = False
            raise KeyboardInterrupt
        return wait()
    finally:
        _held = held


def _interrupted(number, frame):
    global _late
    if not _running:
        return
    if _held or not _within_cell(frame):
        _late = True
    elif cancel is None or not cancel():
        raise KeyboardInterrupt


def _within_cell(frame):
    while frame is not None:
        if frame.f_code is _cell:
            return True
        frame = frame.f_back
    return False
