"""Document 001: executing code and files (R20 to R32, R36, R37)."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, List, Union
from uuid import uuid4

import pytest
from conftest import start_service

import belljar
from belljar import SandboxStatus, execution
from belljar._engine import find_executable
from belljar.execution import (
    CodeExecutionConfig,
    ExecutionResult,
    SecureToAutoRun,
    execute_code,
    execute_file,
    run_code,
)
from belljar.service import IsolationLevel, NetworkPolicy

DOCUMENT = (Path(__file__).parent / "documents" / "001.md").read_text(encoding="utf-8")


def processes(mark: str) -> List[int]:
    """Those of this machine with this among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@contextmanager
def watching(mark: str) -> Iterator[List[int]]:
    """How many of them there are, counted again and again meanwhile."""
    most: List[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            most.append(len(processes(mark)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        stop.set()
        watcher.join()


def gone(mark: str) -> bool:
    """Whether they are gone, at once or within a second."""
    for _ in range(20):
        if not processes(mark):
            return True
        time.sleep(0.05)
    return False


# What the document says


def test_the_public_interface_is_the_documents() -> None:
    """R20: letter by letter; what we add comes after it, by name alone."""
    said = re.findall(r"^- `(\w+)\((.*)\) -> (\w+)`$", DOCUMENT, re.MULTILINE)
    assert [name for name, _, _ in said] == ["execute_code", "execute_file"]
    for name, parameters, result in said:
        signature = inspect.signature(getattr(execution, name))
        first = [one for one in signature.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
        shown = ", ".join(str(one.replace(annotation=_named(one))).replace("'", '"') for one in first)
        assert shown == parameters and signature.return_annotation == result == "ExecutionResult"
        others = [one for one in signature.parameters.values() if one not in first]
        assert all(one.kind is one.KEYWORD_ONLY and one.default is not one.empty for one in others)
    assert "`run_code(script)`" in DOCUMENT
    assert next(iter(inspect.signature(run_code).parameters)) == "script"
    for name in re.findall(r"`(CodeExecutionConfig|SecureToAutoRun|ExecutionResult)`", DOCUMENT):
        assert inspect.isclass(getattr(execution, name))


class _Word:
    """An annotation that is shown as it is written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _named(parameter: inspect.Parameter) -> _Word:
    # Whatever names a file is taken, a `Path` among them.
    return _Word({"Union[str, os.PathLike[str]]": "Path"}.get(parameter.annotation, parameter.annotation))


def test_the_result_is_the_one_result(client: belljar.Client) -> None:
    """R4: with the document's four among its fields."""
    said = re.search(r"standard `ExecutionResult` \((.*)\)", DOCUMENT)
    assert said is not None and ExecutionResult is belljar.Result
    result = execute_code("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert said.group(1) == "stdout, stderr, exit_code, duration"
    assert [getattr(result, name) for name in said.group(1).split(", ")][:3] == ["out\n", "err\n", 3]
    assert isinstance(result, ExecutionResult) and 0 < result.duration < 30 and not result.success


# Code and files


def test_python_is_the_default(client: belljar.Client) -> None:
    """R20."""
    assert execute_code("import sys; print(sys.version_info[0])").stdout == "3\n"
    assert run_code("print(6 * 7)").stdout == "42\n"
    assert execute_code("echo $((6 * 7))", "bash").stdout == "42\n"
    assert run_code("console.log(6 * 7)", "javascript").stdout == "42\n"


def test_what_it_is_given_arrives(client: belljar.Client) -> None:
    code = "import sys; print(sys.argv[1:], input(), open('a').read()); open('b', 'w').write('out')"
    result = execute_code(code, args=["x y", "--z"], stdin="in\n", files={"a": b"file"}, outputs=["b"])
    assert result.stdout == "['x y', '--z'] in file\n" and result.files == {"b": b"out"}
    assert execute_code("import os; print(os.environ['A'])", config=CodeExecutionConfig(env={"A": "b"})).stdout == "b\n"


def test_a_traceback_is_on_stderr(client: belljar.Client) -> None:
    result = execute_code("1 / 0")
    assert result.exit_code == 1 and result.stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    "name, code",
    [
        ("a.py", "print(6 * 7)"), ("a.PY", "print(6 * 7)"), ("a.js", "console.log(6 * 7)"),
        ("a.mjs", "console.log(6 * 7)"),
        ("a.sh", "echo $((6 * 7))"), ("a.bash", "echo $((6 * 7)) | { read x; echo ${x^^}; }"),
        ("program", "#!/usr/bin/env python3\nprint(6 * 7)"), ("other", "#!/bin/bash -e\necho $((6 * 7))"),
        ("odd.txt", "#!/usr/bin/env -S node --no-warnings\nconsole.log(6 * 7)"),
    ],
)  # fmt: skip
def test_a_file_is_run_by_its_ending(client: belljar.Client, tmp_path: Path, name: str, code: str) -> None:
    """R20: else by its first line."""
    path = tmp_path / name
    path.write_text(code)
    assert execute_file(path).stdout == "42\n"
    assert execute_file(str(path)).stdout == "42\n"


def test_a_file_with_no_language(client: belljar.Client, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("print(6 * 7)")
    with pytest.raises(ValueError, match="notes.txt"):
        execute_file(path)
    assert execute_file(path, language="python").stdout == "42\n"
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="UTF-8"):
        execute_file(path, language="python")
    with pytest.raises(FileNotFoundError):
        execute_file(tmp_path / "missing.py")
    with pytest.raises(TypeError, match="path"):
        execute_file(7)  # type: ignore[arg-type]


def test_endings_are_the_engines() -> None:
    """The table here is the one that `belljar run FILE` has."""
    told = json.loads(
        subprocess.run([find_executable(), "languages", "--json"], capture_output=True, check=True).stdout
    )
    assert execution._ENDINGS == {ending: one["language"] for one in told for ending in one["extensions"]}


# What may be asked for


def test_configuration_defaults() -> None:
    """R21, R26: thirty seconds, no network, no files of the host, a wall."""
    config = CodeExecutionConfig()
    assert (config.timeout, config.network, tuple(config.mounts)) == (30.0, NetworkPolicy.NONE, ())
    assert config.isolation is IsolationLevel.PROCESS and config.policy is None


def test_the_timeout_is_what_it_says(client: belljar.Client) -> None:
    """R21: 30 s unless said."""
    assert execute_code("1").receipt.limits["wall_time"] == 30.0
    assert execute_code("1", config=CodeExecutionConfig(timeout=300)).receipt.limits["wall_time"] == 300.0


def test_a_policy_may_say_more_than_300_seconds(client: belljar.Client) -> None:
    """R21: otherwise that is the most."""
    with pytest.raises(ValueError, match="timeout must be at most 300"):
        CodeExecutionConfig(timeout=300.5)
    client.call("PUT", "/v1/policies/patient", {"extends": "standard", "max_wall_time_seconds": 400})
    config = CodeExecutionConfig(timeout=400, policy="patient")
    assert execute_code("1", config=config).receipt.limits["wall_time"] == 400.0
    with pytest.raises(belljar.Denied):
        execute_code("1", config=CodeExecutionConfig(timeout=401, policy="patient"))


@pytest.mark.parametrize(
    "field, value, error",
    [
        ("timeout", 0, ValueError), ("timeout", -1, ValueError), ("timeout", 10**400, ValueError),
        ("timeout", float("nan"), ValueError),
        ("timeout", float("inf"), ValueError), ("timeout", "30s", TypeError), ("timeout", True, TypeError),
        ("memory", -1, ValueError), ("memory", [], TypeError), ("cpu_seconds", -1, ValueError),
        ("processes", 1.5, TypeError),
        ("processes", -1, ValueError), ("open_files", "7", TypeError), ("file_size", float("nan"), ValueError),
        ("disk", -1, ValueError), ("output_limit", None.__class__, TypeError), ("network", "wifi", ValueError),
        ("mounts", "a:b", TypeError), ("mounts", [7], TypeError), ("env", {"A": 1}, TypeError),
        ("policy", 7, TypeError),
        ("isolation", "moat", ValueError), ("environment", 7, TypeError),
    ],
)  # fmt: skip
def test_an_invalid_configuration_cannot_be_made(field: str, value: object, error: type) -> None:
    """R6: and the message names the field."""
    with pytest.raises(error, match=field):
        CodeExecutionConfig(**{field: value})  # type: ignore[arg-type]


def test_wrong_arguments_are_named() -> None:
    for call, name in (
        (lambda: execute_code(7), "code"),  # type: ignore[arg-type]
        (lambda: execute_code("1", 7), "language"),  # type: ignore[arg-type]
        (lambda: execute_code("1", config={"timeout": 1}), "config"),  # type: ignore[arg-type]
        (lambda: execute_code("1", guard=True), "guard"),  # type: ignore[arg-type]
        (lambda: execute_code("1", args="x"), "args"),
        (lambda: execute_code("1", stdin=7), "stdin"),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=name):
            call()
    with pytest.raises(ValueError, match="files"):
        execute_code("1", files={"../x": b""})


# Limits


def test_an_endless_loop_ends_near_its_limit(client: belljar.Client) -> None:
    """R22: and no descendant survives, whatever it did to get away. R32."""
    mark = f"600.{uuid4().int % 10**12}"
    code = f"""
import os, signal, subprocess
subprocess.Popen(["sleep", "{mark}"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.execvp("sleep", ["sleep", "{mark}"])
    os._exit(0)
print("started", flush=True)
while True: pass
"""
    began = time.monotonic()
    with watching(mark) as most:
        result = execute_code(code, config=CodeExecutionConfig(timeout=1.5))
    took = time.monotonic() - began
    assert result.status is SandboxStatus.TIMEOUT and result.stdout == "started\n" and result.error_type == "timeout"
    assert 1.4 < result.duration < 10 and took < 30
    assert max(most) >= 2, "the sleepers were there"
    assert gone(mark)
    with pytest.raises(TimeoutError):
        result.check()


@pytest.mark.parametrize(
    "code", ["print(1)", "raise SystemExit(3)", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"]
)
def test_nothing_is_left(client: belljar.Client, code: str) -> None:
    """R32: after success, failure and a crash."""
    mark = f"600.{uuid4().int % 10**12}"
    result = execute_code(f"import subprocess; subprocess.Popen(['sleep', '{mark}'], start_new_session=True)\n{code}")
    assert result.success is (code == "print(1)")
    assert gone(mark)
    if "SIGSEGV" in code:
        assert result.signal == signal.SIGSEGV and result.status is SandboxStatus.FAILED


def test_a_memory_overrun_has_a_type_of_its_own(client: belljar.Client) -> None:
    """R23."""
    result = execute_code(
        "kept = []\nwhile True: kept.append(b'x' * (1 << 20))", config=CodeExecutionConfig(memory="64M")
    )
    assert result.status is SandboxStatus.FAILED and result.error_type == "out_of_memory"
    with pytest.raises(MemoryError) as large:
        result.check()
    assert isinstance(large.value, belljar.MemoryError)


def test_a_fork_bomb_is_contained(client: belljar.Client) -> None:
    """R24: and the next one runs as if nothing had been."""
    mark = uuid4().hex
    # A bomb that goes off again and again, in a process with a name that can be looked for.
    bomb = f"import os, sys\n{mark!r}\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    began = time.monotonic()
    with watching(mark) as most:
        code = f"import os, sys\nos.execv(sys.executable, [sys.executable, '-c', {bomb!r}])"
        result = execute_code(code, config=CodeExecutionConfig(timeout=2, processes=8))
    assert (
        result.status in (SandboxStatus.TIMEOUT, SandboxStatus.FAILED, SandboxStatus.KILLED)
        and time.monotonic() - began < 60
    )
    assert 1 < max(most) <= 16, most
    assert gone(mark)
    assert execute_code("print('fine')").stdout == "fine\n"


@pytest.mark.parametrize(
    "limit, code, sign",
    [
        ({"file_size": "1M"}, "open('x', 'wb').write(b'x' * (2 << 20))", "File too large"),
        ({"open_files": 32}, "kept = [open('/dev/null') for _ in range(64)]", "Too many open files"),
        (
            {"processes": 4},
            "import subprocess\nfor _ in range(16): subprocess.Popen(['sleep', '5'])",
            "Resource temporarily",
        ),
        ({"disk": "8M"}, "for n in range(4): open(str(n), 'wb').write(b'x' * (4 << 20))", "No space left"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_limit_bites(client: belljar.Client, limit: Any, code: str, sign: str) -> None:
    """R25: and without it the same program works."""
    result = execute_code(code, config=CodeExecutionConfig(**limit))
    assert result.status is SandboxStatus.FAILED and sign in result.stderr, result.stderr
    enough: Any = {"file_size": "8M", "open_files": 128, "processes": 40, "disk": "64M"}
    assert execute_code(code, config=CodeExecutionConfig(**enough)).success


def test_cpu_time_is_limited(client: belljar.Client) -> None:
    """R25: of all processes together, whatever the clock says."""
    result = execute_code(
        "import os\nos.fork()\nwhile True: pass", config=CodeExecutionConfig(cpu_seconds=1, timeout=20)
    )
    assert result.status is SandboxStatus.TIMEOUT and result.error_type == "cpu_time" and result.duration < 10
    assert 0.9 < result.cpu_time < 5


def test_output_is_capped_with_a_marker(client: belljar.Client) -> None:
    """R31: and the rest is neither kept nor waited for."""
    code = "import sys\nfor _ in range(64): sys.stdout.write('x' * (1 << 20))\nprint('end', file=sys.stderr)"
    result = execute_code(code, config=CodeExecutionConfig(output_limit="1M"))
    assert result.success and result.truncated and result.stderr == "end\n"
    assert len(result.stdout) < (1 << 20) + 200 and re.search(
        r"\[belljar: cut after 1 MiB, .* more dropped\]\n$", result.stdout
    )


# What it cannot reach


@pytest.fixture
def listener() -> Iterator[int]:
    """A port of this machine on which somebody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_the_network_is_blocked(client: belljar.Client, listener: int) -> None:
    """R26: the host's own included, also with loopback of its own."""
    socket.create_connection(("127.0.0.1", listener), 5).close()
    for network in ("none", "local"):
        for host, port in (("127.0.0.1", listener), ("1.1.1.1", 80), ("169.254.169.254", 80)):
            code = f"import socket; socket.create_connection(({host!r}, {port}), 5)"
            result = execute_code(code, config=CodeExecutionConfig(network=NetworkPolicy(network)))
            assert result.exit_code == 1 and "Error" in result.stderr and result.duration < 5, (network, host)
    assert execute_code("1").receipt.network == "none"


def test_the_whole_network_is_the_world_alone(client: belljar.Client, listener: int) -> None:
    """R27: a policy has to permit it, and private addresses are not in it."""
    client.call("PUT", "/v1/policies/open", {"extends": "standard", "network_policy": "full", "allow_network": True})
    with pytest.raises(belljar.Denied) as refused:
        execute_code("1", config=CodeExecutionConfig(network=NetworkPolicy.FULL, policy="standard"))
    assert refused.value.code == "network_not_allowed"
    config = CodeExecutionConfig(network=NetworkPolicy.FULL, policy="open")
    code = f"import socket; socket.create_connection(('127.0.0.1', {listener}), 5)"
    result = execute_code(code, config=config)
    assert result.exit_code == 1 and "ConnectionRefusedError" in result.stderr
    result = execute_code("import socket; socket.create_connection(('169.254.169.254', 80), 5).recv(1)", config=config)
    assert result.exit_code == 1 and "ConnectionResetError" in result.stderr
    assert result.receipt.network == "full"


@pytest.fixture
def shared(client: belljar.Client, tmp_path: Path) -> "tuple[Path, Callable[..., CodeExecutionConfig]]":
    """A directory that a policy lets requests mount, and a configuration under it."""
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "given").write_text("from the host")
    name = f"mounts-{uuid4().hex[:8]}"
    rates = {"max_executions_per_minute": 1000, "max_executions_per_hour": 1000}
    client.call(
        "PUT",
        f"/v1/policies/{name}",
        {"extends": "standard", "allowed_mounts": [f"{directory}:/workspace/data:rw"], **rates},
    )
    return directory, lambda mount: CodeExecutionConfig(mounts=[mount], policy=name)


def test_mounts_are_read_only_or_read_write(shared: "tuple[Path, Callable[..., CodeExecutionConfig]]") -> None:
    """R28."""
    directory, config = shared
    code = "print(open('data/given').read()); open('data/made', 'w').write('by the guest')"
    for mount in (f"{directory}:/workspace/data", f"{directory}:/workspace/data:ro"):
        result = execute_code(code, config=config(mount))
        assert result.stdout == "from the host\n" and result.exit_code == 1 and "Read-only" in result.stderr
        assert os.listdir(directory) == ["given"]
    assert execute_code(code, config=config(f"{directory}:/workspace/data:rw")).success
    assert (directory / "made").read_text() == "by the guest"


def test_a_mount_that_the_policy_lacks_is_refused(shared: "tuple[Path, Callable[..., CodeExecutionConfig]]") -> None:
    """R28."""
    directory, config = shared
    with pytest.raises(belljar.Denied) as refused:
        execute_code("1", config=config(f"{directory.parent}:/workspace/data"))
    assert refused.value.code == "mount_not_allowed"
    with pytest.raises(ValueError, match="mounts"):
        execute_code("1", config=config("nowhere"))


def test_files_of_the_host_cannot_be_read(client: belljar.Client) -> None:
    """R29: also those that every user of the host may read."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        secret = Path(directory) / "secret"
        secret.write_text("of the host")
        secret.chmod(0o644)
        secret.parent.chmod(0o755)
        paths = (secret, "/etc/shadow", f"/proc/{os.getpid()}/environ", f"/proc/1/root{secret}")
        for path in paths:
            result = execute_code(f"import sys; sys.stdout.write(open({str(path)!r}).read())")
            assert result.exit_code == 1 and result.stdout == "", path
        assert execute_code(f"ls -a {directory} /root /home /var", "bash").exit_code != 0


SECRETS = {
    "LD_PRELOAD": "/nonexistent/preload.so", "LD_LIBRARY_PATH": "/nonexistent/libraries",
    "AWS_SECRET_ACCESS_KEY": "hush-hush",
    "PYTHONPATH": "/nonexistent/python", "BELLJAR_KEY": "bj_hush-hush",
}  # fmt: skip


@pytest.mark.parametrize("where", ["embedded", "service"])
def test_secrets_of_the_host_are_absent(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R30: whatever the engine was started with."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    if where == "embedded":
        with belljar.connect(default=False) as client:
            results = [execute_code(code, client=client), execute_code("env", "bash", client=client)]
    else:
        process, url = start_service(tmp_path)
        try:
            with belljar.connect(url, default=False) as client:
                results = [execute_code(code, client=client), execute_code("env", "bash", client=client)]
        finally:
            process.terminate()
            process.wait(60)
    for result in results:
        assert result.success and "HOME" in result.stdout
        for name, value in SECRETS.items():
            assert name not in result.stdout and value not in result.stdout


# The guard


def test_code_that_nobody_approved_stays_behind_a_wall(client: belljar.Client) -> None:
    """R37: refused before anything is asked of the engine."""
    guard = SecureToAutoRun()
    assert [guard.allows(level) for level in IsolationLevel] == [False, True, True, True]
    assert all(SecureToAutoRun(approved=True).allows(level) for level in IsolationLevel)
    assert not SecureToAutoRun(approved="yes").allows("none")  # type: ignore[arg-type]
    open_air = CodeExecutionConfig(isolation=IsolationLevel.NONE)
    for given in (None, guard):
        with pytest.raises(belljar.Denied) as refused:
            execute_code("print('ran')", config=open_air, guard=given)
        assert refused.value.code == "auto_run_not_allowed" and refused.value.rule == "SecureToAutoRun"
    with pytest.raises(belljar.Denied):
        run_code("print('ran')", config=open_air)
    guard.check("process")
    assert execute_code("print('ran')", guard=guard).stdout == "ran\n"


def test_what_was_approved_runs_without_a_wall(client: belljar.Client) -> None:
    """R37: on an engine of one's own. A service's policy puts a wall around it, and the receipt says which."""
    config = CodeExecutionConfig(isolation="none")  # type: ignore[arg-type]
    result = execute_code("print('ran')", config=config, guard=SecureToAutoRun(approved=True))
    given = ("venv", "none", "full") if client.is_own else ("native", "process", "none")
    receipt = result.receipt
    assert result.stdout == "ran\n" and (receipt.provider, receipt.isolation, receipt.network) == given


def test_a_yes_to_what_has_no_wall_is_for_nothing_else(client: belljar.Client) -> None:
    """R37."""
    yes = SecureToAutoRun(approved=True)
    assert execute_code("print('ran')", guard=yes).receipt.isolation == "process"
    trusted = CodeExecutionConfig(provider="venv", isolation=IsolationLevel.NONE)
    with pytest.raises(belljar.Denied) as refused:
        execute_code("print('ran')", config=trusted)
    assert refused.value.code == "auto_run_not_allowed"
    # A network that would have to be held is not promised.
    local = CodeExecutionConfig(isolation=IsolationLevel.NONE, network=NetworkPolicy.LOCAL, provider="venv")
    with pytest.raises(belljar.Denied, match="network|isolation"):
        execute_code("print('ran')", config=local, guard=yes)
    if client.is_own:
        assert execute_code("print('ran')", config=trusted, guard=yes).receipt.provider == "venv"
    else:
        with pytest.raises(belljar.Denied, match="isolation"):
            execute_code("print('ran')", config=trusted, guard=yes)


def test_a_provider_is_as_strong_as_is_asked_for(client: belljar.Client) -> None:
    with pytest.raises(ValueError, match="native gives process isolation, less than isolation=container"):
        CodeExecutionConfig(provider="native", isolation=IsolationLevel.CONTAINER)
    for wrong, kind in (({"provider": "moat"}, ValueError), ({"image": 3}, TypeError), ({"image": "a b"}, ValueError)):
        with pytest.raises(kind, match=next(iter(wrong))):
            CodeExecutionConfig(**wrong)  # type: ignore[arg-type]
    assert execute_code("print(1)", config=CodeExecutionConfig(provider="native")).receipt.provider == "native"


@pytest.mark.parametrize("wanted", ["vm", IsolationLevel.VM])
def test_a_wall_that_is_not_there_is_refused(client: belljar.Client, wanted: Union[str, IsolationLevel]) -> None:
    """R36: never a weaker one."""
    with pytest.raises(belljar.Denied) as refused:
        execute_code("print('ran')", config=CodeExecutionConfig(isolation=wanted))  # type: ignore[arg-type]
    assert refused.value.code == "isolation_unavailable" and refused.value.value == wanted
