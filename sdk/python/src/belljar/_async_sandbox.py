"""Running code, for those who await it: `run_async` and `AsyncSandbox`."""

from __future__ import annotations

import asyncio
import os
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncGenerator,
    AsyncIterator,
    Dict,
    Generator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Union,
    cast,
)

from . import _client, _events, _http, _request, _tools
from ._async import AsyncConnections, AsyncWebSocket, in_thread
from ._client import Client
from ._errors import EngineUnavailable, RequestError, SandboxError
from ._events import Call, Done, Event
from ._kept import (
    BROKEN,
    FILE,
    LARGEST_FILE,
    File,
    Kept,
    Logs,
    body_of,
    file_address,
    read_files,
    read_logs,
    split,
    too_large,
)
from ._request import Hearing, Tools
from ._result import Result
from ._wire import answer, dumps, execution, sandbox_problem

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._request import CellOptions, RunOptions, SandboxOptions


async def run_async(code: str, *, client: Optional[Client] = None, **options: Unpack[RunOptions]) -> Result:
    """The same as `run`, awaited. Cancelling it ends the program."""
    wish, tools = _request.run(code, options)
    hearing = Hearing(options)
    client = _client.chosen(client)
    if tools or hearing:
        place, cell = split(wish, tools)
        async with AsyncSandbox._of(client, place, tools) as sandbox:
            result = await sandbox._execute(cell, {}, hearing)
    else:
        body = dumps(client.under_policy(wish))
        result = execution(answer(await client.asynchronous().request("POST", "/v1/executions", body)))
    return result.check() if options.get("check") else result


