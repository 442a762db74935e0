"""Document 000: policies, and running code under them (R1, R3, R6 to R19)."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Dict, List
from uuid import uuid4

import pytest

import belljar
from belljar import SandboxStatus, service
from belljar.service import (
    ExecutionRecord,
    ExecutionRequest,
    IsolationLevel,
    NetworkPolicy,
    SandboxPolicy,
    SandboxService,
)

DOCUMENT = (Path(__file__).parent / "documents" / "000.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    """What the document says about a class."""
    return DOCUMENT.split(f"### `{name}`\n")[1].split("\n\n")[0]


def fresh(word: str = "tenant") -> str:
    """A name that nothing else has: quotas and records of other tests do not count."""
    return f"{word}-{uuid4().hex[:12]}"


def ask(code: str = "print(1)", **more: Any) -> ExecutionRequest:
    return ExecutionRequest(code, **{"tenant_id": fresh(), **more})


def roomy(**more: Any) -> SandboxPolicy:
    """A policy under which a test can run as much as it likes."""
    rates = {"max_executions_per_minute": 100_000, "max_executions_per_hour": 100_000}
    return SandboxPolicy(**{"policy_id": fresh("policy"), "name": "Roomy", "allow_file_write": True, **rates, **more})


@pytest.fixture
def sandbox_service(client: belljar.Client) -> SandboxService:
    return SandboxService()


# What the document lists


@pytest.mark.parametrize(
    "kind", [SandboxPolicy, ExecutionRequest, ExecutionRecord], ids=lambda kind: str(kind.__name__)
)
def test_fields_are_the_documents(kind: Any) -> None:
    """R3, R14: names, order and types, letter by letter."""
    said = re.search(r"\*\*Class Variables:\*\* (.*)", section(kind.__name__))
    assert said is not None
    assert ", ".join(f"{one.name}: {one.type}" for one in dataclasses.fields(kind)) == said.group(1)


def test_there_are_fifteen_nine_and_fourteen_fields() -> None:
    assert [len(dataclasses.fields(kind)) for kind in (SandboxPolicy, ExecutionRequest, ExecutionRecord)] == [15, 9, 14]


def test_classes_methods_and_docstrings_are_the_documents() -> None:
    contract = re.findall(r"- name: (\w+)\n\s+methods: \[(.*)\]", DOCUMENT)
    assert len(contract) == 4
    ours = {"SandboxService": {"execute_async"}}
    for name, methods in contract:
        kind = getattr(service, name)
        public = {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
        assert public == {method for method in methods.split(", ") if method} | ours.get(name, set())
        docstring = re.search(r"\*\*Docstring:\*\* (.*)", section(name))
        assert docstring is not None and (kind.__doc__ or "").splitlines()[0] == docstring.group(1)
    assert service.logger.name == "belljar.service"


def test_policy_defaults() -> None:
    """R3."""
    policy = SandboxPolicy("p", "P")
    assert policy.to_dict() == {
        "policy_id": "p", "name": "P", "isolation_level": "process", "network_policy": "none", "max_cpu_seconds": 30.0,
        "max_memory_mb": 256, "max_wall_time_seconds": 60.0, "max_processes": 10, "max_file_size_mb": 10,
        "allowed_languages": ["bash", "javascript", "python"], "max_executions_per_minute": 10,
        "max_executions_per_hour": 100, "allow_network": False, "allow_file_write": False, "require_approval": False,
    }  # fmt: skip
    assert list(policy.to_dict()) == [one.name for one in dataclasses.fields(SandboxPolicy)]
    assert json.loads(json.dumps(policy.to_dict())) == policy.to_dict()


def test_enums_are_lower_case_words() -> None:
    """R1."""
    assert [level.value for level in IsolationLevel] == ["none", "process", "container", "vm"]
    assert [network.value for network in NetworkPolicy] == ["none", "local", "restricted", "full"]
    for word in (*IsolationLevel, *NetworkPolicy):
        assert json.dumps(word) == f'"{word.value}"' and str(word) == word.value == word.name.lower()


@pytest.mark.parametrize(
    "field, value, error",
    [
        ("policy_id", "", ValueError), ("policy_id", "a/b", ValueError), ("policy_id", "a b\n", ValueError),
        ("policy_id", 7, TypeError), ("name", None, TypeError), ("isolation_level", "moat", ValueError),
        ("network_policy", "wifi", ValueError), ("network_policy", None, ValueError),
        ("max_cpu_seconds", 0, ValueError),
        ("max_cpu_seconds", -1.0, ValueError), ("max_cpu_seconds", float("nan"), ValueError),
        ("max_cpu_seconds", float("inf"), ValueError), ("max_cpu_seconds", "30", TypeError),
        ("max_cpu_seconds", True, TypeError), ("max_wall_time_seconds", -5, ValueError),
        ("max_memory_mb", -1, ValueError),
        ("max_memory_mb", 7, ValueError), ("max_memory_mb", (1 << 24) + 1, ValueError),
        ("max_memory_mb", 64.5, TypeError),
        ("max_processes", 0, ValueError), ("max_processes", 32769, ValueError), ("max_file_size_mb", -1, ValueError),
        ("max_executions_per_minute", -1, ValueError), ("max_executions_per_hour", 1 << 32, ValueError),
        ("max_executions_per_hour", False, TypeError), ("allow_network", 1, TypeError),
        ("allow_file_write", "no", TypeError),
        ("require_approval", None, TypeError), ("allowed_languages", "python", TypeError),
        ("allowed_languages", {1}, TypeError), ("allowed_languages", {""}, ValueError),
    ],
)  # fmt: skip
def test_an_invalid_policy_cannot_be_made(field: str, value: Any, error: type) -> None:
    """R6: and the message names the field."""
    with pytest.raises(error, match=field):
        SandboxPolicy(**{"policy_id": "p", "name": "P", field: value})


def test_words_and_lists_become_what_the_fields_are() -> None:
    given: Any = {
        "isolation_level": "vm",
        "network_policy": "full",
        "allowed_languages": ["python"],
        "max_cpu_seconds": 1,
    }
    policy = SandboxPolicy("p", "P", **given)
    assert policy.isolation_level is IsolationLevel.VM and policy.network_policy is NetworkPolicy.FULL
    assert policy.allowed_languages == {"python"} and isinstance(policy.max_cpu_seconds, float)
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.max_memory_mb = -1  # type: ignore[misc]
    assert SandboxPolicy("q", "Q").allowed_languages is not SandboxPolicy("r", "R").allowed_languages


def test_resource_limits_are_what_run_takes(client: belljar.Client) -> None:
    """R3: the limits of a policy, for a run that names none."""
    limits = SandboxPolicy("p", "P", max_memory_mb=64, max_wall_time_seconds=7, max_processes=3).to_resource_limits()
    got = belljar.run("1", **limits).receipt.limits
    assert (got["memory"], got["wall_time"], got["processes"]) == (64 << 20, 7.0, 3)
    assert (got["cpu_time"], got["file_size"]) == (30.0, 10 << 20)


# Policies


def test_the_four_built_in_policies(sandbox_service: SandboxService) -> None:
    """R7."""

    def line(policy: SandboxPolicy) -> str:
        limits = (
            f"{policy.max_cpu_seconds:g}/{policy.max_memory_mb}/{policy.max_wall_time_seconds:g}/{policy.max_processes}"
        )
        network = policy.network_policy if policy.allow_network else "none"
        words = [policy.isolation_level, network, limits, ",".join(sorted(policy.allowed_languages))]
        return " ".join(
            [*words, "write" if policy.allow_file_write else "", "ask" if policy.require_approval else ""]
        ).strip()

    found = {policy.policy_id: policy for policy in sandbox_service.list_policies()}
    assert {name: line(found[name]) for name in ("restricted", "standard", "permissive", "high_security")} == {
        "restricted": "container none 10/128/30/5 javascript,python",
        "standard": "process none 30/256/60/10 bash,javascript,python write",
        "permissive": "process local 60/512/120/20 bash,javascript,python,shell,typescript write",
        "high_security": "container none 5/64/15/3 python  ask",
    }


def test_policies_come_back_as_they_were_defined(sandbox_service: SandboxService) -> None:
    """R17."""
    policy = SandboxPolicy(
        fresh("policy"), "All of it", IsolationLevel.CONTAINER, NetworkPolicy.LOCAL, 1.5, 64, 2.5, 3, 4,
        {"ruby", "lua"},
        5, 6, True, True, True,
    )  # fmt: skip
    assert sandbox_service.get_policy(policy.policy_id) is None
    sandbox_service.define_policy(policy)
    assert sandbox_service.get_policy(policy.policy_id) == policy
    assert [one for one in sandbox_service.list_policies() if one.policy_id == policy.policy_id] == [policy]
    changed = dataclasses.replace(policy, max_memory_mb=65)
    sandbox_service.define_policy(changed)
    assert sandbox_service.get_policy(policy.policy_id) == changed


def test_defining_anew_keeps_what_the_document_has_no_field_for(
    sandbox_service: SandboxService, client: belljar.Client
) -> None:
    """A policy that asks for more than these fields can say is not weakened by going through them."""
    name = fresh("policy")
    client.call("PUT", f"/v1/policies/{name}", {"forbidden_calls": ["eval"], "controls": {"landlock": "require"}})
    policy = sandbox_service.get_policy(name)
    assert policy is not None
    sandbox_service.define_policy(dataclasses.replace(policy, max_processes=2))
    told = client.call("GET", f"/v1/policies/{name}")["policy"]
    assert (told["max_processes"], told["forbidden_calls"], told["controls"]) == (2, ["eval"], {"landlock": "require"})


def test_what_cannot_be_defined(sandbox_service: SandboxService) -> None:
    with pytest.raises(belljar.RequestError, match="standard") as refused:
        sandbox_service.define_policy(SandboxPolicy("standard", "Mine"))
    assert refused.value.kind == "conflict"
    with pytest.raises(ValueError, match="allowed_languages"):
        sandbox_service.define_policy(roomy(allowed_languages={"cobol"}))
    with pytest.raises(TypeError, match="policy"):
        sandbox_service.define_policy({"policy_id": "x"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="policy_id"):
        sandbox_service.get_policy(7)  # type: ignore[arg-type]
    assert sandbox_service.get_policy("../records") is None


# Executing


def test_execute_gives_the_one_result(sandbox_service: SandboxService) -> None:
    """R4, R5, and R8: without a policy id it is `standard`."""
    result = sandbox_service.execute(ask("import sys; print('out'); print('err', file=sys.stderr)"))
    assert isinstance(result, belljar.Result) and result.success and result.status is SandboxStatus.COMPLETED
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 0)
    assert result.duration > 0 and result.error is None and result.usage.cpu_seconds > 0
    assert result.receipt.policy_id == "standard" == result.record["policy_id"]


def test_a_program_that_fails_is_a_result(sandbox_service: SandboxService) -> None:
    result = sandbox_service.execute(ask("1 / 0"))
    assert result.status is SandboxStatus.FAILED and result.exit_code == 1 and not result.success
    assert "ZeroDivisionError" in result.stderr


def test_what_the_request_carries_arrives(sandbox_service: SandboxService) -> None:
    code = "import os; print(os.environ['COLOUR'], open('a/b.bin', 'rb').read())"
    request = ask(
        code, environment={"COLOUR": "blue"}, files={"a/b.bin": b"\xff\x00"}, metadata={"case": 7, "tag": "x"}
    )
    result = sandbox_service.execute(request)
    assert result.stdout == "blue b'\\xff\\x00'\n"
    assert sandbox_service.execute(ask("echo $0 | wc -c", language="bash")).exit_code == 0


def test_metadata_stands_in_the_record(sandbox_service: SandboxService, client: belljar.Client) -> None:
    result = sandbox_service.execute(ask(metadata={"case": 7, "tag": "x"}))
    assert client.call("GET", f"/v1/records/{result.record['record_id']}")["metadata"] == {"case": "7", "tag": "x"}


def test_an_unknown_policy_is_an_error(sandbox_service: SandboxService) -> None:
    """R8: also where the tenant is new."""
    for tenant in (fresh(), None):
        with pytest.raises(belljar.RequestError, match="no-such-policy") as unknown:
            sandbox_service.execute(ask(policy_id="no-such-policy", tenant_id=tenant))
        assert unknown.value.kind == "not_found"


def test_a_language_that_the_policy_lacks(sandbox_service: SandboxService) -> None:
    """R9: failed, PolicyViolation, nothing runs; R14: and on record."""
    tenant = fresh()
    result = sandbox_service.execute(ask("puts 1", language="ruby", policy_id="standard", tenant_id=tenant))
    assert result.status is SandboxStatus.FAILED and result.error_type == "PolicyViolation"
    assert "ruby" in (result.error or "") and (result.stdout, result.exit_code, result.duration) == ("", None, 0.0)
    with pytest.raises(belljar.PolicyViolation) as refused:
        result.check()
    assert refused.value.code == "language_not_allowed" and "allowed_languages" in refused.value.fix
    (record,) = sandbox_service.get_execution_records(tenant_id=tenant)
    assert (
        record.record_id == result.record["record_id"] and record.wall_time_seconds is None and record.sandbox_id == ""
    )
    assert (record.error_message or "").startswith("PolicyViolation")


def test_a_wall_that_is_not_there_is_refused(sandbox_service: SandboxService) -> None:
    """R36: never served by a weaker one. There may be containers here, but never a machine of its own."""
    policy = SandboxPolicy(fresh("policy"), "A machine of its own", IsolationLevel.VM)
    sandbox_service.define_policy(policy)
    result = sandbox_service.execute(ask(policy_id=policy.policy_id))
    assert result.status is SandboxStatus.FAILED and result.error_type == "PolicyViolation"
    assert "vm isolation" in (result.error or "")


def test_what_cannot_be_asked_for_is_named(sandbox_service: SandboxService) -> None:
    for request, error, name in (
        (ask(7), TypeError, "code"),  # type: ignore[arg-type]
        (ask(language="cobol"), ValueError, "language"),
        (ask(environment={"A": 1}), TypeError, "env"),
        (ask(files={"a": "text"}), TypeError, "files"),
        (ask(metadata={"a": object()}), TypeError, "metadata"),
        (ask(metadata=[]), TypeError, "metadata"),
        (ask(policy_id=3), TypeError, "policy"),
        ("code", TypeError, "request"),
    ):
        with pytest.raises(error, match=name):
            sandbox_service.execute(request)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="client"):
        SandboxService("http://127.0.0.1:1")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "a\0b"])
def test_files_stay_in_the_work_directory(sandbox_service: SandboxService, name: str) -> None:
    """R19: before anything starts, and without a record."""
    tenant = fresh()
    with pytest.raises(ValueError, match="files"):
        sandbox_service.execute(ask(files={name: b"x"}, tenant_id=tenant))
    assert sandbox_service.get_execution_records(tenant_id=tenant) == []


def test_the_environment_raises_no_limit(sandbox_service: SandboxService) -> None:
    """R18: variables of a request are the program's alone."""
    names = ("BELLJAR_MEMORY", "BELLJAR_TIMEOUT", "BELLJAR_POLICY", "MAX_MEMORY_MB", "SANDBOX_MAX_MEMORY_MB")
    result = sandbox_service.execute(ask("pass", environment={name: "4096" for name in names}))
    assert (result.receipt.policy_id, result.receipt.limits["memory"]) == ("standard", 256 << 20)
    assert result.receipt.limits["wall_time"] == 60.0


