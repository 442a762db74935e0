"""Running code, for those who wait: `run` and `Sandbox`."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union, cast

from . import _client, _events, _http, _request, _tools
from ._client import Client, WebSocket
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


def run(code: str, *, client: Optional[Client] = None, **options: Unpack[RunOptions]) -> Result:
    """Runs code in a fresh sandbox of its own, and gives what came of it.

    Python and JavaScript may end in an expression, which is the result's value:

    >>> import belljar
    >>> belljar.run("print('under glass'); 6 * 7").value
    42

    Code that fails is a result as well, unless `check=True` asks for an exception:

    >>> belljar.run("1 / 0").error
    'ZeroDivisionError: division by zero'
    """
    wish, tools = _request.run(code, options)
    hearing = Hearing(options)
    client = _client.chosen(client)
    if tools or hearing:
        result = _in_session(client, wish, tools, hearing)
    else:
        result = execution(answer(client.request("POST", "/v1/executions", dumps(client.under_policy(wish)))))
    return result.check() if options.get("check") else result


def _in_session(client: Client, wish: Dict[str, Any], tools: Tools, hearing: Hearing) -> Result:
    """Runs it in a sandbox that is there for this alone: calls of tools and pieces of output travel on its socket."""
    place, cell = split(wish, tools)
    sandbox = Sandbox._of(client, place, tools)
    with sandbox:
        return sandbox._execute(cell, {}, hearing)


class Files:
    """The files of a sandbox's work directory."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def write(self, path: Union[str, os.PathLike[str]], content: Union[str, bytes, os.PathLike[str]]) -> None:
        """Puts a file there: text, bytes, or what a path of this machine names."""
        name = _request.file_name("path", path)
        body = _request.file_bytes("content", content)
        self._sandbox._ask("PUT", file_address(name), body, FILE)

    def read(self, path: Union[str, os.PathLike[str]], *, max_bytes: int = LARGEST_FILE) -> bytes:
        """What is in a file. One that is larger than `max_bytes` is refused: how large it is, is the guest's choice."""
        return self._sandbox._ask("GET", file_address(_request.file_name("path", path)), largest=max_bytes)

    def read_text(self, path: Union[str, os.PathLike[str]], *, max_bytes: int = LARGEST_FILE) -> str:
        return self.read(path, max_bytes=max_bytes).decode("utf-8")

    def delete(self, path: Union[str, os.PathLike[str]]) -> None:
        """Removes a file, or a directory with everything in it."""
        self._sandbox._ask("DELETE", file_address(_request.file_name("path", path)))

    def list(self) -> List[File]:
        return read_files(self._sandbox._ask("GET", "/files"))

    def __iter__(self) -> Iterator[File]:
        return iter(self.list())

    def __contains__(self, path: object) -> bool:
        return any(file.path == path for file in self.list())


