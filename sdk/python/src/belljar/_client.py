"""A client: connections to one engine or service, for those who wait for their answers."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, Dict, Mapping, Optional

from . import _http
from ._connection import Connection, Idle, waiting
from ._errors import EngineUnavailable, SandboxError
from ._wire import Embedded, Endpoint, Remote, answer, dumps, endpoint_of_environment, loads

if TYPE_CHECKING:
    from ._async import AsyncConnections


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
            kind, payload = self._connection.do(_http.message(self._connection.buffer))
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


class Minding:
    """Minds a connection: if anything goes wrong, it is closed, and what that was is told."""

    def __init__(self, client: Client, connection: Connection, largest: int = _http.LARGEST_ANSWER) -> None:
        self._client = client
        self._connection = connection
        self._largest = largest

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: Optional[BaseException], __: object) -> None:
        if error is None:
            return
        # Whoever does not wait for the answer hangs up, which ends what was asked for.
        self._connection.hang_up()
        self._connection.close()
        if isinstance(error, SandboxError) or not isinstance(error, (OSError, _http.ProtocolError)):
            return
        if isinstance(error, _http.TooLarge) and self._largest < _http.LARGEST_ANSWER:
            return  # whoever named a bound is told
        endpoint = self._client.endpoint
        if not self._client.hung_up:
            endpoint.doubt()
        told = f"{endpoint.describe()} is gone: {error}"
        raise EngineUnavailable(told, hint="what it was doing has ended with it") from error


def accepted(response: _http.Response) -> None:
    """Whether a connection has become a WebSocket."""
    if response.status != 101:
        answer(response)
        raise _http.ProtocolError(f"the answer was {response.status}")


class Client:
    """An engine or a service, and the connections to it. Threads share it."""

    def __init__(self, endpoint: Endpoint, policy: Optional[str] = None) -> None:
        self.endpoint = endpoint
        self.policy = policy
        """The policy of what names none."""
        self._idle: Idle[Connection] = Idle()
        self._async: Optional[AsyncConnections] = None
        self._opened: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._opening = threading.Lock()
        self.hung_up = False
        # Sandboxes that nobody has a name for any more. Whoever asks next ends them: a collector may not wait.
        self.forgotten: Deque[str] = deque()
        self._pid = os.getpid()
        _clients.add(self)

    @property
    def is_own(self) -> bool:
        """Whether it is an engine of this process, which nobody else asks anything of."""
        return isinstance(self.endpoint, Embedded)

    def sibling(self) -> Client:
        """Another one with connections of its own to the same engine or service."""
        return Client(self.endpoint, self.policy)

    def hang_up(self) -> None:
        """Breaks every connection, from any thread. What was asked for over them ends, and nobody waits for it."""
        with self._opening:
            self.hung_up = True
            opened = list(self._opened)
        for connection in opened:
            connection.hang_up()
        self._idle.close()

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
            forgotten = self.next_forgotten()
            try:
                self._request("DELETE", forgotten, None, "", _http.LARGEST_ANSWER)
            except EngineUnavailable:
                pass  # it is over with its engine
        return self._request(method, path, body, headers, largest)

    def next_forgotten(self) -> str:
        """The address of a sandbox that nobody has a name for any more."""
        try:
            return f"/v1/sessions/{self.forgotten.popleft()}"
        except IndexError:  # another thread was faster, and nothing is at this one
            return "/v1/sessions/none"

    def _request(self, method: str, path: str, body: Optional[bytes], headers: str, largest: int) -> _http.Response:
        endpoint = self.endpoint
        connection = self._idle.take(time.monotonic(), endpoint.is_embedded) or self._open()
        with Minding(self, connection, largest):
            data = endpoint.request(method, path, body, headers)
            response = connection.do(_http.exchange(data, connection.buffer, largest))
        self._idle.give(connection, response, time.monotonic())
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
        with Minding(self, connection):
            accepted(connection.do(self.endpoint.handshake(path, connection.buffer)))
        return WebSocket(connection)

    def _open(self) -> Connection:
        connection = waiting(self.endpoint.open())
        self.watch(connection)
        return connection

    def watch(self, connection: Connection) -> None:
        """Knows a connection for as long as it is there."""
        with self._opening:
            self._opened.add(connection)
            hung_up = self.hung_up
        if hung_up:
            connection.hang_up()

    def asynchronous(self) -> AsyncConnections:
        """The same for those who await their answers."""
        from ._async import AsyncConnections

        if self._async is None:
            self._async = AsyncConnections(self)
        return self._async

    def close(self) -> None:
        """Closes every connection, and ends an engine of this process with everything in it."""
        self._idle.close()
        if self._async is not None:
            self._async.idle.close()
        self.endpoint.close()

    def forget(self) -> None:
        """In a fork: what is open belongs to another process."""
        self._idle, self._async = Idle(), None
        for connection in list(self._opened):
            connection.close()
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


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