def test_limits_above_a_policy_are_denied_and_below_it_given(sandbox_service: SandboxService) -> None:
    """R18: whoever asks beside a policy may only lower."""
    policy = roomy(max_memory_mb=64)
    sandbox_service.define_policy(policy)
    with pytest.raises(belljar.Denied) as refused:
        belljar.run("1", policy=policy.policy_id, memory="65M")
    assert refused.value.code == "limit_exceeds_policy"
    assert belljar.run("1", policy=policy.policy_id, memory="48M").receipt.limits["memory"] == 48 << 20


@pytest.mark.parametrize("path", ["x", "/tmp/x", "/dev/shm/x"])
def test_writing_files_may_be_forbidden(sandbox_service: SandboxService, path: str) -> None:
    """R13."""
    for allowed in (False, True):
        policy = roomy(allow_file_write=allowed)
        sandbox_service.define_policy(policy)
        result = sandbox_service.execute(
            ask(f"open({path!r}, 'w').write('x'); print('written')", policy_id=policy.policy_id)
        )
        assert result.success is allowed and ("written" in result.stdout) is allowed, result


async def test_execute_async(sandbox_service: SandboxService) -> None:
    result = await sandbox_service.execute_async(ask("print(6 * 7)"))
    assert result.stdout == "42\n" and result.receipt.policy_id == "standard"
    refused = await sandbox_service.execute_async(ask("puts 1", language="ruby"))
    assert refused.status is SandboxStatus.FAILED and refused.error_type == "PolicyViolation"
    with pytest.raises(belljar.RequestError, match="no-such-policy"):
        await sandbox_service.execute_async(ask(policy_id="no-such-policy"))


