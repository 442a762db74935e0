"""The control channel: frames of JSON on a stream socket, shared by all threads of a session.

Whoever waits for an answer reads, and hands each message to the one who waits for it; one thread reads at a time, and
when it has what it wanted it wakes the others so that one of them goes on. So there is no reader thread, and a session
without threads costs none. What is read of a half frame is kept, so an interrupt never loses a byte.

Must never raise for something that the guest's code did to the interpreter, and never answer half a frame.
"""

from _json import encode_basestring, make_encoder, make_scanner
from _thread import allocate_lock
from posix import _exit, read, write
from select import POLLIN, poll

CHUNK = 1 << 20


class _Scanning:
    """What the C scanner asks for; the json module itself would import `re`."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def _no_default(value):
    raise TypeError("%r is not JSON" % type(value))


_scan = make_scanner(_Scanning())
_encode = make_encoder(None, _no_default, encode_basestring, None, ":", ",", False, False, False)


def loads(data):
    """The object in these bytes of JSON."""
    try:
        value, end = _scan(str(data, "utf-8").strip(), 0)
    except (StopIteration, SystemError):  # the second where C code could not import json for its own error
        raise ValueError("not JSON") from None
    return value


def dumps(value):
    """This plain object as bytes of JSON. Half characters (lone surrogates), which UTF-8 cannot hold, become `?`."""
    return "".join(_encode(value, 0)).encode("utf-8", "replace")


def frame(message):
    data = dumps(message)
    return len(data).to_bytes(4, "little") + data


class Slot:
    """Somebody who waits for one message."""

    __slots__ = ("done", "answer", "lock")

    def __init__(self):
        self.done = False
        self.answer = None
        self.lock = allocate_lock()
        self.lock.acquire()

    def give(self, answer):
        self.answer = answer
        self.done = True
        self.wake()

    def wake(self):
        """Let the waiter look again: it has its answer, or nobody reads for it any more."""
        try:
            self.lock.release()
        except RuntimeError:  # it is awake already
            pass


class Channel:
    def __init__(self, descriptor):
        self.descriptor = descriptor
        self._received = bytearray()
        self._inbox = []
        self._next = None  # the slot of whoever waits for an operation
        self._calls = {}
        self._reading = allocate_lock()
        self._writing = allocate_lock()
        self._poll = poll()
        self._poll.register(descriptor, POLLIN)

    def send(self, message):
        self.write(frame(message))

    def write(self, data):
        interrupts = belljar.interrupts
        interrupts.hold()
        try:
            with self._writing:
                view = memoryview(data)
                while view:
                    view = view[write(self.descriptor, view) :]
        except OSError:
            # Nobody listens any more, or the guest closed the descriptor: either way there is nothing left to do.
            _exit(0)
        finally:
            interrupts.release()

    def next(self):
        """The next operation that is no answer to a call."""
        while not self._inbox:
            slot = self._next = Slot()
            if not self._inbox:
                self.wait(slot)
        return self._inbox.pop(0)

    def expect(self, call, slot):
        """From now on the answer to this call goes to the slot."""
        self._calls[call] = slot

    def forget(self, call):
        self._calls.pop(call, None)

    def wait(self, slot):
        """Until the slot has its answer."""
        interrupts = belljar.interrupts
        interrupts.hold()
        try:
            while not slot.done:
                if self._reading.acquire(False):
                    try:
                        while not slot.done:
                            interrupts.during(self._poll.poll)
                            self._receive()
                    finally:
                        self._stop_reading()
                else:
                    interrupts.during(slot.lock.acquire)
        finally:
            interrupts.release()

    def readable(self):
        """Called by an event loop when there is something to read."""
        interrupts = belljar.interrupts
        interrupts.hold()
        try:
            if self._reading.acquire(False):
                try:
                    if self._poll.poll(0):
                        self._receive()
                finally:
                    self._stop_reading()
        finally:
            interrupts.release()

    def _stop_reading(self):
        self._reading.release()
        for slot in [self._next, *self._calls.values()]:
            if slot is not None:
                slot.wake()

    def _receive(self):
        try:
            data = read(self.descriptor, CHUNK)
        except OSError:
            data = b""
        if not data:
            belljar.runner.closed()
        self.received(data)

    def received(self, data):
        """Take what was read, a part of a frame or several."""
        received = self._received
        received += data
        while len(received) >= 4:
            end = 4 + int.from_bytes(received[:4], "little")
            if len(received) < end:
                return
            try:
                message = loads(received[4:end])
                operation = message["op"]
            except (ValueError, KeyError, TypeError) as error:
                belljar.runner.closed("the engine sent what is no message: %s" % error)
            del received[:end]
            if operation == "tool_result" or operation == "tool_error":
                slot = self._calls.pop(message.get("call"), None)
                if slot is not None:  # else nobody waits for it any more
                    slot.give(message)
            else:
                self._inbox.append(message)
                if self._next is not None:
                    self._next.give(None)
