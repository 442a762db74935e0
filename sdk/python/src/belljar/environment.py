"""A Python environment for code that others wrote (document 002): `SandboxEnvironment` and its `ResourceLimits`."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Awaitable, Deque, Generator, List, Mapping, Optional, Set, Tuple

from . import _limits, _request
from ._async_sandbox import AsyncSandbox
from ._errors import PermissionError, SandboxClosed
from ._kept import Logs
from ._result import Result, ToolCall

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._client import Client
    from ._request import SandboxOptions

SAFE_IMPORTS: Tuple[str, ...] = ("json", "math", "datetime", "asyncio", "typing")
"""What code may import unless said."""

_OPENING = ("open", "io.open", "io.FileIO", "io.open_code", "os.open", "codecs.open")
_LOG = 16 << 20
_CALLS = 10000


@dataclass(frozen=True)
class ResourceLimits:
    """What one execution may use."""

    max_memory_mb: int = 512
    max_cpu_percent: int = 50
    """100 is one whole CPU."""
    timeout_seconds: float = 30
    max_tool_calls: int = 100
    """Calls of functions of the host; the next one fails."""
    max_concurrent: int = 5
    """Functions of the host that run at the same time; further calls wait."""

    def __post_init__(self) -> None:
        _limits.whole("max_memory_mb", self.max_memory_mb, 8, _limits.MOST_MB)
        _limits.whole("max_cpu_percent", self.max_cpu_percent, 1, 100000)
        _limits.seconds("timeout_seconds", self.timeout_seconds)
        _limits.whole("max_tool_calls", self.max_tool_calls, 0, 1000000)
        _limits.whole("max_concurrent", self.max_concurrent, 1, 1000)


class SandboxEnvironment:
    """An isolated Python that keeps its variables from one call to the next.

    ::

        async with SandboxEnvironment(limits=ResourceLimits(timeout_seconds=10)) as sandbox:
            total = await sandbox.execute_code("return sum(data)", globals_dict={"data": [1, 2, 3]})

    It has no network and no subprocesses. Of the modules it imports those of `allowed_imports`, or of `SAFE_IMPORTS`
    unless said. Without `filesystem_access` it opens no files; with it, those of a work directory of its own, never
    the host's. Both checks are for honest code, and the walls of the sandbox hold without them.

    What goes wrong is the built-in exception that it is: `TimeoutError`, `MemoryError`, `ImportError`,
    `PermissionError`, or whatever the code raised.
    """

    def __init__(
        self,
        limits: Optional[ResourceLimits] = None,
        allowed_imports: Optional[List[str]] = None,
        filesystem_access: bool = False,
        *,
        client: Optional[Client] = None,
    ) -> None:
        if limits is not None and not isinstance(limits, ResourceLimits):
            raise TypeError(f"limits must be ResourceLimits, not {type(limits).__name__}")
        self.limits = limits or ResourceLimits()
        self.filesystem_access = _limits.flag("filesystem_access", filesystem_access)
        self._options = self._asked(allowed_imports)
        _request.sandbox(self._options)
        self.allowed_imports: List[str] = list(self._options.get("allowed_imports") or ())
        self._client = client
        self._sandbox: Optional[AsyncSandbox] = None
        self._closed = False
        self._turns: Tuple[Optional[asyncio.AbstractEventLoop], Optional[asyncio.Lock]] = (None, None)
        self._ending: Set[asyncio.Task[None]] = set()
        self._stdout = _Stream()
        self._stderr = _Stream()
        self._calls: Deque[ToolCall] = deque(maxlen=_CALLS)

    def _asked(self, allowed_imports: Optional[List[str]]) -> SandboxOptions:
        options: SandboxOptions = {
            "memory": self.limits.max_memory_mb * _limits.MIB,
            "cpu_percent": self.limits.max_cpu_percent,
            "timeout": self.limits.timeout_seconds,
            "max_tool_calls": self.limits.max_tool_calls,
            "max_concurrent_tools": self.limits.max_concurrent,
            "processes": 1,
            "network": "none",
            "allowed_imports": SAFE_IMPORTS if allowed_imports is None else allowed_imports,
        }
        if not self.filesystem_access:
            options["forbidden_calls"] = _OPENING
            # Whoever gets round that writes nothing all the same.
            options["file_size"] = 0
        return options

    async def execute_code(self, code: str, globals_dict: Optional[Mapping[str, Any]] = None) -> Any:
        """Executes code, and gives what it returned, or its last expression, or its variable `result`.

        It may `return` and `await` at the top level. Data of `globals_dict` is copied; functions, async ones too, stay
        here, and the code calls them. After a timeout, or when memory ran out, the next call has a fresh interpreter.
        """
        if globals_dict is not None and not isinstance(globals_dict, Mapping):
            raise TypeError(f"globals_dict must be a mapping from names, not {type(globals_dict).__name__}")
        async with self._turn():
            sandbox, stdout, stderr = self._opened(), self._stdout, self._stderr
            result = await sandbox.run(code, globals=globals_dict, on_stdout=stdout.add, on_stderr=stderr.add)
            self._calls.extend(result.tool_calls)
        return _checked(result).value

    def _turn(self) -> asyncio.Lock:
        """One execution after the other. A lock belongs to one event loop, an environment to none."""
        loop, lock = asyncio.get_running_loop(), self._turns[1]
        if lock is None or loop is not self._turns[0]:
            lock = asyncio.Lock()
            self._turns = (loop, lock)
        return lock

    def _opened(self) -> AsyncSandbox:
        if self._closed:
            raise SandboxClosed("the environment is closed")
        if self._sandbox is None:
            self._sandbox = AsyncSandbox(client=self._client, **self._options)
        return self._sandbox

    def reset(self) -> Awaitable[None]:
        """Clears variables, files, logs and calls.

        It need not be awaited; whoever does waits until nothing of them is left.
        """
        self._stdout, self._stderr = _Stream(), _Stream()
        self._calls.clear()
        return self._end()

    def get_logs(self) -> AwaitableLogs:
        """What was printed since the start or the last reset, the latest of it. It need not be awaited."""
        dropped = self._stdout.dropped + self._stderr.dropped
        return AwaitableLogs(self._stdout.text(), self._stderr.text(), dropped)

    @property
    def tool_calls(self) -> List[ToolCall]:
        """The host's functions that were called since the start or the last reset, the latest 10,000 of them."""
        return list(self._calls)

    def close(self) -> Awaitable[None]:
        """Ends it. Logs stay. It need not be awaited, and closing twice is no mistake."""
        self._closed = True
        return self._end()

    def _end(self) -> Awaitable[None]:
        old, self._sandbox = self._sandbox, None
        if old is None:
            return _Done()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(old.close())
            return _Done()
        task = loop.create_task(old.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<belljar.SandboxEnvironment, {self.limits}{', closed' if self._closed else ''}>"


def _checked(result: Result) -> Result:
    """The result if it succeeded. A call that was refused before anything ran is a matter of permission."""
    refused = (result.to_dict().get("error") or {}).get("type") == "refused"
    raised = result.exception
    if refused and raised is not None and raised.type == "ForbiddenCall":
        error = PermissionError(raised.message)
        error.result = result
        raise error
    return result.check()


class AwaitableLogs(Logs):
    """What was printed. Awaiting it gives itself."""

    def __await__(self) -> Generator[Any, None, AwaitableLogs]:
        return self
        yield

    def __str__(self) -> str:
        return self.stdout + self.stderr


class _Stream:
    """The latest of one stream."""

    def __init__(self) -> None:
        self._pieces: Deque[str] = deque()
        self._held = 0
        self.dropped = 0

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._held += len(piece)
        while self._held > _LOG and len(self._pieces) > 1:
            first = self._pieces.popleft()
            self._held -= len(first)
            self.dropped += len(first.encode("utf-8", "replace"))

    def text(self) -> str:
        return "".join(self._pieces)


class _Done:
    """There is nothing to wait for."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield
