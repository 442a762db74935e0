"""A client: connections to one engine or service, for those who wait for their answers."""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Mapping, Optional

from . import _http
from ._errors import EngineUnavailable
from ._wire import Embedded, Endpoint, Remote, answer, dumps, endpoint_of_environment, loads

if TYPE_CHECKING:
    import asyncio

    from ._async import AsyncConnection, AsyncConnections

_MOST_IDLE = 16
_IDLE = 10.0  # a service closes what is silent for 15 seconds
_JUST_NOW = 0.05  # whoever hung up since then would have to be told anyway


class Connection:
    """One connection that waits."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.buffer = bytearray()
        self.used = 0.0

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, wanted: int) -> bytes:
        return self.socket.recv(wanted)

    def read(self, reading: Any) -> Any:
        """Has a reader of `_http` read to its end."""
        try:
            wanted = next(reading)
            while True:
                # A large answer in large pieces, and never more at once than is sensible.
                wanted = reading.send(self.receive(min(max(wanted, 4096), 1 << 20)))
        except StopIteration as end:
            return end.value

    def is_open(self) -> bool:
        """Whether the other side has not hung up while nobody looked. Nothing is sent twice, so this comes before."""
        try:
            self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def exchange(self, data: bytes, largest: int = _http.LARGEST_ANSWER) -> _http.Response:
        """Sends a request and reads the answer."""
        refused: Optional[OSError] = None
        try:
            self.send(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            # Whoever takes no more of it may have said why.
            refused = error
        try:
            came = self.receive(65536)
            if refused is None:
                whole = _http.whole_response(came)
                if whole is not None:
                    return whole
            self.buffer += came
            response: _http.Response = self.read(_http.response(self.buffer, largest))
        except (OSError, _http.ProtocolError):
            if refused is not None:
                raise refused from None
            raise
        return response if refused is None else response._replace(keep=False)

    def hang_up(self) -> None:
        """Lets the other side know, whoever reads here and whoever inherited the descriptor; it is closed later."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is over already

    def close(self) -> None:
        self.socket.close()


class TlsConnection(Connection):
    """The same with TLS, which two threads may not use at the same time, although one waits and another answers."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        connected.setblocking(False)
        self._turn = threading.Lock()

    def send(self, data: bytes) -> None:
        from functools import partial

        view = memoryview(data)
        while view:
            sent: int = self._try(partial(self.socket.send, view))
            view = view[sent:]

    def receive(self, wanted: int) -> bytes:
        received: bytes = self._try(lambda: self.socket.recv(wanted))
        return received

    def _try(self, work: Callable[[], Any]) -> Any:
        import select
        import ssl

        while True:
            with self._turn:
                try:
                    return work()
                except ssl.SSLWantReadError:
                    reading, writing = [self.socket], []
                except ssl.SSLWantWriteError:
                    reading, writing = [], [self.socket]
            select.select(reading, writing, [])

    def is_open(self) -> bool:
        return True


class WebSocket:
    """A connection that has become a WebSocket. One reads; any thread may send."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        self._send(_http.frame(_http.TEXT, dumps(message)))

    def _send(self, framed: bytes) -> None:
        with self._sending:
            try:
                self._connection.send(framed)
            except BaseException:
                # Whoever was interrupted has sent half a message, which nobody could understand.
                self._connection.hang_up()
                raise

    def receive(self) -> Dict[str, Any]:
        while True:
            kind, payload = self._connection.read(_http.message(self._connection.buffer))
            if kind == _http.TEXT:
                return message_of(payload)
            if kind == _http.PING:
                self._send(_http.frame(_http.PONG, payload))
            elif kind == _http.CLOSE:
                raise _http.Closed("the other side hung up")

    def hang_up(self) -> None:
        self._connection.hang_up()

    def close(self) -> None:
        self._connection.hang_up()
        self._connection.close()


def message_of(payload: bytes) -> Dict[str, Any]:
    """What a message says."""
    message = loads(payload)
    if not isinstance(message, dict):
        raise _http.ProtocolError("a message of the engine is no object")
    return message


