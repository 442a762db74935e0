"""What a sandbox that is kept is, whether it is waited for or awaited."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import _events, _http, _tools
from ._errors import EngineUnavailable, RequestError, SandboxClosed, SandboxError
from ._events import Call, Done, Event
from ._request import Tools
from ._wire import answer, loads, sandbox_problem

if TYPE_CHECKING:
    from ._async import AsyncWebSocket
    from ._client import Client, WebSocket

LARGEST_FILE = 64 << 20
FILE = "content-type: application/octet-stream\r\n"


class File(NamedTuple):
    """Something in a sandbox's work directory."""

    path: str
    kind: str
    """`file`, `directory`, `link` or `other`."""
    size: int
    executable: bool


class Logs(NamedTuple):
    """What a sandbox printed, the latest of it."""

    stdout: str
    stderr: str
    dropped: int
    """How many bytes from the beginning are no longer held."""


def file_address(name: str) -> str:
    """Where a file is, below its sandbox's address."""
    from urllib.parse import quote

    return f"/file?path={quote(name, safe='')}"


def read_files(body: bytes) -> List[File]:
    return [File(one["path"], one["kind"], one["size"], one["executable"]) for one in loads(body)["files"]]


def read_logs(body: bytes) -> Logs:
    told = loads(body)
    return Logs(told["stdout"], told["stderr"], told["dropped"])


def split(wish: Dict[str, Any], tools: Tools) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """What of a run makes its sandbox, and what runs in it."""
    place = dict(wish)
    cell: Dict[str, Any] = {}
    for name in ("code", "stdin", "outputs"):
        if name in place:
            cell[name] = place.pop(name)
    for name in ("args", "stdin_base64", "fresh_interpreter"):
        if place.pop(name, None):
            raise ValueError(f"{name} does not go together with tools and with output as it comes")
    place.pop("evaluate", None)
    if tools:
        place["tools"] = sorted(tools)
    return place, cell


class Kept:
    """The state of a sandbox on this side, and what is decided without asking anybody."""

    def __init__(self, client: Client, tools: Tools) -> None:
        self._client = client
        self._tools = dict(tools)
        self._brought: Tools = {}
        self._host_errors: List[BaseException] = []
        self._executions = 0
        self._socket: Union[WebSocket, AsyncWebSocket, None] = None
        self._closed = False
        self._pid = os.getpid()
        self.id: str = ""
        """Its name, as records and the service have it; empty until it is made."""

    @property
    def _path(self) -> str:
        return f"/v1/sessions/{self.id}"

    @property
    def closed(self) -> bool:
        return self._closed

    def _check_alive(self) -> None:
        if self._pid != os.getpid():
            told = "this sandbox belongs to the process that this one was forked from"
            raise SandboxClosed(told, hint="make one here")
        if self._closed:
            raise SandboxClosed("the sandbox is closed")

    def _message(self, wish: Mapping[str, Any], tools: Tools) -> Dict[str, Any]:
        """What begins an execution."""
        self._brought.update(tools)
        self._host_errors.clear()
        self._executions += 1
        return {"type": "execute", "id": self._executions, **wish}

    def _read(self, message: Mapping[str, Any]) -> Union[Event, Call, None]:
        """What a message means for the execution of the moment."""
        event = _events.read(message, self._executions)
        if isinstance(event, Done):
            event.result._host_errors = list(self._host_errors)
        return event

    def _function(self, call: Call) -> Optional[Callable[..., Any]]:
        return self._brought.get(call.name, self._tools.get(call.name))

    def _reply(self, call: Call, value: object, error: Optional[BaseException]) -> Dict[str, Any]:
        """What the code hears of a call: what the function gave or raised, or why it cannot have that."""
        if error is None:
            try:
                return _tools.given(call, value)
            except (TypeError, ValueError) as unfit:
                error = unfit
        self._host_errors.append(error)
        return _tools.raised(call, error)

    def _why_lost(self, error: BaseException, asked: Optional[SandboxError]) -> SandboxError:
        """Why a conversation broke off; `asked` is what came of asking about the sandbox then."""
        if self._closed:
            return SandboxClosed("the sandbox was closed meanwhile")
        if isinstance(asked, EngineUnavailable):
            return asked
        if asked is not None:
            return SandboxClosed(f"the sandbox is over: {asked.message}")
        return EngineUnavailable(f"the connection to {self._client.endpoint.describe()} broke: {error}")

    def _forget(self) -> None:
        """One that was forgotten. Whoever asks for something next ends it: a collector may not wait for anybody."""
        if getattr(self, "_closed", True) or not self.id or self._pid != os.getpid():
            return
        self._closed = True
        self._client.forgotten.append(self.id)
        if self._socket is not None:
            self._socket.close()


# What a message that makes no sense raises where it is read.
BROKEN = (OSError, _http.ProtocolError, KeyError, TypeError, ValueError)


def body_of(response: _http.Response) -> bytes:
    """What a sandbox's own address answers, or the exception that it is."""
    if response.status >= 400:
        try:
            answer(response)
        except RequestError as error:
            raise sandbox_problem(error) from None
    return response.body


def too_large(error: _http.TooLarge) -> ValueError:
    return ValueError(f"{error}; max_bytes says how much is read")
