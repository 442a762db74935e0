"""Letting a program's end be told before its memory is taken down.

The kernel tells a process's parent of its end only when its memory has been taken down, and for a fork of a warm
interpreter that takes ten times as long as the rest of its end. Unless somebody else has the same memory: then the end is
told at once. So beside a program sleeps a process that shares its memory and does nothing. It stands behind the
same walls, is no child of the program's, and is ended with everything else when the program has ended.
"""

import ctypes

_CLONE_VM = 0x100
_CLONE_FILES = 0x400  # what we close it has not either
_CLONE_PARENT = 0x8000
_STACK = 16 << 10

_libc = ctypes.CDLL(None)
_libc.clone.restype = ctypes.c_int
_pause = ctypes.cast(_libc.pause, ctypes.c_void_p)
_stack = ctypes.create_string_buffer(_STACK + 16)
_top = ctypes.c_void_p((ctypes.addressof(_stack) + _STACK) & ~15)


def hold():
    """Its pid; 0 where there is none, which only makes the end slower."""
    return max(_libc.clone(_pause, _top, _CLONE_VM | _CLONE_FILES | _CLONE_PARENT, None), 0)