class LoopLock:
    """A lock of the event loop that runs. A sandbox may be used from one loop after the other."""

    def __init__(self) -> None:
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._lock: Optional[asyncio.Lock] = None

    def here(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._lock is None or self._loop is not loop:
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock


class AsyncFiles:
    """The files of a sandbox's work directory."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def write(self, path: Union[str, os.PathLike[str]], content: Union[str, bytes, os.PathLike[str]]) -> None:
        """Puts a file there: text, bytes, or what a path of this machine names."""
        name = _request.file_name("path", path)
        body = _request.file_bytes("content", content)
        await self._sandbox._ask("PUT", file_address(name), body, FILE)

    async def read(self, path: Union[str, os.PathLike[str]], *, max_bytes: int = LARGEST_FILE) -> bytes:
        """What is in a file. One that is larger than `max_bytes` is refused: how large it is, is the guest's choice."""
        return await self._sandbox._ask("GET", file_address(_request.file_name("path", path)), largest=max_bytes)

    async def read_text(self, path: Union[str, os.PathLike[str]], *, max_bytes: int = LARGEST_FILE) -> str:
        return (await self.read(path, max_bytes=max_bytes)).decode("utf-8")

    async def delete(self, path: Union[str, os.PathLike[str]]) -> None:
        """Removes a file, or a directory with everything in it."""
        await self._sandbox._ask("DELETE", file_address(_request.file_name("path", path)))

    async def list(self) -> List[File]:
        return read_files(await self._sandbox._ask("GET", "/files"))


class AsyncSandbox(Kept):
    """The same as `Sandbox`, awaited. It is made when it is first used, entered or awaited.

    ::

        async with belljar.AsyncSandbox(tools={"fetch": fetch}) as sandbox:
            result = await sandbox.run("await fetch('a') + await fetch('b')")

    Functions that are async run on the loop, others on threads.
    """

    def __init__(self, *, client: Optional[Client] = None, **options: Unpack[SandboxOptions]) -> None:
        wish, tools = _request.sandbox(options)
        self._begin(_client.chosen(client), wish, tools)

    @classmethod
    def _of(cls, client: Client, wish: Dict[str, Any], tools: Tools) -> Self:
        made = cls.__new__(cls)
        made._begin(client, wish, tools)
        return made

    def _begin(self, client: Client, wish: Dict[str, Any], tools: Tools) -> None:
        Kept.__init__(self, client, tools)
        self._wish = wish
        self._answering: Set[asyncio.Task[None]] = set()
        self._executor: Optional[asyncio.Task[Any]] = None
        self._opening = LoopLock()
        self._executing = LoopLock()
        self.language: str = wish.get("language", "python")

    @property
    def _connections(self) -> AsyncConnections:
        return self._client.asynchronous()

    async def _opened(self) -> str:
        """Its path, once it is made."""
        self._check_alive()
        if not self.id:
            async with self._opening.here():
                if not self.id:
                    made = await self._connections.call("POST", "/v1/sessions", self._client.under_policy(self._wish))
                    self.id = made["session_id"]
        return self._path

    @property
    def files(self) -> AsyncFiles:
        """The files of its work directory."""
        return AsyncFiles(self)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        headers: str = "",
        largest: int = _http.LARGEST_ANSWER,
    ) -> bytes:
        """One request about this sandbox."""
        opened = await self._opened()
        try:
            return body_of(await self._connections.request(method, opened + path, body, headers, largest))
        except _http.TooLarge as error:
            raise too_large(error) from None

    async def run(self, code: str, **options: Unpack[CellOptions]) -> Result:
        """Executes code. Variables and files stay for the next. Cancelling it interrupts the code."""
        wish, tools = _request.cell({"code": _request.code(code)}, options)
        return await self._checked(wish, tools, options)

    async def exec(self, command: Union[str, Sequence[str]], **options: Unpack[CellOptions]) -> Result:
        """Runs a command among the sandbox's files: its words, or one line that is split as a shell would split it.

        In Python and JavaScript the interpreter starts it and says how it ended, so that is the word of whatever ran
        there before. A `ProcessSandbox` has none, and the kernel's word.
        """
        wish, tools = _request.cell({"command": _request.command(command)}, options)
        return await self._checked(wish, tools, options)

    def stream(self, code: str, **options: Unpack[CellOptions]) -> AsyncIterator[Event]:
        """Executes code, and gives what happens as it happens; at last a `Done` with the result."""
        wish, tools = _request.cell({"code": _request.code(code)}, options)
        return self._converse(wish, tools, Hearing(options))

    async def _checked(self, wish: Dict[str, Any], tools: Tools, options: Mapping[str, Any]) -> Result:
        result = await self._execute(wish, tools, Hearing(options))
        return result.check() if options.get("check") else result

    async def _execute(self, wish: Dict[str, Any], tools: Tools, hearing: Hearing) -> Result:
        conversation = self._converse(wish, tools, hearing)
        try:
            async for event in conversation:
                if isinstance(event, Done):
                    return event.result
        finally:
            await conversation.aclose()
        raise SandboxError("the execution ended without a result")

    async def _converse(self, wish: Dict[str, Any], tools: Tools, hearing: Hearing) -> AsyncGenerator[Event, None]:
        """One execution: events out, answers of tools in."""
        if self._executor is not None and self._executor is asyncio.current_task():
            raise SandboxError("this task executes something here already", hint="finish or close that stream first")
        path = await self._opened()
        async with self._executing.here():
            self._executor = asyncio.current_task()
            over = False
            try:
                socket = await self._connected(path)
                await self._say(socket, self._message(wish, tools))
                while not over:
                    event = await self._hear(socket)
                    if isinstance(event, Call):
                        self._answer(socket, event)
                    elif event is not None:
                        over = isinstance(event, Done)
                        _events.tell(event, hearing)
                        yield event
            finally:
                self._executor = None
                if not over:
                    # Whoever gives up hangs up, which interrupts it; variables and files stay.
                    self._disconnect()

    async def _connected(self, path: str) -> AsyncWebSocket:
        self._check_alive()
        if self._socket is None:
            try:
                self._socket = await self._connections.websocket(f"{path}/socket")
            except RequestError as error:
                raise sandbox_problem(error) from error
        return cast(AsyncWebSocket, self._socket)

    async def _say(self, socket: AsyncWebSocket, message: Dict[str, Any]) -> None:
        try:
            await socket.send(message)
        except OSError as error:
            raise await self._lost(error) from error

    async def _hear(self, socket: AsyncWebSocket) -> Union[Event, Call, None]:
        try:
            return self._read(await socket.receive())
        except RequestError as error:
            raise sandbox_problem(error) from None
        except BROKEN as error:
            raise await self._lost(error) from error

    async def _lost(self, error: BaseException) -> SandboxError:
        asked: Optional[SandboxError] = None
        if not self._closed:
            try:
                await self._connections.call("GET", self._path)
            except SandboxError as told:
                asked = told
        return self._why_lost(error, asked)

    def _disconnect(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()

    def _answer(self, socket: AsyncWebSocket, call: Call) -> None:
        """Has the function called beside everything else."""
        task = asyncio.ensure_future(self._work(socket, call))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _work(self, socket: AsyncWebSocket, call: Call) -> None:
        function = self._function(call)
        try:
            if function is None:
                await socket.send(_tools.missing(call))
                return
            value, raised = None, None
            try:
                if asyncio.iscoroutinefunction(function):
                    value = await _tools.begin(function, call)
                else:
                    value = await in_thread(_tools.begin, function, call)
                    if hasattr(value, "__await__"):
                        value = await value
            except BaseException as error:
                raised = error
            try:
                await socket.send(self._reply(call, value, raised))
            except ValueError as much:
                await socket.send(self._reply(call, None, much))
        except (OSError, RuntimeError):
            pass  # nobody waits for it any more

    async def interrupt(self) -> bool:
        """Interrupts what it executes, as Ctrl-C would. False if that is nothing."""
        try:
            await self._ask("POST", "/interrupt")
        except RequestError as error:
            if error.kind == "conflict":
                return False
            raise
        return True

    async def reset(self) -> None:
        """A new interpreter: variables are gone, files stay, and what it was made with is there again."""
        async with self._executing.here():
            self._brought.clear()
            await self._ask("POST", "/reset")

    async def logs(self) -> Logs:
        """What it printed so far."""
        return read_logs(await self._ask("GET", "/logs"))

    async def close(self) -> None:
        """Ends everything in it, and waits until nothing is left. Closing twice is no mistake."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        if self._socket is not None:
            # Whoever awaits an execution at this moment hears of it, and closes it.
            self._socket.hang_up()
            if self._executor is None:
                self._disconnect()
        for task in list(self._answering):
            task.cancel()
        if not self.id:
            return
        try:
            await self._connections.call("DELETE", f"/v1/sessions/{self.id}")
        except (RequestError, EngineUnavailable):
            pass  # it was over already

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, AsyncSandbox]:
        async def opened() -> AsyncSandbox:
            await self._opened()
            return self

        return opened().__await__()

    def __del__(self) -> None:
        self._forget()

    def __repr__(self) -> str:
        return f"<belljar.AsyncSandbox {self.id or 'not made yet'}{', closed' if self._closed else ''}>"