class Sandbox(Kept):
    """A sandbox that keeps its variables and files until it is closed.

    >>> import belljar
    >>> with belljar.Sandbox(memory="512M", timeout=10) as sandbox:
    ...     _ = sandbox.run("rows = [1, 2, 3]")
    ...     sandbox.run("sum(rows)").value
    6

    Functions that it is given run here, in this process, and the code calls them as if they were its own:

    >>> with belljar.Sandbox(tools={"price": {"tea": 3.5}.get}) as sandbox:
    ...     sandbox.run("price('tea') * 2").value
    7.0

    Python and JavaScript have an interpreter that stays. Code of the other languages is run as a program each time,
    among the files of those before it.
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
        self._executing = threading.Lock()
        self._executor: Optional[int] = None
        made = client.call("POST", "/v1/sessions", client.under_policy(wish))
        self.id = made["session_id"]
        self.language: str = made["language"]

    @property
    def files(self) -> Files:
        """The files of its work directory."""
        return Files(self)

    def run(self, code: str, **options: Unpack[CellOptions]) -> Result:
        """Executes code. Variables and files stay for the next."""
        wish, tools = _request.cell({"code": _request.code(code)}, options)
        return self._checked(wish, tools, options)

    def exec(self, command: Union[str, Sequence[str]], **options: Unpack[CellOptions]) -> Result:
        """Runs a command among the sandbox's files: its words, or one line that is split as a shell would split it.

        In Python and JavaScript the interpreter starts it and says how it ended, so that is the word of whatever ran
        there before. A `ProcessSandbox` has none, and the kernel's word.
        """
        wish, tools = _request.cell({"command": _request.command(command)}, options)
        return self._checked(wish, tools, options)

    def stream(self, code: str, **options: Unpack[CellOptions]) -> Iterator[Event]:
        """Executes code, and gives what happens as it happens; at last a `Done` with the result."""
        wish, tools = _request.cell({"code": _request.code(code)}, options)
        return self._converse(wish, tools, Hearing(options))

    def _checked(self, wish: Dict[str, Any], tools: Tools, options: Mapping[str, Any]) -> Result:
        result = self._execute(wish, tools, Hearing(options))
        return result.check() if options.get("check") else result

    def _execute(self, wish: Dict[str, Any], tools: Tools, hearing: Hearing) -> Result:
        for event in self._converse(wish, tools, hearing):
            if isinstance(event, Done):
                return event.result
        raise SandboxError("the execution ended without a result")

    def _converse(self, wish: Dict[str, Any], tools: Tools, hearing: Hearing) -> Iterator[Event]:
        """One execution: events out, answers of tools in."""
        if self._executor == threading.get_ident():
            raise SandboxError("this thread executes something here already", hint="finish or close that stream first")
        with self._executing:
            self._executor = threading.get_ident()
            over = False
            try:
                socket = self._connected()
                self._say(socket, self._message(wish, tools))
                while not over:
                    event = self._hear(socket)
                    if isinstance(event, Call):
                        self._answer(socket, event)
                    elif event is not None:
                        over = isinstance(event, Done)
                        _events.tell(event, hearing)
                        yield event
            finally:
                self._executor = None
                if not over:
                    # Whoever gives up, by Ctrl-C or otherwise, hangs up, which interrupts it; variables and files stay.
                    self._disconnect()

    def _say(self, socket: WebSocket, message: Dict[str, Any]) -> None:
        try:
            socket.send(message)
        except OSError as error:
            raise self._lost(error) from error

    def _hear(self, socket: WebSocket) -> Union[Event, Call, None]:
        try:
            return self._read(socket.receive())
        except RequestError as error:
            raise sandbox_problem(error) from None
        except BROKEN as error:
            raise self._lost(error) from error

    def _connected(self) -> WebSocket:
        self._check_alive()
        if self._socket is None:
            try:
                self._socket = self._client.websocket(f"{self._path}/socket")
            except RequestError as error:
                raise sandbox_problem(error) from error
        return cast(WebSocket, self._socket)

    def _ask(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        headers: str = "",
        largest: int = _http.LARGEST_ANSWER,
    ) -> bytes:
        """One request about this sandbox."""
        self._check_alive()
        try:
            return body_of(self._client.request(method, self._path + path, body, headers, largest))
        except _http.TooLarge as error:
            raise too_large(error) from None

    def _lost(self, error: BaseException) -> SandboxError:
        asked: Optional[SandboxError] = None
        if not self._closed:
            try:
                self._client.call("GET", self._path)
            except SandboxError as told:
                asked = told
        return self._why_lost(error, asked)

    def _disconnect(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()

    def _answer(self, socket: WebSocket, call: Call) -> None:
        """Has the function called, on a thread of its own: it may take its time."""
        function = self._function(call)
        if function is None:
            self._say(socket, _tools.missing(call))
            return
        import contextvars

        def work() -> None:
            value, raised = None, None
            try:
                value = _tools.finish(function, call)
            except BaseException as error:
                raised = error
            try:
                try:
                    socket.send(self._reply(call, value, raised))
                except ValueError as much:
                    socket.send(self._reply(call, None, much))
            except OSError:
                pass  # nobody waits for it any more

        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(work,), name=f"belljar-tool-{call.name}", daemon=True).start()

    def interrupt(self) -> bool:
        """Interrupts what it executes, as Ctrl-C would; from any thread. False if that is nothing."""
        try:
            self._ask("POST", "/interrupt")
        except RequestError as error:
            if error.kind == "conflict":
                return False
            raise
        return True

    def reset(self) -> None:
        """A new interpreter: variables are gone, files stay, and what it was made with is there again."""
        self._check_alive()
        with self._executing:
            self._brought.clear()
            self._ask("POST", "/reset")

    @property
    def logs(self) -> Logs:
        """What it printed so far."""
        return read_logs(self._ask("GET", "/logs"))

    def close(self) -> None:
        """Ends everything in it, and waits until nothing is left. Closing twice is no mistake."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        socket = self._socket
        if socket is not None:
            # Whoever waits for an execution at this moment hears of it, and closes it.
            socket.hang_up()
            if self._executing.acquire(blocking=False):
                self._disconnect()
                self._executing.release()
        try:
            self._client.call("DELETE", self._path)
        except (RequestError, EngineUnavailable):
            pass  # it was over already

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._forget()

    def __repr__(self) -> str:
        return f"<belljar.Sandbox {self.id}, {self.language}{', closed' if self._closed else ''}>"