# Quotas


def test_the_eleventh_in_a_minute_exceeds(sandbox_service: SandboxService) -> None:
    """R10: and another tenant is unaffected; a refusal costs nothing."""
    tenant = fresh()
    sandbox_service.execute(ask("puts 1", language="ruby", tenant_id=tenant))
    for _ in range(10):
        assert sandbox_service.execute(ask("pass", tenant_id=tenant)).success
    with pytest.raises(belljar.QuotaExceeded) as exceeded:
        sandbox_service.execute(ask("pass", tenant_id=tenant))
    # It is counted in whole seconds, the one that has begun among them.
    assert exceeded.value.rule == "max_executions_per_minute" and 0 < (exceeded.value.retry_after or 0) <= 61
    assert isinstance(exceeded.value, belljar.Denied)
    assert sandbox_service.execute(ask("pass")).success
    stats = sandbox_service.get_execution_stats(tenant)
    assert stats["by_status"] == {"completed": 10, "failed": 2}


def test_an_hour_has_its_own_quota(sandbox_service: SandboxService) -> None:
    """R10: one more than the hour gives, however many the minute would."""
    policy = roomy(max_executions_per_hour=2)
    sandbox_service.define_policy(policy)
    tenant = fresh()
    for _ in range(2):
        assert sandbox_service.execute(ask("pass", tenant_id=tenant, policy_id=policy.policy_id)).success
    with pytest.raises(belljar.QuotaExceeded) as exceeded:
        sandbox_service.execute(ask("pass", tenant_id=tenant, policy_id=policy.policy_id))
    assert exceeded.value.rule == "max_executions_per_hour" and (exceeded.value.retry_after or 0) > 60


