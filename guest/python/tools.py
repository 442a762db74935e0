"""Tools: functions of the host that a cell calls like its own.

    total = add(2, 3)                                   # waits, and gives 5
    total = await add(2, 3)                             # in async code
    a, b = await asyncio.gather(add(1, 2), add(3, 4))   # both at once

A call waits for its answer and gives it, in any thread. Called directly by async code (an `async def`, or a cell that
awaits) it gives an awaitable instead, and the host is at work from that moment on; using that awaitable as if it
were the answer is a TypeError that says so. A plain function waits even if an event loop runs around it, since it
has no way to await.

What the tool raises is raised here: as the builtin exception of that name, else as a ToolError of that name.
"""

import sys
from posix import getpid

_COROUTINE = 0x80 | 0x200  # also an async generator
_INNER = ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>")


class ToolError(Exception):
    """What a tool raised on the host, if Python has no builtin exception of its name."""


ToolError.__module__ = "builtins"
_kinds = {}


def exception(kind, message):
    """An exception of this type by name."""
    known = belljar.builtins.get(kind)
    if isinstance(known, type) and issubclass(known, Exception):
        if not issubclass(known, (StopIteration, StopAsyncIteration)):  # these mean something else to a generator
            try:
                return known(message)
            except TypeError:  # one that takes more than a message
                pass
    found = _kinds.get(kind)
    if found is None:
        if kind == "ToolError":
            found = ToolError
        else:
            name = kind if isinstance(kind, str) and kind.isidentifier() else "ToolError"
            found = type(name, (ToolError,), {"__module__": "builtins"})
        _kinds[kind] = found
    return found(message)


class Tools:
    """The calls of a session."""

    _only = None

    @classmethod
    def of(cls, session):
        if cls._only is None or cls._only._session is not session:
            cls._only = cls(session)
        return cls._only

    def __init__(self, session):
        self._session = session
        self._channel = session.channel
        self._count = 0
        self._process = getpid()

    def callable(self, name):
        def tool(*args, **kwargs):
            loop = _event_loop(sys._getframe(1))
            slot = belljar.channel.Slot() if loop is None else _Awaited(self, name, loop)
            call = self._send(name, args, kwargs, slot)
            if loop is not None:
                return slot
            try:
                self._channel.wait(slot)
            finally:
                self._channel.forget(call)
            return answer(slot.answer)

        tool.__name__ = tool.__qualname__ = name
        tool.__module__ = "__main__"
        tool.__doc__ = "The host's tool %s." % name
        return tool

    def _send(self, name, args, kwargs, slot):
        if getpid() != self._process:
            raise RuntimeError("tool %r can be called only by the process that runs the cells, not by a fork of it" % name)
        limits = self._session.limits
        plain_args = [self._argument(name, number + 1, thing, limits) for number, thing in enumerate(args)]
        plain_kwargs = {key: self._argument(name, repr(key), thing, limits) for key, thing in kwargs.items()}
        if len(plain_args) + len(plain_kwargs) > 1:
            self._together(name, [plain_args, plain_kwargs], limits)
        # One step for all threads: a number is never used twice, and the engine hears them in their order.
        with _counting:
            self._count += 1
            call = self._count
            self._channel.expect(call, slot)
            self._channel.send(
                {
                    "event": "tool_call",
                    "id": self._session.cell,
                    "call": call,
                    "name": name,
                    "args": plain_args,
                    "kwargs": plain_kwargs,
                }
            )
        return call

    def _together(self, name, plain, limits):
        """All arguments of a call are one message, which has the limits of one value."""
        size, values = len(belljar.channel.dumps(plain)), belljar.encode.count(plain)
        if size > limits["value_bytes"] or values > limits["values"]:
            most = (name, limits["value_bytes"], limits["values"])
            raise TypeError("the arguments of tool %r cannot be sent to the host: together they are larger than %d bytes, or have more than %d values" % most)

    def _argument(self, name, which, thing, limits):
        try:
            return belljar.encode.data(thing, limits)
        except belljar.encode.NotData as error:
            raise TypeError("argument %s of tool %r cannot be sent to the host: %s" % (which, name, error)) from None


_counting = belljar.channel.allocate_lock()


def answer(message):
    if message["op"] == "tool_error":
        raise exception(message.get("type") or "ToolError", message.get("message") or "")
    return belljar.decode.value(message.get("value"))


def _event_loop(frame):
    """The event loop that runs in this thread, if the caller is code that can await."""
    events = sys.modules.get("asyncio.events")
    loop = events._get_running_loop() if events is not None else None
    if loop is None:
        return None
    # Before 3.12 a comprehension has a frame of its own.
    while frame is not None and frame.f_code.co_name in _INNER and not frame.f_code.co_flags & _COROUTINE:
        frame = frame.f_back
    if frame is None:
        return None
    code = frame.f_code
    # The part of a cell before the expression that awaits is code of its own.
    return loop if code.co_flags & _COROUTINE or code.co_name == "<module>" and code.co_filename.startswith("<cell ") else None


class _Awaited:
    """A call that async code made. It is a slot of the channel and an awaitable of asyncio."""

    def __init__(self, tools, name, loop):
        self.done = False
        self._name = name
        self._channel = tools._channel
        self._loop = loop
        self._future = loop.create_future()
        # So that an answer which nobody awaits is no complaint at exit.
        self._future.add_done_callback(lambda future: future.cancelled() or future.exception())
        _watch(self._channel, loop)

    def give(self, message):
        self.done = True
        try:
            self._loop.call_soon_threadsafe(self._finish, message)
        except RuntimeError:  # the loop has been closed
            pass

    def wake(self):
        """Nothing to do: its loop watches the channel itself."""

    def _finish(self, message):
        _unwatch(self._channel, self._loop)
        if self._future.done():
            return
        try:
            self._future.set_result(answer(message))
        except Exception as error:
            self._future.set_exception(error)

    def __await__(self):
        return (yield from self._future.__await__())

    def __repr__(self):
        return "<call of tool %r, not awaited>" % self._name

    def __getattr__(self, attribute):
        # asyncio asks for some of its own, and so do copy and inspect.
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        raise self._misuse()

    def _misuse(self):
        return TypeError("the tool %r was called by async code, so its answer must be awaited: await %s(...)" % ((self._name,) * 2))


def _refuse(self, *args):
    raise self._misuse()


for _operation in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow and rand or ror xor rxor "
    "neg pos abs invert int float index len iter next getitem setitem contains bool lt le gt ge str format call"
).split():
    setattr(_Awaited, "__%s__" % _operation, _refuse)

_watching = {}  # how many calls each loop waits for


def _watch(channel, loop):
    count = _watching.get(loop, 0)
    if not count:
        loop.add_reader(channel.descriptor, channel.readable)
    _watching[loop] = count + 1


def _unwatch(channel, loop):
    count = _watching.pop(loop, 0) - 1
    if count > 0:
        _watching[loop] = count
    else:
        loop.remove_reader(channel.descriptor)
