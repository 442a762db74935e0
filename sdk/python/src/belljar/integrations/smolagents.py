"""An executor for smolagents: what a CodeAgent writes runs under glass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional

from . import missing

try:
    from smolagents.local_python_executor import CodeOutput, PythonExecutor  # pyright: ignore[reportMissingImports]
    from smolagents.utils import truncate_content  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise missing("smolagents") from error

from .. import _request
from .._client import Client
from .._errors import ExecutionError, SandboxClosed
from .._result import Result
from .._sandbox import Sandbox

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .._request import SandboxOptions

_FINAL = "final_answer"
_TOLD = "_belljar_final_answer"
# The answer goes to the host, and nothing after it runs; `except Exception` does not hold it up.
_ENDING = f"""
class FinalAnswerException(BaseException):
    pass

def {_FINAL}(*args, **kwargs):
    {_TOLD}(*args, **kwargs)
    raise FinalAnswerException
"""


class BelljarExecutor(PythonExecutor):
    """Runs the code of a CodeAgent in a sandbox, and its tools here, in this process.

    ::

        with CodeAgent(tools=[...], model=model, executor=BelljarExecutor(memory="512M")) as agent:
            agent.run("...")

    `options` are those of `belljar.Sandbox`. Variables stay from step to step, until the agent or the executor is
    cleaned up. What may be imported is what the sandbox has: `allowed_imports` says less, `environment` more.
    """

    def __init__(
        self,
        *,
        client: Optional[Client] = None,
        max_print_outputs_length: int = 50_000,
        **options: Unpack[SandboxOptions],
    ) -> None:
        _request.sandbox(options)
        self.state: Dict[str, Any] = {"_print_outputs": ""}
        """What was printed last, where an agent looks for it."""
        self._client = client
        self._options = options
        self._longest = max_print_outputs_length
        self._sandbox: Optional[Sandbox] = None
        self._variables: Dict[str, Any] = {}
        self._tools: Dict[str, Callable[..., Any]] = {}
        self._answers: List[Any] = []

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Data that the code finds under these names."""
        if not variables:
            return
        self._variables.update(variables)
        self._made().run("", globals=variables, check=True)

    def send_tools(self, tools: Mapping[str, Callable[..., Any]]) -> None:
        """Functions that the code may call. They run here."""
        self._tools = {name: tool for name, tool in tools.items() if name != _FINAL}
        final = tools.get(_FINAL)

        def answered(*args: Any, **kwargs: Any) -> None:
            self._answers.append(final(*args, **kwargs) if final is not None else args[0])

        self._tools[_TOLD] = answered
        self._made().run(_ENDING, tools=self._tools, check=True)

    def __call__(self, code_action: str) -> CodeOutput:
        """Executes one step."""
        self._answers.clear()
        try:
            result = self._made().run(code_action)
        except SandboxClosed as error:
            self._sandbox = None
            self._begin_anew()
            raise ExecutionError(f"{error.message}; there is a new sandbox; lost: variables and files.") from error
        logs = truncate_content(result.stdout + result.stderr, self._longest)
        self.state["_print_outputs"] = logs
        if result.state_lost:
            self._begin_anew()
        if self._answers:
            return CodeOutput(output=self._answers[-1], logs=logs, is_final_answer=True)
        if not result.success:
            raise _failure(result)
        return CodeOutput(output=result.value, logs=logs, is_final_answer=False)

    def _made(self) -> Sandbox:
        if self._sandbox is None:
            self._sandbox = Sandbox(client=self._client, **self._options)
        return self._sandbox

    def _begin_anew(self) -> None:
        """Gives a new interpreter what the agent had sent to the one before."""
        if self._tools:
            self._made().run(_ENDING, tools=self._tools, globals=self._variables, check=True)

    def cleanup(self) -> None:
        """Ends the sandbox. The agent calls it at its end."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _failure(result: Result) -> ExecutionError:
    """What the agent is told. What was printed before stands in the executor's `state`."""
    raised = result.exception
    text = raised.traceback.rstrip() if raised is not None else ""
    text = text or result.error or f"the code ended as {result.status}"
    if result.state_lost:
        text += f"\nThe sandbox began anew; lost: {result.state_lost}."
    error = ExecutionError(text)
    error.result = result
    return error