def test_parallel_calls_cannot_exceed_a_quota(sandbox_service: SandboxService) -> None:
    """R11: and a new tenant of which many threads are the first is added once."""
    tenant = fresh()

    def once(_: int) -> bool:
        try:
            return sandbox_service.execute(ask("pass", tenant_id=tenant)).success
        except belljar.QuotaExceeded:
            return False

    with ThreadPoolExecutor(16) as pool:
        assert sorted(pool.map(once, range(24))) == [False] * 14 + [True] * 10


# Approvals


def pending(client: belljar.Client, tenant: str) -> Dict[str, Any]:
    """What waits for approval, as soon as it does."""
    for _ in range(200):
        for approval in client.call("GET", "/v1/approvals?state=pending")["approvals"]:
            if approval["tenant_id"] == tenant:
                return dict(approval)
        time.sleep(0.05)
    raise AssertionError("nothing waits for approval")


@pytest.mark.parametrize("word", ["grant", "deny"])
def test_approval_holds_a_run(sandbox_service: SandboxService, client: belljar.Client, word: str) -> None:
    """R12: it runs when it is granted; a denial ends it."""
    policy, tenant = roomy(require_approval=True), fresh()
    sandbox_service.define_policy(policy)
    results: List[belljar.Result] = []
    request = ask("print('approved')", policy_id=policy.policy_id, tenant_id=tenant)
    thread = threading.Thread(target=lambda: results.append(sandbox_service.execute(request)))
    thread.start()
    approval = pending(client, tenant)
    assert approval["request"]["code"] == "print('approved')"
    time.sleep(0.2)
    assert results == [] and thread.is_alive()
    client.call("POST", f"/v1/approvals/{approval['approval_id']}/{word}", {"reason": "as tests do"})
    thread.join(30)
    (result,) = results
    if word == "grant":
        assert result.success and result.stdout == "approved\n"
    else:
        assert result.status is SandboxStatus.FAILED and result.error_type == "PolicyViolation" and result.stdout == ""
        with pytest.raises(belljar.Denied) as refused:
            result.check()
        assert refused.value.code == "approval_denied"
    (record,) = sandbox_service.get_execution_records(tenant_id=tenant)
    assert record.status is result.status


