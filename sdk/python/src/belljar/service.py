"""Policies, and running code under them: the service of document 000.

The engine holds the policies, counts the quotas and keeps the records; this gives them the document's names.
"""

from __future__ import annotations

import logging
import math
import re
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, Dict, Generator, List, Mapping, Optional, Set, Tuple, Type, TypeVar, Union
from urllib.parse import quote, urlencode

from . import _client, _limits, _request
from ._batch import Failed
from ._client import Client
from ._errors import PolicyViolation, RequestError, SandboxError
from ._result import Result, SandboxStatus
from ._wire import execution

if TYPE_CHECKING:
    from ._request import LimitOptions

logger = logging.getLogger(__name__)

_STANDARD = "standard"
_EXECUTIONS = "/v1/executions"
_PAGE = 1000  # the most records in one answer
_STATS = ("total_executions", "by_status", "by_language", "by_policy", "avg_wall_time_seconds")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

Time = Union[datetime, float]


class IsolationLevel(str, Enum):
    """How strong the wall is, the weakest first."""

    NONE = "none"
    PROCESS = "process"
    CONTAINER = "container"
    VM = "vm"

    def __str__(self) -> str:
        return self.value


class NetworkPolicy(str, Enum):
    """What of a network there is."""

    NONE = "none"
    LOCAL = "local"
    """Loopback within the sandbox."""
    RESTRICTED = "restricted"
    """The hosts that are listed."""
    FULL = "full"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class SandboxPolicy:
    """Policy for sandbox execution.

    What it says is checked here, so that there is none with a limit that could not be (R6).
    """

    policy_id: str
    name: str
    isolation_level: IsolationLevel = IsolationLevel.PROCESS
    network_policy: NetworkPolicy = NetworkPolicy.NONE
    max_cpu_seconds: float = 30.0
    max_memory_mb: int = 256
    max_wall_time_seconds: float = 60.0
    max_processes: int = 10
    max_file_size_mb: int = 10
    allowed_languages: Set[str] = field(default_factory=lambda: {"python", "javascript", "bash"})
    max_executions_per_minute: int = 10
    max_executions_per_hour: int = 100
    allow_network: bool = False
    allow_file_write: bool = False
    require_approval: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", _limits.text("policy_id", self.policy_id)):
            raise ValueError(f"policy_id must be letters, digits, `-`, `_` and `.`, and is {self.policy_id!r}")
        _limits.text("name", self.name)
        self._set("isolation_level", word("isolation_level", IsolationLevel, self.isolation_level))
        self._set("network_policy", word("network_policy", NetworkPolicy, self.network_policy))
        for name in ("max_cpu_seconds", "max_wall_time_seconds"):
            self._set(name, _limits.seconds(name, getattr(self, name)))
        for name, least, most in (
            ("max_memory_mb", 8, _limits.MOST_MB),
            ("max_processes", 1, 32768),
            ("max_file_size_mb", 0, _limits.MOST_MB),
            ("max_executions_per_minute", 0, (1 << 32) - 1),
            ("max_executions_per_hour", 0, (1 << 32) - 1),
        ):
            _limits.whole(name, getattr(self, name), least, most)
        for name in ("allow_network", "allow_file_write", "require_approval"):
            _limits.flag(name, getattr(self, name))
        languages: object = self.allowed_languages
        if not isinstance(languages, (set, frozenset, list, tuple)):
            raise TypeError(f"allowed_languages must be a set of text, not {type(languages).__name__}")
        self._set("allowed_languages", {_limits.text("allowed_languages", language) for language in languages})

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def to_resource_limits(self) -> LimitOptions:
        """Its limits, as `run` and `Sandbox` take them: `run(code, **policy.to_resource_limits())`."""
        return {
            "cpu_seconds": self.max_cpu_seconds,
            "memory": self.max_memory_mb * _limits.MIB,
            "timeout": self.max_wall_time_seconds,
            "processes": self.max_processes,
            "file_size": self.max_file_size_mb * _limits.MIB,
        }

    def to_dict(self) -> Dict[str, Any]:
        """Its fields as plain data, as a policy file has them."""
        return _plain(self)


@dataclass(frozen=True)
class ExecutionRequest:
    """Request to execute code in a sandbox."""

    code: str
    language: str = "python"
    policy_id: Optional[str] = None
    """`standard` unless said."""
    environment: Optional[Dict[str, str]] = None
    """Variables."""
    files: Optional[Dict[str, bytes]] = None
    """For the work directory."""
    tenant_id: Optional[str] = None
    user_id: Optional[str] = None
    run_id: Optional[str] = None
    metadata: Dict[str, Any] = field(default_factory=dict)
    """For the record. What is no text is kept as JSON."""


