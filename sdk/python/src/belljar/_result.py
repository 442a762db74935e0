"""What came of an execution."""

from __future__ import annotations

from enum import Enum
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from . import _errors
from ._values import decode


class SandboxStatus(str, Enum):
    """Where an execution is, or how it ended."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    KILLED = "killed"

    def __str__(self) -> str:
        return self.value


class Usage(NamedTuple):
    """What an execution used."""

    wall_seconds: float
    cpu_seconds: float
    memory_peak: Optional[int]
    """Bytes; None where nothing measured it."""


class Raised(NamedTuple):
    """What the code raised. Its own word: it may call itself what it likes."""

    type: str
    message: str
    traceback: str
    line: Optional[int]
    column: Optional[int]


class ToolCall(NamedTuple):
    """One call of a function of the host."""

    call: int
    name: str
    duration: float
    argument_bytes: int
    result_bytes: int
    error: Optional[str]


SVG = "image/svg+xml"


def _text_of(base64: str) -> str:
    """Text that came as base64, if it did."""
    from base64 import b64decode

    try:
        return b64decode(base64, validate=True).decode("utf-8")
    except ValueError:
        return base64


def shown_value(value: object) -> str:
    """A value as text, whatever it is: Python refuses to write very long numbers."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}, which cannot be shown: {error}>"


def _unquoted(message: str) -> str:
    """A `KeyError`'s key: its message is the repr of that."""
    from ast import literal_eval

    try:
        key = literal_eval(message) if len(message) < 1000 and message[:1] in "'\"" else message
    except (ValueError, SyntaxError):
        return message
    return key if isinstance(key, str) else message


class Display:
    """Something to show, by media type: text, or the bytes of an image."""

    def __init__(self, data: Mapping[str, str], value: object = None) -> None:
        self.data: Dict[str, str] = dict(data)
        """By media type; images are base64, but for SVG, which is text."""
        if SVG in self.data:
            self.data[SVG] = _text_of(self.data[SVG])
        self.value = value
        """The data of a table."""

    def bytes(self, media_type: str) -> bytes:
        """What it is in that media type."""
        text = self.data[media_type]
        if not media_type.startswith("image/") or media_type == SVG:
            return text.encode()
        from base64 import b64decode

        return b64decode(text)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Dict[str, str]:
        return dict(self.data)

    def __repr__(self) -> str:
        return f"Display({', '.join(sorted(self.data))})"


class Receipt:
    """The controls that really held, as observed."""

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self._plain = dict(plain)
        self.provider: str = plain.get("provider", "")
        self.isolation: str = plain.get("isolation", "")
        self.policy_id: str = plain.get("policy_id", "")
        self.policy_hash: str = plain.get("policy_hash", "")
        self.environment: Any = plain.get("environment")
        self.controls: Dict[str, Any] = plain.get("controls") or {}
        self.network: str = plain.get("network", "")
        self.limits: Dict[str, Any] = plain.get("limits") or {}
        self.shown: List[str] = plain.get("shown") or []
        self.origin: str = plain.get("origin", "")

    def to_dict(self) -> Dict[str, Any]:
        return dict(self._plain)

    def __repr__(self) -> str:
        return f"Receipt(provider={self.provider!r}, policy_id={self.policy_id!r}, network={self.network!r})"