class Client:
    """An engine or a service, and the connections to it. Threads share it."""

    def __init__(self, endpoint: Endpoint, policy: Optional[str] = None) -> None:
        self.endpoint = endpoint
        self.policy = policy
        """The policy of what names none."""
        self._idle: Deque[Connection] = deque()
        self.idle_async: List[AsyncConnection] = []
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncConnections] = (
            weakref.WeakKeyDictionary()
        )
        self._opened: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._opening = threading.Lock()
        self._hung_up = False
        # Sandboxes that nobody has a name for any more. Whoever asks next ends them: a collector may not wait.
        self.forgotten: Deque[str] = deque()
        self._pid = os.getpid()
        _clients.add(self)

    def sibling(self) -> Client:
        """Another one with connections of its own to the same engine or service."""
        return Client(self.endpoint, self.policy)

    def hang_up(self) -> None:
        """Breaks every connection, from any thread. What was asked for over them ends, and nobody waits for it."""
        with self._opening:
            self._hung_up = True
            opened = list(self._opened)
        for connection in opened:
            connection.hang_up()
        while self._idle:
            self._idle.pop().close()

    def request(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        headers: str = "",
        largest: int = _http.LARGEST_ANSWER,
    ) -> _http.Response:
        """One request and its answer."""
        while self.forgotten:
            self._end_forgotten()
        return self._request(method, path, body, headers, largest)

    def _end_forgotten(self) -> None:
        try:
            self._request("DELETE", f"/v1/sessions/{self.forgotten.popleft()}", None, "", _http.LARGEST_ANSWER)
        except (IndexError, EngineUnavailable):
            pass  # another thread was faster, or it is over with its engine

    def _request(self, method: str, path: str, body: Optional[bytes], headers: str, largest: int) -> _http.Response:
        connection = self._take()
        endpoint = self.endpoint
        data = _http.request(method, endpoint.prefix + path, endpoint.host, body, endpoint.headers + headers)
        try:
            response = connection.exchange(data, largest)
        except _http.TooLarge as error:
            connection.close()
            if largest < _http.LARGEST_ANSWER:
                raise  # whoever named a bound is told
            raise self._lost(error) from error
        except (OSError, _http.ProtocolError) as error:
            connection.close()
            raise self._lost(error) from error
        except BaseException:
            # Whoever does not wait for the answer hangs up, which ends what was asked for.
            connection.hang_up()
            connection.close()
            raise
        if response.keep:
            self._give_back(connection)
        else:
            connection.close()
        return response

    def under_policy(self, wish: Dict[str, Any]) -> Dict[str, Any]:
        """The wish, with the client's policy where it names none."""
        if self.policy is not None:
            wish.setdefault("policy_id", self.policy)
        return wish

    def call(self, method: str, path: str, body: Optional[object] = None) -> Any:
        """One request of JSON, and what its answer says."""
        return answer(self.request(method, path, None if body is None else dumps(body)))

    def websocket(self, path: str) -> WebSocket:
        connection = self._open()
        endpoint = self.endpoint
        try:
            connection.send(_http.upgrade(endpoint.prefix + path, endpoint.host, endpoint.headers))
            response: _http.Response = connection.read(_http.response(connection.buffer))
            if response.status != 101:
                answer(response)
                raise _http.ProtocolError(f"the answer was {response.status}")
        except (OSError, _http.ProtocolError) as error:
            connection.close()
            raise self._lost(error) from error
        except BaseException:
            connection.close()
            raise
        return WebSocket(connection)

    def _lost(self, error: BaseException) -> EngineUnavailable:
        self.endpoint.settle()
        return EngineUnavailable(
            f"{self.endpoint.describe()} is gone: {error}", hint="what it was doing has ended with it"
        )

    def _take(self) -> Connection:
        now = time.monotonic()
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            silent = now - connection.used
            if silent < _JUST_NOW:
                return connection
            if (self.endpoint.is_embedded or silent < _IDLE) and connection.is_open():
                return connection
            connection.close()
        return self._open()

    def _open(self) -> Connection:
        opened = self.endpoint.open()
        connection = TlsConnection(opened) if hasattr(opened, "cipher") else Connection(opened)
        self.watch(connection)
        return connection

    def watch(self, connection: Connection) -> None:
        """Knows a connection for as long as it is there."""
        with self._opening:
            self._opened.add(connection)
            hung_up = self._hung_up
        if hung_up:
            connection.hang_up()

    def _give_back(self, connection: Connection) -> None:
        connection.used = time.monotonic()
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def asynchronous(self) -> AsyncConnections:
        """The same for the event loop that runs."""
        import asyncio

        from ._async import AsyncConnections

        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            found = self._loops[loop] = AsyncConnections(self)
        return found

    def close(self) -> None:
        """Closes every connection, and ends an engine of this process with everything in it."""
        while self._idle:
            self._idle.pop().close()
        while self.idle_async:
            self.idle_async.pop().close()
        for connections in list(self._loops.values()):
            connections.close()
        self.endpoint.close()

    def forget(self) -> None:
        """In a fork: what is open belongs to another process."""
        while self._idle:
            self._idle.pop().close()
        while self.idle_async:
            self.idle_async.pop().close()
        self._loops = weakref.WeakKeyDictionary()
        for connection in list(self._opened):
            connection.socket.close()
        self._opened, self._opening = weakref.WeakSet(), threading.Lock()
        self.forgotten.clear()
        self.endpoint.forget()
        self._pid = os.getpid()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        global _default
        if _default is self:
            _default = None
        self.close()

    def __repr__(self) -> str:
        return f"<belljar client of {self.endpoint.describe()}>"


_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_default: Optional[Client] = None
_making = threading.Lock()


def default() -> Client:
    """The client of those who name none."""
    global _default
    found = _default
    if found is None:
        with _making:
            found = _default = _default or Client(endpoint_of_environment())
    return found


def chosen(client: object) -> Client:
    """The client that a caller named, or the one of those who name none."""
    if client is None:
        return default()
    if not isinstance(client, Client):
        raise TypeError(f"client must be what belljar.connect() gives, not {type(client).__name__}")
    return client


def connect(
    url: Optional[str] = None, api_key: Optional[str] = None, *, policy: Optional[str] = None, default: bool = True
) -> Client:
    """A client of a service, or without a URL of an engine of its own. What names no policy is held against `policy`.

    Everything in this process uses it from now on, unless `default` is false; then pass it as `client=`. As a context
    manager it is closed at the end.
    """
    global _default
    if url is None and api_key is not None:
        raise ValueError("api_key: an engine of one's own needs none; give a url as well")
    client = Client(Remote(url, api_key) if url is not None else Embedded(), policy)
    if default:
        _default = client
    return client


def close() -> None:
    """Ends the engine of this process, if there is one, with everything in it. The next use starts another."""
    global _default
    client, _default = _default, None
    if client is not None:
        client.close()


def _after_fork() -> None:
    global _making
    _making = threading.Lock()
    for client in list(_clients):
        client.forget()


def _at_exit() -> None:
    for client in list(_clients):
        if client._pid == os.getpid():
            client.close()


import atexit  # noqa: E402

os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
