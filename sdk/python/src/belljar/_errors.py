"""What can go wrong, each with what to do about it.

Every exception is a `SandboxError`. Those with the name of a built-in exception are that as well, so that code which
catches `TimeoutError` or `MemoryError` needs no other import.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, Dict, Optional, Type

if TYPE_CHECKING:
    from ._result import Result


class SandboxError(Exception):
    """Anything that went wrong with a sandbox."""

    result: Optional[Result] = None
    """What came of the execution, where there was one."""

    def __init__(self, message: str = "", *, hint: Optional[str] = None) -> None:
        super().__init__(f"{message}\nhint: {hint}" if hint else message)
        self.message = message
        self.hint = hint


class ExecutionError(SandboxError):
    """The program failed: it raised, exited with something other than 0, or was killed."""


class TimeoutError(SandboxError, builtins.TimeoutError):
    """The program took longer than it may."""


class MemoryError(SandboxError, builtins.MemoryError):
    """The program wanted more memory than it may have."""


class ImportError(ExecutionError, builtins.ImportError):
    """The program imported what is not there or not allowed."""


class PermissionError(ExecutionError, builtins.PermissionError):
    """The program did what it may not do."""


class SandboxClosed(SandboxError):
    """The sandbox is over."""


class EngineUnavailable(SandboxError):
    """There is no engine: it cannot start here, or the service cannot be reached."""


class RequestError(SandboxError):
    """The service did not take the request."""

    kind: str = ""
    """A stable word, such as `forbidden` or `busy`."""
    status: int = 0
    """The answer's HTTP status."""
    retry_after: Optional[float] = None
    """Seconds after which it may be worth trying again."""


class BadRequest(RequestError, builtins.ValueError):
    """Something in the request cannot be used; the message names it."""


class FileNotFoundError(RequestError, builtins.FileNotFoundError):
    """The sandbox has no such file."""


class Denied(SandboxError):
    """A policy refused it before anything ran. Says which rule, and the smallest change that would allow it."""

    def __init__(self, denial: Dict[str, Any], record: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(str(denial.get("message", "denied")), hint=denial.get("fix"))
        self.denial = denial
        self.record = record
        self.code = str(denial.get("code", ""))
        """A stable name of the reason, such as `memory_above_policy`."""
        self.rule = str(denial.get("rule", ""))
        """The rule that fired."""
        self.value = denial.get("value")
        """The value that broke it."""
        self.fix = str(denial.get("fix", ""))
        """What would allow it."""


class QuotaExceeded(Denied):
    """The tenant has had what the policy gives it."""

    retry_after: Optional[float] = None
    """Seconds after which it may be tried again."""


class PolicyViolation(Denied):
    """The policy forbids it. The same as `Denied`, by the name that a `SandboxService` uses."""


_RAISED: Dict[str, Type[SandboxError]] = {
    "TimeoutError": TimeoutError,
    "MemoryError": MemoryError,
    "ImportError": ImportError,
    "PermissionError": PermissionError,
}


def raised_type(name: str) -> Type[SandboxError]:
    """The exception for what a program raised: an `ExecutionError` that is the built-in of that name too."""
    known = _RAISED.get(name)
    if known is not None:
        return known
    builtin = getattr(builtins, name, None)
    if name in ("StopIteration", "StopAsyncIteration"):
        return ExecutionError  # it would end whoever iterates here
    if not (isinstance(builtin, type) and issubclass(builtin, Exception)):
        return ExecutionError
    try:
        made: Type[SandboxError] = type(name, (ExecutionError, builtin), {"__module__": "belljar"})
        made("")
    except Exception:  # one that cannot be made of a message alone
        return ExecutionError
    _RAISED[name] = made
    return made