@dataclass(frozen=True)
class ExecutionRecord:
    """Record of a sandbox execution for audit.

    It has the SHA-256 of the code, never the code.
    """

    record_id: str
    sandbox_id: str
    tenant_id: Optional[str]
    user_id: Optional[str]
    run_id: Optional[str]
    language: str
    code_hash: str
    policy_id: str
    status: SandboxStatus
    exit_code: Optional[int]
    wall_time_seconds: Optional[float]
    created_at: datetime
    completed_at: Optional[datetime]
    error_message: Optional[str]

    def to_dict(self) -> Dict[str, Any]:
        """Its fields as plain data; times as ISO 8601 has them."""
        return _plain(self)


class Records(List[ExecutionRecord]):
    """A page of records, the newest first."""

    next: Optional[int] = None
    """What to give as `before` for the next page; None on the last."""


class SandboxService:
    """High-level sandbox service.

    What a policy refuses is a result with status `failed` and error type `PolicyViolation`, whatever the reason: a
    language that it lacks, a wall that this machine does not have, a denied approval. Its `check()` raises the refusal.
    A quota that is used up is an exception, `QuotaExceeded`, which says when to come again.
    """

    def __init__(self, client: Optional[Client] = None) -> None:
        self._given = None if client is None else _client.chosen(client)

    @property
    def _client(self) -> Client:
        return _client.chosen(self._given)

    def execute(self, request: ExecutionRequest) -> Result:
        """Runs the code as a program under the request's policy, and waits for it, and for an approval that it needs.

        A tenant that is not known yet is added, where the service lets us.
        """
        client, steps = self._client, _execution(_wish(request))
        try:
            step = next(steps)
            while True:
                try:
                    told = client.call("POST", *step)
                except SandboxError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(told)
        except StopIteration as end:
            result: Result = end.value
            return result

    async def execute_async(self, request: ExecutionRequest) -> Result:
        """The same, awaited. Cancelling it ends the program."""
        client, steps = self._client.asynchronous(), _execution(_wish(request))
        try:
            step = next(steps)
            while True:
                try:
                    told = await client.call("POST", *step)
                except SandboxError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(told)
        except StopIteration as end:
            result: Result = end.value
            return result

    def define_policy(self, policy: SandboxPolicy) -> None:
        """Defines a policy, or defines it anew; what it says beyond these fifteen fields stays. Those that are built in
        cannot be changed."""
        if not isinstance(policy, SandboxPolicy):
            raise TypeError(f"policy must be a SandboxPolicy, not {type(policy).__name__}")
        known = self._find(policy.policy_id) or {}
        self._client.call("PUT", f"/v1/policies/{quote(policy.policy_id, safe='')}", {**known, **policy.to_dict()})

    def get_policy(self, policy_id: str) -> Optional[SandboxPolicy]:
        """The policy of that id; None if there is none."""
        found = self._find(_limits.text("policy_id", policy_id))
        return None if found is None else _policy(found)

    def list_policies(self) -> List[SandboxPolicy]:
        """Every policy, those that are built in among them."""
        return [_policy(one["policy"]) for one in self._client.call("GET", "/v1/policies")["policies"]]

    def get_execution_records(
        self,
        tenant_id: Optional[str] = None,
        user_id: Optional[str] = None,
        run_id: Optional[str] = None,
        status: Union[SandboxStatus, str, None] = None,
        since: Optional[Time] = None,
        until: Optional[Time] = None,
        limit: Optional[int] = 100,
        before: Optional[int] = None,
    ) -> Records:
        """Records of what ran and of what was refused, the newest first, as far as they fit what is given.

        `since` is the earliest time of their beginning, `until` the first that is too late. At most `limit` of them, or
        all with None; `before` is the `next` of the page before.
        """
        chosen: Dict[str, Any] = {
            name: _limits.text(name, value)
            for name, value in (("tenant_id", tenant_id), ("user_id", user_id), ("run_id", run_id))
            if value is not None
        }
        if status is not None:
            chosen["status"] = word("status", SandboxStatus, status).value
        for name, time in (("since", since), ("until", until)):
            if time is not None:
                chosen[name] = _timestamp(name, time)
        if limit is not None:
            _limits.whole("limit", limit, 1)
        if before is not None:
            chosen["before"] = _limits.whole("before", before, 0)
        client, found = self._client, Records()
        while True:
            size = _PAGE if limit is None else min(_PAGE, limit - len(found))
            page = client.call("GET", f"/v1/records?{urlencode({**chosen, 'limit': size})}")
            found += [_record(one) for one in page["records"]]
            found.next = chosen["before"] = page["next"]
            if found.next is None or (limit is not None and len(found) >= limit):
                return found

    def get_execution_stats(self, tenant_id: Optional[str] = None) -> Dict[str, Any]:
        """Figures over the records of a tenant, or of all: `total_executions`, `by_status`, `by_language`, `by_policy`
        and `avg_wall_time_seconds`; zeros where there are none."""
        query = "" if tenant_id is None else f"?{urlencode({'tenant_id': _limits.text('tenant_id', tenant_id)})}"
        told = self._client.call("GET", f"/v1/stats{query}")
        return {name: told[name] for name in _STATS}

    def _find(self, policy_id: str) -> Optional[Dict[str, Any]]:
        try:
            found = self._client.call("GET", f"/v1/policies/{quote(policy_id, safe='')}")
        except RequestError as error:
            if error.kind == "not_found":
                return None
            raise
        policy: Dict[str, Any] = found["policy"]
        return policy if policy["policy_id"] == policy_id else None