class Result:
    """What came of an execution: one type, wherever it ran.

    `str(result)` is what it printed. In a notebook it shows what the code displayed.
    """

    def __init__(self, execution: Mapping[str, Any]) -> None:
        outcome: Mapping[str, Any] = execution.get("outcome") or {}
        self._outcome = outcome
        self.execution_id: str = execution.get("execution_id", "")
        self.record: Dict[str, Any] = execution.get("record") or {}
        """Its row in the audit."""
        self.status = SandboxStatus(outcome.get("status") or execution.get("status") or "failed")
        self.sandbox_id: str = outcome.get("sandbox_id", "")
        self.exit_code: Optional[int] = outcome.get("exit_code")
        self.signal: Optional[int] = outcome.get("signal")
        self.stdout: str = outcome.get("stdout", "")
        self.stderr: str = outcome.get("stderr", "")
        self.state_lost: Optional[str] = outcome.get("state_lost")
        """What of a sandbox's state is gone: `variables`, or `variables and files`."""
        self.started_at: float = outcome.get("started_at", 0.0)
        """Seconds since the epoch."""
        self.completed_at: float = outcome.get("completed_at", 0.0)
        self.duration: float = outcome.get("duration", 0.0)
        """Seconds."""
        self.flags: List[str] = outcome.get("flags") or []
        self._value: Tuple[object, ...] = ()
        self._host_errors: List[BaseException] = []

    @property
    def success(self) -> bool:
        """Completed, and with exit code 0 (R5)."""
        return self.status is SandboxStatus.COMPLETED and self.exit_code == 0

    def __bool__(self) -> bool:
        return self.success

    @property
    def value(self) -> Any:
        """What the code's last expression gave, or what it returned, or its variable `result`."""
        if not self._value:
            self._value = (decode(self._outcome.get("value")),)
        return self._value[0]

    @property
    def stdout_bytes(self) -> bytes:
        """What it printed, as it was."""
        return self._bytes("stdout")

    @property
    def stderr_bytes(self) -> bytes:
        return self._bytes("stderr")

    def _bytes(self, stream: str) -> bytes:
        encoded: Optional[str] = self._outcome.get(f"{stream}_base64")
        if encoded is None:
            text: str = self._outcome.get(stream, "")
            return text.encode()
        from base64 import b64decode

        return b64decode(encoded)

    @property
    def truncated(self) -> bool:
        """Whether it printed more than was kept."""
        return bool(self._outcome.get("stdout_dropped") or self._outcome.get("stderr_dropped"))

    @property
    def output(self) -> Dict[str, Any]:
        """What it printed, and with what it exited."""
        return {"stdout": self.stdout, "stderr": self.stderr, "exit_code": self.exit_code}

    @property
    def exception(self) -> Optional[Raised]:
        """What the code raised."""
        raised: Optional[Mapping[str, Any]] = self._outcome.get("exception")
        if raised is None:
            return None
        return Raised(
            str(raised.get("type", "")),
            str(raised.get("message", "")),
            str(raised.get("traceback", "")),
            raised.get("line"),
            raised.get("column"),
        )

    @property
    def error_type(self) -> Optional[str]:
        """Why it failed, as a stable word such as `timeout` or `out_of_memory`; of an exception its name."""
        failure: Optional[Mapping[str, Any]] = self._outcome.get("error")
        if failure is None:
            return None
        raised = self.exception
        return raised.type if raised is not None else str(failure.get("type", ""))

    @property
    def error(self) -> Optional[str]:
        """Why it failed, for people."""
        failure: Optional[Mapping[str, Any]] = self._outcome.get("error")
        if failure is None:
            return None
        raised = self.exception
        if raised is not None:
            return f"{raised.type}: {raised.message}" if raised.message else raised.type
        return str(failure.get("message", ""))

    @property
    def displays(self) -> List[Display]:
        """What the code displayed: tables, pictures, figures."""
        shown: List[Mapping[str, Any]] = self._outcome.get("displays") or []
        return [Display(one.get("data") or {}, decode(one.get("value"))) for one in shown]

    @property
    def tool_calls(self) -> List[ToolCall]:
        """The host's functions that it called."""
        calls: List[Mapping[str, Any]] = self._outcome.get("tool_calls") or []
        return [ToolCall(*(one.get(field) for field in ToolCall._fields)) for one in calls]  # type: ignore[arg-type]

    @property
    def files(self) -> Dict[str, bytes]:
        """The files that were wanted back and are there."""
        from base64 import b64decode

        files: List[Mapping[str, Any]] = self._outcome.get("files") or []
        return {one["path"]: b64decode(one["base64"]) for one in files if one.get("base64") is not None}

    @property
    def files_refused(self) -> Dict[str, str]:
        """Those that are not, and why."""
        files: List[Mapping[str, Any]] = self._outcome.get("files") or []
        return {one["path"]: str(one.get("reason", "")) for one in files if one.get("base64") is None}

    @property
    def usage(self) -> Usage:
        used: Mapping[str, Any] = self._outcome.get("usage") or {}
        return Usage(used.get("wall_seconds", 0.0), used.get("cpu_seconds", 0.0), used.get("memory_peak"))

    @property
    def cpu_time(self) -> float:
        """Seconds of all processes together."""
        return self.usage.cpu_seconds

    @property
    def memory_peak(self) -> Optional[int]:
        """Bytes."""
        return self.usage.memory_peak

    @property
    def receipt(self) -> Receipt:
        """The controls that really held."""
        return Receipt(self._outcome.get("receipt") or {})

    def to_dict(self) -> Dict[str, Any]:
        """All of it as plain data, as `belljar run --json` prints it."""
        return dict(self._outcome)

    def check(self) -> Result:
        """Itself if it succeeded; otherwise raises what came of it."""
        failure: Optional[Mapping[str, Any]] = self._outcome.get("error")
        if failure is None and self.success:
            return self
        error = self._exception(str((failure or {}).get("type", "")), str((failure or {}).get("message", "")))
        error.result = self
        cause = self._cause()
        if cause is not None:
            raise error from cause
        raise error

    def _exception(self, kind: str, message: str) -> _errors.SandboxError:
        if self.status is SandboxStatus.TIMEOUT:
            return _errors.TimeoutError(message)
        if kind == "out_of_memory":
            return _errors.MemoryError(message)
        raised = self.exception
        if raised is None:
            tail = self.stderr.strip()[-2000:]
            return _errors.ExecutionError(f"{message}\n{tail}" if tail else message)
        made = _errors.raised_type(raised.type)
        if made is _errors.ExecutionError:
            return made(self.error or "")
        return made(_unquoted(raised.message) if raised.type == "KeyError" else raised.message)

    def _cause(self) -> Optional[BaseException]:
        """The host's own exception that came back through the guest, where it was that."""
        raised = self.exception
        if raised is None:
            return None
        same = [e for e in self._host_errors if type(e).__name__ == raised.type and str(e) == raised.message]
        return same[-1] if same else None

    def __str__(self) -> str:
        return self.stdout

    def __repr__(self) -> str:
        parts = [f"status={self.status.value!r}"]
        if self._outcome.get("value") is not None:
            shown = shown_value(self.value)
            parts.append(f"value={shown if len(shown) <= 80 else shown[:77] + '...'}")
        if self.stdout:
            shown = repr(self.stdout)
            parts.append(f"stdout={shown if len(shown) <= 80 else shown[:77] + '...'}")
        if self.error:
            parts.append(f"error={self.error[:120]!r}")
        return f"Result({', '.join(parts)})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Dict[str, str]:
        """What a notebook shows: the last of what was displayed, beside what was printed."""
        shown: Dict[str, str] = {}
        displays = self.displays
        if displays:
            shown.update(displays[-1].data)
        text = self.stdout
        if self.error:
            text += self.exception.traceback if self.exception else self.error
        elif self._outcome.get("value") is not None:
            text += shown_value(self.value)
        if text or "text/plain" not in shown:
            shown["text/plain"] = text
        return shown
