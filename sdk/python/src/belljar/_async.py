"""A client for those who await their answers, on whatever event loop runs."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional

from . import _http
from ._client import Minding, accepted, message_of
from ._connection import AsyncConnection, Idle, awaited
from ._errors import EngineUnavailable
from ._wire import answer, dumps

if TYPE_CHECKING:
    from ._client import Client


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
            kind, payload = await self._connection.do_async(_http.message(self._connection.buffer))
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
    """The connections of a client for those who await their answers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.endpoint = client.endpoint
        self.idle: Idle[AsyncConnection] = Idle()

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
            forgotten = self._client.next_forgotten()
            try:
                await self._request("DELETE", forgotten, None, "", _http.LARGEST_ANSWER)
            except EngineUnavailable:
                pass  # it is over with its engine
        return await self._request(method, path, body, headers, largest)

    async def _request(
        self, method: str, path: str, body: Optional[bytes], headers: str, largest: int
    ) -> _http.Response:
        endpoint = self.endpoint
        connection = self.idle.take(time.monotonic(), endpoint.is_embedded) or await self._open()
        with Minding(self._client, connection, largest):
            data = endpoint.request(method, path, body, headers)
            response = await connection.do_async(_http.exchange(data, connection.buffer, largest))
        self.idle.give(connection, response, time.monotonic())
        return response

    async def call(self, method: str, path: str, body: Optional[object] = None) -> Any:
        return answer(await self.request(method, path, None if body is None else dumps(body)))

    async def websocket(self, path: str) -> AsyncWebSocket:
        connection = await self._open()
        with Minding(self._client, connection):
            accepted(await connection.do_async(self.endpoint.handshake(path, connection.buffer)))
        return AsyncWebSocket(connection)

    async def _open(self) -> AsyncConnection:
        endpoint = self.endpoint
        # To start an engine or to reach a service takes a moment, which others need not wait for.
        opened = endpoint.open() if endpoint.is_at_hand() else await in_thread(endpoint.open)
        connection = awaited(opened)
        self._client.watch(connection)
        return connection