# Records and figures


def test_one_record_for_each(sandbox_service: SandboxService, client: belljar.Client) -> None:
    """R14: with the hash of the code and never the code."""
    tenant, code = fresh(), f"print('{fresh('secret')}')"
    began = datetime.now(timezone.utc)
    ran = sandbox_service.execute(ask(code, tenant_id=tenant, user_id="ann", run_id="run-1"))
    sandbox_service.execute(ask(code, tenant_id=tenant, language="ruby"))
    refused, record = sandbox_service.get_execution_records(tenant_id=tenant)
    assert record == ExecutionRecord(
        record.record_id, ran.sandbox_id, tenant, "ann", "run-1", "python", hashlib.sha256(code.encode()).hexdigest(),
        "standard", SandboxStatus.COMPLETED, 0, ran.duration, record.created_at, record.completed_at, None,
    )  # fmt: skip
    assert record.completed_at is not None and began <= record.created_at <= record.completed_at
    assert record.created_at.utcoffset() == timedelta(0)
    assert (refused.status, refused.language, refused.exit_code) == (SandboxStatus.FAILED, "ruby", None)
    told = client.call("GET", f"/v1/records?tenant_id={tenant}")
    assert code not in json.dumps(told) and code[7:-2] not in json.dumps(told)
    plain = record.to_dict()
    assert list(plain) == [one.name for one in dataclasses.fields(ExecutionRecord)]
    assert plain["status"] == "completed" and datetime.fromisoformat(plain["created_at"]) == record.created_at
    assert json.loads(json.dumps(plain)) == plain


