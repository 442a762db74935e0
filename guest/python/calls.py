"""System calls that the engine worked out, performed through ctypes. See CALL in PROTOCOL.md."""

import ctypes
from binascii import a2b_base64

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_long = ctypes.c_long
_EINVAL = 22


class Failed(Exception):
    def __init__(self, step, errno):
        super().__init__(step, errno)
        self.step = step
        self.errno = errno


def perform(calls, descriptors):
    """Perform these in order. Returns the results, and those that are to be sent; raises Failed for the first that fails."""
    results = []
    sent = []
    for call in calls:
        step = call.get("step", "call") if type(call) is dict else "call"
        memory = []  # what the arguments point to
        try:
            args = [_argument(arg, descriptors, results, memory) for arg in call.get("args", ())]
            number = _long(call["nr"])
            if len(args) > 6:  # no system call takes more
                raise ValueError(args)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
            raise Failed(step, _EINVAL) from None
        ctypes.set_errno(0)
        result = _syscall(number, *args)
        errno = ctypes.get_errno() if result == -1 else 0
        failed = result == -1 or ("expect" in call and call["expect"] is not None and result != call["expect"])
        if not failed and call.get("out"):
            index, wanted = call["out"]
            wanted = a2b_base64(wanted)
            failed = ctypes.string_at(args[index].value, len(wanted)) != wanted
        if failed and not call.get("optional"):
            raise Failed(step, errno)
        results.append(result)
        if call.get("send") and not failed:
            sent.append(result)
    return results, sent


def _argument(arg, descriptors, results, memory):
    if type(arg) is int:
        return _long(arg if arg < 1 << 63 else arg - (1 << 64))
    if "fd" in arg:
        return _long(descriptors[_index(arg["fd"])])
    if "result" in arg:
        return _long(results[_index(arg["result"])])
    buffer = ctypes.create_string_buffer(a2b_base64(arg["bytes"]) or b"\0")
    memory.append(buffer)
    address = ctypes.addressof(buffer)
    for offset, octets in arg.get("pointers") or ():
        inner = ctypes.create_string_buffer(a2b_base64(octets))
        memory.append(inner)
        if not 0 <= offset <= len(buffer) - 9:
            raise ValueError(offset)
        ctypes.c_void_p.from_address(address + offset).value = ctypes.addressof(inner)
    return _long(address)


def _index(number):
    if type(number) is not int or number < 0:
        raise IndexError(number)
    return number


def setns(descriptor, kind):
    """0, or the error's number."""
    ctypes.set_errno(0)
    if _libc_setns(descriptor, kind) == -1:
        return ctypes.get_errno()
    return 0


_libc_setns = ctypes.CDLL(None, use_errno=True).setns


def close_above(last):
    """Close every descriptor above this one."""
    import posix

    CLOSE_RANGE = 436  # the same on every architecture
    if _syscall(_long(CLOSE_RANGE), _long(last + 1), _long(0x7FFFFFFF), _long(0)) == 0:
        return
    try:
        open_ones = [int(name) for name in posix.listdir("/proc/self/fd")]
    except OSError:
        open_ones = range(last + 1, min(posix.sysconf("SC_OPEN_MAX"), 1 << 16))
    for descriptor in open_ones:
        if descriptor > last:
            try:
                posix.close(descriptor)
            except OSError:
                pass
