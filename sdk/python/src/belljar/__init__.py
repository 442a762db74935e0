"""Run code that nobody has read yet, under glass.

>>> import belljar
>>> belljar.run("sum(range(100))").value
4950

Importing this starts nothing and loads little: each name is fetched from its module when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ._async_sandbox import AsyncSandbox as AsyncSandbox
    from ._async_sandbox import run_async as run_async
    from ._batch import map as map
    from ._batch import map_async as map_async
    from ._client import Client as Client
    from ._client import close as close
    from ._client import connect as connect
    from ._errors import BadRequest as BadRequest
    from ._errors import Denied as Denied
    from ._errors import EngineUnavailable as EngineUnavailable
    from ._errors import ExecutionError as ExecutionError
    from ._errors import FileNotFoundError as FileNotFoundError
    from ._errors import ImportError as ImportError
    from ._errors import MemoryError as MemoryError
    from ._errors import PermissionError as PermissionError
    from ._errors import PolicyViolation as PolicyViolation
    from ._errors import QuotaExceeded as QuotaExceeded
    from ._errors import RequestError as RequestError
    from ._errors import SandboxClosed as SandboxClosed
    from ._errors import SandboxError as SandboxError
    from ._errors import TimeoutError as TimeoutError
    from ._events import Done as Done
    from ._events import Output as Output
    from ._events import ToolEnded as ToolEnded
    from ._events import ToolStarted as ToolStarted
    from ._kept import File as File
    from ._kept import Logs as Logs
    from ._result import Display as Display
    from ._result import Receipt as Receipt
    from ._result import Result as Result
    from ._result import SandboxStatus as SandboxStatus
    from ._sandbox import Sandbox as Sandbox
    from ._sandbox import run as run
    from ._schema import answer_tool_call as answer_tool_call
    from ._schema import tool_schema as tool_schema
    from .environment import ResourceLimits as ResourceLimits
    from .environment import SandboxEnvironment as SandboxEnvironment
    from .execution import CodeExecutionConfig as CodeExecutionConfig
    from .execution import ExecutionResult as ExecutionResult
    from .execution import SecureToAutoRun as SecureToAutoRun
    from .execution import execute_code as execute_code
    from .execution import execute_file as execute_file
    from .execution import run_code as run_code
    from .sandboxes import DockerSandbox as DockerSandbox
    from .sandboxes import NotSetUp as NotSetUp
    from .sandboxes import ProcessSandbox as ProcessSandbox
    from .sandboxes import SandboxConfig as SandboxConfig
    from .sandboxes import SandboxManager as SandboxManager
    from .sandboxes import get_sandbox_manager as get_sandbox_manager
    from .service import ExecutionRecord as ExecutionRecord
    from .service import ExecutionRequest as ExecutionRequest
    from .service import IsolationLevel as IsolationLevel
    from .service import NetworkPolicy as NetworkPolicy
    from .service import Records as Records
    from .service import SandboxPolicy as SandboxPolicy
    from .service import SandboxService as SandboxService
    from .tools import SandboxedCommandTool as SandboxedCommandTool
    from .tools import SandboxedFileTool as SandboxedFileTool
    from .tools import SandboxedNetworkTool as SandboxedNetworkTool
    from .tools import SandboxedPythonTool as SandboxedPythonTool
    from .tools import ToolContext as ToolContext
    from .tools import ToolResult as ToolResult
    from .workspace import BaseDirectoryError as BaseDirectoryError
    from .workspace import BasicSandboxManager as BasicSandboxManager
    from .workspace import CommandDenied as CommandDenied
    from .workspace import CommandError as CommandError
    from .workspace import IllegalTransition as IllegalTransition
    from .workspace import Lifecycle as Lifecycle
    from .workspace import SetupError as SetupError
    from .workspace import TeardownError as TeardownError
    from .workspace import WorkspaceError as WorkspaceError
    from .workspace import WorkspaceManager as WorkspaceManager
    from .workspace import WorkspaceSandbox as WorkspaceSandbox

# Where each name lives.
_MODULES = {
    "_async_sandbox": ("AsyncSandbox", "run_async"),
    "_batch": ("map", "map_async"),
    "_client": ("Client", "close", "connect"),
    "_errors": (
        "BadRequest", "Denied", "EngineUnavailable", "ExecutionError", "FileNotFoundError", "ImportError",
        "MemoryError", "PermissionError", "PolicyViolation", "QuotaExceeded", "RequestError", "SandboxClosed",
        "SandboxError", "TimeoutError",
    ),
    "_events": ("Done", "Output", "ToolEnded", "ToolStarted"),
    "_result": ("Display", "Receipt", "Result", "SandboxStatus"),
    "_kept": ("File", "Logs"),
    "_sandbox": ("Sandbox", "run"),
    "_schema": ("answer_tool_call", "tool_schema"),
    "environment": ("ResourceLimits", "SandboxEnvironment"),
    "execution": (
        "CodeExecutionConfig", "ExecutionResult", "SecureToAutoRun", "execute_code", "execute_file", "run_code",
    ),
    "sandboxes": (
        "DockerSandbox", "NotSetUp", "ProcessSandbox", "SandboxConfig", "SandboxManager", "get_sandbox_manager",
    ),
    "service": (
        "ExecutionRecord", "ExecutionRequest", "IsolationLevel", "NetworkPolicy", "Records", "SandboxPolicy",
        "SandboxService",
    ),
    "tools": (
        "SandboxedCommandTool", "SandboxedFileTool", "SandboxedNetworkTool", "SandboxedPythonTool", "ToolContext",
        "ToolResult",
    ),
    "workspace": (
        "BaseDirectoryError", "BasicSandboxManager", "CommandDenied", "CommandError", "IllegalTransition",
        "Lifecycle", "SetupError", "TeardownError", "WorkspaceError", "WorkspaceManager", "WorkspaceSandbox",
    ),
}  # fmt: skip
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    return [*globals(), *_HOME]