def test_records_are_filtered_and_paged(sandbox_service: SandboxService) -> None:
    """R15: by tenant, user, run, status and time."""
    tenant, other = fresh(), fresh()
    for number, (user, run, code) in enumerate(
        [
            ("ann", "r1", "pass"),
            ("bob", "r1", "exit(1)"),
            ("ann", "r2", "pass"),
            ("bob", "r2", "exit(1)"),
            ("ann", "r3", "pass"),
        ]
    ):
        sandbox_service.execute(ask(f"{code} # {number}", tenant_id=tenant, user_id=user, run_id=run))
    sandbox_service.execute(ask("pass", tenant_id=other, user_id="ann", run_id="r1"))
    get = sandbox_service.get_execution_records

    def runs(**chosen: Any) -> List[str]:
        return [f"{record.user_id} {record.run_id}" for record in get(tenant_id=tenant, **chosen)]

    everything = ["ann r3", "bob r2", "ann r2", "bob r1", "ann r1"]
    assert runs() == everything and runs(limit=None) == everything
    assert runs(user_id="bob") == ["bob r2", "bob r1"]
    assert runs(run_id="r1") == ["bob r1", "ann r1"]
    assert runs(status="failed") == runs(status=SandboxStatus.FAILED) == ["bob r2", "bob r1"]
    assert (
        runs(user_id="ann", run_id="r2", status="completed") == ["ann r2"]
        and runs(user_id="ann", status="failed") == []
    )
    assert {record.tenant_id for record in get(user_id="ann", run_id="r1", limit=None)} >= {tenant, other}

    middle = get(tenant_id=tenant)[2].created_at
    assert runs(since=middle) == everything[:3] and runs(until=middle) == everything[3:]
    assert runs(since=middle.timestamp(), until=middle + timedelta(microseconds=2)) == ["ann r2"]
    assert runs(since=datetime.now(timezone.utc) + timedelta(hours=1)) == []

    first = get(tenant_id=tenant, limit=2)
    second = get(tenant_id=tenant, limit=2, before=first.next)
    third = get(tenant_id=tenant, limit=2, before=second.next)
    assert [len(page) for page in (first, second, third)] == [2, 2, 1] and third.next is None
    assert [*first, *second, *third] == get(tenant_id=tenant)


