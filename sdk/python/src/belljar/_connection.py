"""Sockets: connections that wait and connections that are awaited. None of them belongs to an event loop."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any, Callable, Generator, List, Tuple, TypeVar

from . import _http

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Connection:
    """One connection that waits."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.buffer = bytearray()
        self.used = 0.0

    def send(self, data: bytes) -> bytes:
        self.socket.sendall(data)
        return b""

    def receive(self, wanted: int) -> bytes:
        return self.socket.recv(wanted)

    def do(self, steps: Generator[Any, bytes, T]) -> T:
        """Takes the steps that `_http` works out, to their end."""
        try:
            step = next(steps)
            while True:
                try:
                    came = self.send(step) if isinstance(step, bytes) else self.receive(_portion(step))
                except OSError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(came)
        except StopIteration as end:
            result: T = end.value
            return result

    def is_open(self) -> bool:
        """Whether the other side has not hung up while nobody looked. Nothing is sent twice, so this comes before."""
        try:
            self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def hang_up(self) -> None:
        """Lets the other side know, whoever reads here and whoever inherited the descriptor; it is closed later."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is over already

    def close(self) -> None:
        self.socket.close()


def _portion(wanted: int) -> int:
    """A large answer in large pieces, and never more at once than is sensible."""
    return min(max(wanted, 4096), 1 << 20)


class _Tls(Connection):
    """With TLS, which two threads may not use at the same time, although one waits and another answers."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        connected.setblocking(False)
        self._turn = threading.Lock()

    def attempt(self, work: Callable[[Any], Any], argument: object) -> Tuple[Any, bool, bool]:
        """What it gave, or whether it has to wait until something can be read, or written."""
        import ssl

        with self._turn:
            try:
                return work(argument), False, False
            except ssl.SSLWantReadError:
                return None, True, False
            except ssl.SSLWantWriteError:
                return None, False, True

    def is_open(self) -> bool:
        return True


class TlsConnection(_Tls):
    """One connection with TLS that waits."""

    def send(self, data: bytes) -> bytes:
        view = memoryview(data)
        while view:
            view = view[self._wait(self.socket.send, view) :]
        return b""

    def receive(self, wanted: int) -> bytes:
        received: bytes = self._wait(self.socket.recv, wanted)
        return received

    def _wait(self, work: Callable[[Any], Any], argument: object) -> Any:
        import select

        while True:
            result, reading, writing = self.attempt(work, argument)
            if not reading and not writing:
                return result
            select.select([self.socket] if reading else [], [self.socket] if writing else [], [])


class AsyncConnection(Connection):
    """One connection that is awaited."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        connected.setblocking(False)

    async def send_async(self, data: bytes) -> bytes:
        await _loop().sock_sendall(self.socket, data)
        return b""

    async def receive_async(self, wanted: int) -> bytes:
        return await _loop().sock_recv(self.socket, wanted)

    async def do_async(self, steps: Generator[Any, bytes, T]) -> T:
        """Takes the steps that `_http` works out, to their end."""
        try:
            step = next(steps)
            while True:
                try:
                    if isinstance(step, bytes):
                        came = await self.send_async(step)
                    else:
                        came = await self.receive_async(_portion(step))
                except OSError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(came)
        except StopIteration as end:
            result: T = end.value
            return result


class AsyncTlsConnection(AsyncConnection, _Tls):
    """One connection with TLS that is awaited."""

    async def send_async(self, data: bytes) -> bytes:
        view = memoryview(data)
        while view:
            view = view[await self._until(self.socket.send, view) :]
        return b""

    async def receive_async(self, wanted: int) -> bytes:
        received: bytes = await self._until(self.socket.recv, wanted)
        return received

    async def _until(self, work: Callable[[Any], Any], argument: object) -> Any:
        while True:
            result, reading, writing = self.attempt(work, argument)
            if not reading and not writing:
                return result
            await self._ready(work == self.socket.recv, writing)

    async def _ready(self, is_reader: bool, writing: bool) -> None:
        """Waits until it can go on. Of those who wait to read, only the reader has the loop's one place for that."""
        import asyncio

        if not writing and not is_reader:
            await asyncio.sleep(0.01)
            return
        loop = _loop()
        ready: asyncio.Future[None] = loop.create_future()
        add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
        add(self.socket, _set, ready)
        try:
            await ready
        finally:
            remove(self.socket)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _loop() -> asyncio.AbstractEventLoop:
    import asyncio

    return asyncio.get_running_loop()


def is_tls(connected: socket.socket) -> bool:
    return hasattr(connected, "cipher")


def waiting(connected: socket.socket) -> Connection:
    return TlsConnection(connected) if is_tls(connected) else Connection(connected)


def awaited(connected: socket.socket) -> AsyncConnection:
    return AsyncTlsConnection(connected) if is_tls(connected) else AsyncConnection(connected)


C = TypeVar("C", bound=Connection)

_MOST_IDLE = 16
_IDLE = 10.0  # a service closes what is silent for 15 seconds
_JUST_NOW = 0.05  # whoever hung up since then would have to be told anyway


class Idle(List[C]):
    """Connections that wait for their next use. Threads share it."""

    def take(self, now: float, is_embedded: bool) -> "C | None":
        """One that can be used, if there is one."""
        while self:
            try:
                connection = self.pop()
            except IndexError:  # another thread was faster
                break
            silent = now - connection.used
            if silent < _JUST_NOW or ((is_embedded or silent < _IDLE) and connection.is_open()):
                return connection
            connection.close()
        return None

    def give(self, connection: C, response: _http.Response, now: float) -> None:
        """Keeps it for the next one, if it can be used again."""
        connection.used = now
        if response.keep and len(self) < _MOST_IDLE:
            self.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        while self:
            self.pop().close()