def _wish(request: ExecutionRequest) -> Dict[str, Any]:
    """The request as the wire wants it."""
    if not isinstance(request, ExecutionRequest):
        raise TypeError(f"request must be an ExecutionRequest, not {type(request).__name__}")
    for name, content in (request.files or {}).items():
        if not isinstance(content, bytes):
            raise TypeError(f"files[{name!r}] must be bytes, not {type(content).__name__}")
    wish, _ = _request.run(
        request.code,
        {
            "language": request.language,
            "policy": _STANDARD if request.policy_id is None else request.policy_id,
            "env": request.environment,
            "files": request.files,
            "tenant_id": request.tenant_id,
            "user_id": request.user_id,
            "run_id": request.run_id,
            "metadata": _metadata(request.metadata),
        },
    )
    # A program: what it raises is told on its stderr, and every variable is allowed.
    wish.pop("evaluate", None)
    return wish


def _metadata(given: object) -> Dict[str, str]:
    from json import dumps

    if not isinstance(given, Mapping):
        raise TypeError(f"metadata must be a mapping from text, not {type(given).__name__}")
    try:
        return {name: value if isinstance(value, str) else dumps(value) for name, value in given.items()}
    except (TypeError, ValueError) as error:
        raise type(error)(f"metadata holds what JSON has no place for: {error}") from None


def _execution(wish: Dict[str, Any]) -> Generator[Tuple[str, Dict[str, Any]], Any, Result]:
    """The steps of an execution: what to post, and where to. Each is sent its answer, or thrown what went wrong."""
    try:
        try:
            told = yield _EXECUTIONS, wish
        except RequestError as error:
            # It may be the tenant that is not there; else it is the policy, and asking again says so.
            if error.kind != "not_found" or "tenant_id" not in wish:
                raise
            try:
                yield "/v1/tenants", {"tenant_id": wish["tenant_id"]}
            except RequestError as refused:
                if refused.kind != "conflict":
                    raise error from None
            told = yield _EXECUTIONS, wish
        result = execution(told)
    except PolicyViolation as violation:
        result = Failed(violation)
    tenant, policy = wish.get("tenant_id"), wish["policy_id"]
    logger.debug("%s of tenant %s under policy %s: %s", wish["language"], tenant, policy, result.error or result.status)
    return result


def _policy(told: Mapping[str, Any]) -> SandboxPolicy:
    known = {one.name: told[one.name] for one in fields(SandboxPolicy)}
    return SandboxPolicy(**{**known, "allowed_languages": set(known["allowed_languages"])})


def _record(told: Mapping[str, Any]) -> ExecutionRecord:
    known = {one.name: told[one.name] for one in fields(ExecutionRecord)}
    known["status"] = SandboxStatus(known["status"])
    for name in ("created_at", "completed_at"):
        if known[name] is not None:
            # Rounded down, so that what began then is among what began `since` then.
            known[name] = _EPOCH + timedelta(microseconds=math.floor(known[name] * 1e6))
    return ExecutionRecord(**known)


def _plain(thing: Union[SandboxPolicy, ExecutionRecord]) -> Dict[str, Any]:
    plain: Dict[str, Any] = {}
    for one in fields(thing):
        value = getattr(thing, one.name)
        if isinstance(value, Enum):
            value = value.value
        elif isinstance(value, set):
            value = sorted(value)
        elif isinstance(value, datetime):
            value = value.isoformat()
        plain[one.name] = value
    return plain


Word = TypeVar("Word", bound=Enum)


def word(name: str, kind: Type[Word], value: object) -> Word:
    """One of an enum's words."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(one.value) for one in kind)
        raise ValueError(f"{name} must be one of {known}, not {value!r}") from None


def _timestamp(name: str, value: object) -> float:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name} has no time zone")
        return value.timestamp()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a datetime or seconds since the epoch, not {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a time, and is {value}")
    return float(value)