def test_more_records_than_one_answer_has(sandbox_service: SandboxService, monkeypatch: pytest.MonkeyPatch) -> None:
    """R15: `limit` may be any number."""
    tenant = fresh()
    for _ in range(5):
        sandbox_service.execute(ask("puts 1", language="ruby", tenant_id=tenant))
    whole = sandbox_service.get_execution_records(tenant_id=tenant)
    monkeypatch.setattr(service, "_PAGE", 2)
    assert sandbox_service.get_execution_records(tenant_id=tenant, limit=None) == whole and len(whole) == 5
    assert sandbox_service.get_execution_records(tenant_id=tenant, limit=3) == whole[:3]


@pytest.mark.parametrize(
    "wrong, error",
    [
        ({"limit": 0}, ValueError), ({"limit": "7"}, TypeError), ({"status": "odd"}, ValueError),
        ({"since": datetime(2026, 1, 1)}, ValueError), ({"until": "today"}, TypeError),
        ({"since": float("nan")}, ValueError),
        ({"tenant_id": 7}, TypeError), ({"before": -1}, ValueError),
    ],
)  # fmt: skip
def test_a_filter_that_cannot_be_is_named(sandbox_service: SandboxService, wrong: Dict[str, Any], error: type) -> None:
    with pytest.raises(error, match=next(iter(wrong))):
        sandbox_service.get_execution_records(**wrong)


def test_figures(sandbox_service: SandboxService) -> None:
    """R16: five keys, and zeros where there is nothing."""
    tenant = fresh()
    empty = {"total_executions": 0, "by_status": {}, "by_language": {}, "by_policy": {}, "avg_wall_time_seconds": 0.0}
    assert sandbox_service.get_execution_stats(tenant) == empty
    durations = [sandbox_service.execute(ask("pass", tenant_id=tenant)).duration for _ in range(2)]
    durations.append(sandbox_service.execute(ask("exit 3", language="bash", tenant_id=tenant)).duration)
    sandbox_service.execute(ask("puts 1", language="ruby", tenant_id=tenant))
    stats = sandbox_service.get_execution_stats(tenant)
    assert stats.pop("avg_wall_time_seconds") == pytest.approx(sum(durations) / 3)
    assert stats == {
        "total_executions": 4, "by_status": {"completed": 2, "failed": 2}, "by_policy": {"standard": 4},
        "by_language": {"python": 2, "bash": 1, "ruby": 1},
    }  # fmt: skip
    assert sandbox_service.get_execution_stats()["total_executions"] >= 4
    with pytest.raises(TypeError, match="tenant_id"):
        sandbox_service.get_execution_stats(7)  # type: ignore[arg-type]


def test_a_key_adds_no_tenant_that_it_may_not_add(service: str) -> None:
    """A service's own error, where it does not let us."""
    with belljar.connect(service, default=False) as admin:
        key = admin.call("POST", "/v1/keys", {"roles": ["run", "read"]})["key"]
        with belljar.connect(service, key, default=False) as client:
            name = fresh()
            with pytest.raises(belljar.RequestError, match=name) as unknown:
                SandboxService(client).execute(ask(tenant_id=name))
            assert unknown.value.kind == "not_found"
        assert name not in json.dumps(admin.call("GET", "/v1/tenants"))
