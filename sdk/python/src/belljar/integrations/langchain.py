"""A tool for LangChain that runs Python code under glass."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Dict, Literal, Optional, Tuple, Type

from . import missing

try:
    from langchain_core.tools import BaseTool, ToolException  # pyright: ignore[reportMissingImports]
    from pydantic import BaseModel, ConfigDict, Field, PrivateAttr  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise missing("langchain") from error

from .. import _request
from .._async_sandbox import run_async
from .._client import Client
from .._errors import SandboxClosed, SandboxError
from .._result import Result
from .._sandbox import Sandbox, run
from .._schema import answer_text, describe

_STAYS = " Variables and files stay from call to call."
_FRESH = " Each call begins anew: nothing stays of those before."

Answer = Tuple[str, Optional[Result]]


class Arguments(BaseModel):
    """What a model gives."""

    code: str = Field(description="The code to run.")


class BelljarTool(BaseTool):
    """A tool that runs code, for LangChain's models and agents.

    ::

        with BelljarTool(options={"memory": "512M", "timeout": 10}) as tool:
            model.bind_tools([tool])

    `options` are those of `belljar.Sandbox`. With `keep_state` all calls share one sandbox, one after the other;
    without it each has its own, and `options` are those of `belljar.run`. The answer is text for the model, also where
    the code fails; the `artifact` of a ToolMessage is the `Result`. What did not run is a ToolException, which becomes
    text as well unless `handle_tool_error` says otherwise.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str = "run_python"
    description: str = ""
    args_schema: Type[BaseModel] = Arguments  # pyright: ignore[reportIncompatibleVariableOverride]
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    handle_validation_error: Any = True
    keep_state: bool = True
    options: Dict[str, Any] = Field(default_factory=dict, exclude=True)
    client: Optional[Client] = Field(default=None, exclude=True)

    _sandbox: Optional[Sandbox] = PrivateAttr(default=None)
    _making: Any = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        if self.keep_state:
            _request.sandbox(self.options)
        else:
            _request.run("", self.options)
        if not self.description:
            language = self.options.get("language") or "python"
            self.description = describe([language], _STAYS if self.keep_state else _FRESH)

    def _run(self, code: str) -> Answer:
        try:
            if self.keep_state:
                return self._in_sandbox(self._kept(), code)
            return _answer(run(_checked(code), client=self.client, **self.options))
        except SandboxError as error:
            raise ToolException(str(error)) from error

    async def _arun(self, code: str) -> Answer:
        try:
            if self.keep_state:
                return await self._aside(code)
            return _answer(await run_async(_checked(code), client=self.client, **self.options))
        except SandboxError as error:
            raise ToolException(str(error)) from error

    async def _aside(self, code: str) -> Answer:
        """On a thread: `invoke` and `ainvoke` share the sandbox. Cancelling interrupts the code."""
        sandbox = await asyncio.to_thread(self._kept)
        working = asyncio.ensure_future(asyncio.to_thread(self._in_sandbox, sandbox, code))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            await asyncio.to_thread(sandbox.interrupt)
            await asyncio.wait([working])
            raise

    def _kept(self) -> Sandbox:
        with self._making:
            if self._sandbox is None:
                self._sandbox = Sandbox(client=self.client, **self.options)
            return self._sandbox

    def _in_sandbox(self, sandbox: Sandbox, code: str) -> Answer:
        try:
            return _answer(sandbox.run(_checked(code)))
        except SandboxClosed as error:
            with self._making:
                if self._sandbox is sandbox:
                    self._sandbox = None
            told = f"{error.message}; variables and files are gone, and the next call gets a new sandbox"
            raise ToolException(told) from error

    def close(self) -> None:
        """Ends its sandbox. A call after that gets a new one."""
        with self._making:
            sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.close()

    def __enter__(self) -> BelljarTool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _answer(result: Result) -> Answer:
    return answer_text(result), result


def _checked(code: str) -> str:
    """The code, or what to tell the model about it."""
    try:
        return _request.code(code)
    except ValueError as error:
        raise ToolException(f"{error}.") from error
