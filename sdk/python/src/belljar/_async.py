"""Connections for those who await their answers. One set for each event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional

from . import _http
from ._client import Connection, message_of
from ._errors import EngineUnavailable
from ._wire import Embedded, Remote, answer, dumps

if TYPE_CHECKING:
    from ._client import Client

_MOST_IDLE = 16
_IDLE = 10.0
_LIMIT = 1 << 20


class AsyncConnection(Connection):
    """One connection that is awaited: a plain socket, which belongs to no event loop."""

    async def send_async(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def receive_async(self, wanted: int) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self.socket, wanted)

    async def read_async(self, reading: Any) -> Any:
        """Has a reader of `_http` read to its end."""
        try:
            wanted = next(reading)
            while True:
                wanted = reading.send(await self.receive_async(min(max(wanted, 4096), 1 << 20)))
        except StopIteration as end:
            return end.value

    async def exchange_async(self, data: bytes, largest: int) -> _http.Response:
        """Sends a request and reads the answer."""
        refused: Optional[OSError] = None
        try:
            await self.send_async(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            # Whoever takes no more of it may have said why.
            refused = error
        try:
            came = await self.receive_async(65536)
            if refused is None:
                whole = _http.whole_response(came)
                if whole is not None:
                    return whole
            self.buffer += came
            response: _http.Response = await self.read_async(_http.response(self.buffer, largest))
        except (OSError, _http.ProtocolError):
            if refused is not None:
                raise refused from None
            raise
        return response if refused is None else response._replace(keep=False)


class AsyncTlsConnection(AsyncConnection):
    """The same with TLS, which is the event loop's business."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(writer.get_extra_info("socket"))
        self._reader = reader
        self._writer = writer

    def is_open(self) -> bool:
        return not self._reader.at_eof()

    async def send_async(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive_async(self, wanted: int) -> bytes:
        return await self._reader.read(wanted)

    def hang_up(self) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._writer.close()
        except RuntimeError:
            pass  # its event loop is closed, and the socket with it


class AsyncWebSocket:
    """A connection that has become a WebSocket. One task reads; any may send."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._sending = asyncio.Lock()

    async def send(self, message: Mapping[str, Any]) -> None:
        await self._send(_http.frame(_http.TEXT, dumps(message)))

    async def _send(self, framed: bytes) -> None:
        async with self._sending:
            try:
                await self._connection.send_async(framed)
            except BaseException:
                # Whoever was cancelled has sent half a message, which nobody could understand.
                self._connection.hang_up()
                raise

    async def receive(self) -> Dict[str, Any]:
        while True:
            kind, payload = await self._connection.read_async(_http.message(self._connection.buffer))
            if kind == _http.TEXT:
                return message_of(payload)
            if kind == _http.PING:
                await self._send(_http.frame(_http.PONG, payload))
            elif kind == _http.CLOSE:
                raise _http.Closed("the other side hung up")

    def hang_up(self) -> None:
        self._connection.hang_up()

    def close(self) -> None:
        self._connection.hang_up()
        self._connection.close()


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function that may take its time gives, on a thread of its own: nobody else waits for that."""
    import contextvars

    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def tell(value: Any, error: Optional[BaseException]) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)

    def work() -> None:
        value, raised = None, None
        try:
            value = function(*arguments)
        except BaseException as error:
            # A future does not take this one: it would end whoever awaits.
            raised = RuntimeError("StopIteration") if isinstance(error, StopIteration) else error
        try:
            loop.call_soon_threadsafe(tell, value, raised)
        except RuntimeError:
            pass  # the loop is closed, and nobody waits any more

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="belljar-call", daemon=True).start()
    return await done


class AsyncConnections:
    """The connections of one event loop to an engine or a service."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.endpoint = endpoint = client.endpoint
        # What waits for its next use: the client's own, unless connections belong to this loop.
        self._idle: List[AsyncConnection] = client.idle_async
        if isinstance(endpoint, Remote) and endpoint.is_tls:
            self._idle = []

    async def request(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        headers: str = "",
        largest: int = _http.LARGEST_ANSWER,
    ) -> _http.Response:
        """One request and its answer. Whoever is cancelled hangs up, which ends what was asked for."""
        while self._client.forgotten:
            try:
                forgotten = self._client.forgotten.popleft()
                await self._request("DELETE", f"/v1/sessions/{forgotten}", None, "", _http.LARGEST_ANSWER)
            except (IndexError, EngineUnavailable):
                pass  # another thread was faster, or it is over with its engine
        return await self._request(method, path, body, headers, largest)

    async def _request(
        self, method: str, path: str, body: Optional[bytes], headers: str, largest: int
    ) -> _http.Response:
        connection = self._take() or await self._open()
        endpoint = self.endpoint
        data = _http.request(method, endpoint.prefix + path, endpoint.host, body, endpoint.headers + headers)
        try:
            response = await connection.exchange_async(data, largest)
        except _http.TooLarge as error:
            connection.close()
            if largest < _http.LARGEST_ANSWER:
                raise  # whoever named a bound is told
            raise self.lost(error) from error
        except (OSError, _http.ProtocolError) as error:
            connection.close()
            raise self.lost(error) from error
        except BaseException:
            connection.hang_up()
            connection.close()
            raise
        if response.keep and len(self._idle) < _MOST_IDLE:
            connection.used = time.monotonic()
            self._idle.append(connection)
        else:
            connection.close()
        return response

    async def call(self, method: str, path: str, body: Optional[object] = None) -> Any:
        return answer(await self.request(method, path, None if body is None else dumps(body)))

    async def websocket(self, path: str) -> AsyncWebSocket:
        connection = await self._open()
        endpoint = self.endpoint
        try:
            await connection.send_async(_http.upgrade(endpoint.prefix + path, endpoint.host, endpoint.headers))
            response: _http.Response = await connection.read_async(_http.response(connection.buffer))
            if response.status != 101:
                answer(response)
                raise _http.ProtocolError(f"the answer was {response.status}")
        except (OSError, _http.ProtocolError) as error:
            connection.close()
            raise self.lost(error) from error
        except BaseException:
            connection.close()
            raise
        return AsyncWebSocket(connection)

    def lost(self, error: BaseException) -> EngineUnavailable:
        return EngineUnavailable(
            f"{self.endpoint.describe()} is gone: {error}", hint="what it was doing has ended with it"
        )

    def _take(self) -> Optional[AsyncConnection]:
        now = time.monotonic()
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if (self.endpoint.is_embedded or now - connection.used < _IDLE) and connection.is_open():
                return connection
            connection.close()
        return None

    async def _open(self) -> AsyncConnection:
        connection = await self._connect()
        self._client.watch(connection)
        return connection

    async def _connect(self) -> AsyncConnection:
        endpoint = self.endpoint
        if isinstance(endpoint, Remote) and endpoint.is_tls:
            import ssl

            try:
                context = ssl.create_default_context()
                streams = await asyncio.open_connection(endpoint.name, endpoint.port, ssl=context, limit=_LIMIT)
            except OSError as error:
                raise endpoint.unreachable(error) from error
            return AsyncTlsConnection(*streams)
        if isinstance(endpoint, Embedded) and endpoint.engine.pid is not None:
            socket = endpoint.open()
        else:
            # To start an engine or to reach a service takes a moment, which others need not wait for.
            socket = await in_thread(endpoint.open)
        socket.setblocking(False)
        return AsyncConnection(socket)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
