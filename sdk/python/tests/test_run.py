"""`run`: one execution in a sandbox of its own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import belljar

pytestmark = pytest.mark.usefixtures("client")


def test_value_and_output() -> None:
    result = belljar.run("print('under glass'); 6 * 7")
    assert result.success and bool(result)
    assert (result.value, result.stdout, result.stderr, result.exit_code) == (42, "under glass\n", "", 0)
    assert result.status is belljar.SandboxStatus.COMPLETED
    assert result.output == {"stdout": "under glass\n", "stderr": "", "exit_code": 0}
    assert result.error is None and result.error_type is None and result.exception is None
    assert result.duration > 0 and result.completed_at >= result.started_at > 1.7e9


def test_values_keep_their_types() -> None:
    import datetime
    from decimal import Decimal

    value = belljar.run(
        "import datetime, decimal\n(1, {2, 3}, b'x', datetime.date(2020, 1, 2), decimal.Decimal('1.5'), 2**70)"
    ).value
    assert value == (1, {2, 3}, b"x", datetime.date(2020, 1, 2), Decimal("1.5"), 2**70)


def test_a_failure_is_a_result_and_check_raises_it() -> None:
    result = belljar.run("def f():\n    1 / 0\nf()")
    assert not result and result.status is belljar.SandboxStatus.FAILED
    assert result.error == "ZeroDivisionError: division by zero" and result.error_type == "ZeroDivisionError"
    assert result.exception is not None and result.exception.line == 2 and "f()" in result.exception.traceback
    with pytest.raises(ZeroDivisionError) as raised:
        result.check()
    assert isinstance(raised.value, belljar.ExecutionError) and raised.value.result is result
    with pytest.raises(KeyError):
        belljar.run("{}['x']", check=True)
    with pytest.raises(belljar.ExecutionError):
        belljar.run("class Odd(Exception): pass\nraise Odd('x')", check=True)


def test_limits_bite_and_have_their_exceptions() -> None:
    """R22, R23: also the built-in ones."""
    began = time.monotonic()
    result = belljar.run("while True: pass", timeout=0.5)
    assert result.status is belljar.SandboxStatus.TIMEOUT and time.monotonic() - began < 30
    with pytest.raises(TimeoutError) as late:
        result.check()
    assert isinstance(late.value, belljar.TimeoutError)
    with pytest.raises(MemoryError) as large:
        belljar.run("x = bytearray(400 << 20)", memory="100M", check=True)
    assert isinstance(large.value, (belljar.MemoryError, belljar.ExecutionError))


def test_memory_that_the_kernel_refuses_is_a_memory_error() -> None:
    """R23: where nothing is raised inside, the kernel's word counts."""
    code = "import ctypes\nparts = []\nwhile True: parts.append(b'x' * (1 << 20))"
    with pytest.raises(MemoryError):
        belljar.run(code, memory="64M", check=True)


def test_other_languages_and_arguments() -> None:
    assert belljar.run('echo "$1"', language="bash", args=["a b"]).stdout == "a b\n"
    assert belljar.run("import sys; print(sys.argv[1:])", args=["x", "y z"]).stdout == "['x', 'y z']\n"
    result = belljar.run("[1, 2].map(x => x * 2)", language="javascript")
    assert result.value == [2, 4]


def test_input_files_and_outputs(tmp_path: Path) -> None:
    host = tmp_path / "host.bin"
    host.write_bytes(b"\xff\x00\xfe")
    code = """
import sys
open('out.bin', 'wb').write(open('host.bin', 'rb').read() * 2)
open('text.txt').read() + input()
"""
    result = belljar.run(
        code, files={"text.txt": "grüße ", "host.bin": host}, stdin="an alle\n", outputs=["out.bin", "none"]
    )
    assert result.check().value == "grüße an alle"
    assert result.files == {"out.bin": b"\xff\x00\xfe" * 2}
    assert "none" in result.files_refused


def test_bytes_on_stdin_and_stdout() -> None:
    result = belljar.run("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", stdin=b"\xff\xfe")
    assert result.stdout_bytes == b"\xff\xfe"


def test_globals_and_tools() -> None:
    calls = []

    def lookup(name: str, *, times: int = 1) -> str:
        calls.append(name)
        return name.upper() * times

    result = belljar.run("[lookup(n, times=k) for n in names]", globals={"names": ["a", "b"], "k": 2, "lookup": lookup})
    assert result.check().value == ["AA", "BB"] and calls == ["a", "b"]
    assert [(call.name, call.error) for call in result.tool_calls] == [("lookup", None)] * 2


def test_output_as_it_comes() -> None:
    pieces, errors = [], []
    result = belljar.run(
        "import sys\nprint('a'); print('b', file=sys.stderr)", on_stdout=pieces.append, on_stderr=errors.append
    )
    assert "".join(pieces) == "a\n" == result.stdout and "".join(errors) == "b\n" == result.stderr


def test_displays_and_notebooks() -> None:
    code = "class T:\n    def _repr_html_(self): return '<b>t</b>'\nT()"
    result = belljar.run(code)
    assert result.displays[0].data["text/html"] == "<b>t</b>"
    assert result._repr_mimebundle_()["text/html"] == "<b>t</b>"


def test_usage_receipt_and_record() -> None:
    result = belljar.run("x = bytearray(20 << 20)\nsum(range(10**6))", user_id="u", run_id="r")
    assert result.usage.wall_seconds > 0 and result.cpu_time > 0
    assert (
        result.receipt.network in ("none", "local") and result.receipt.provider == "native" and result.receipt.controls
    )
    assert result.record["user_id"] == "u" and result.record["run_id"] == "r" and len(result.record["code_hash"]) == 64
    assert "bytearray" not in str(result.record)


def test_output_is_capped_with_a_marker() -> None:
    """R31."""
    result = belljar.run("print('x' * 100_000)", output_limit=1000)
    assert result.truncated and len(result.stdout) < 2000 and len(result.stdout_bytes) == 1000


def test_a_denial_says_which_rule_and_what_to_do(client: belljar.Client) -> None:
    client.call("PUT", "/v1/policies/vm", {"extends": "standard", "isolation_level": "vm"})
    with pytest.raises(belljar.Denied) as denied:
        belljar.run("1", policy="vm")
    error = denied.value
    assert error.code == "isolation_unavailable" and error.rule == "isolation_level" and error.value == "vm"
    assert error.fix and error.fix in str(error)
    with pytest.raises(belljar.RequestError):
        belljar.run("1", policy="no-such-policy")


def test_nothing_of_the_host_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R29, R30."""
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    host = tmp_path / "host.txt"
    host.write_text("mine")
    code = f"import os\n(dict(os.environ), os.path.exists({str(host)!r}), os.path.exists('/etc/shadow'))"
    seen = belljar.run(code).value
    assert "s3cret" not in str(seen) and seen[1:] == (False, False)


def test_variables_are_set() -> None:
    assert belljar.run("import os; os.environ['A']", env={"A": "b"}).value == "b"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"timout": 3}, "'timeout'"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": []}, "timeout"),
        ({"memory": "lots"}, "memory"),
        ({"processes": 1.5}, "processes"),
        ({"processes": True}, "processes"),
        ({"open_files": -1}, "open_files"),
        ({"env": {"A": 1}}, "env"),
        ({"env": ["A"]}, "env"),
        ({"files": {"../x": ""}}, "files"),
        ({"files": {"/etc/x": ""}}, "files"),
        ({"files": {"x": 1}}, "files"),
        ({"files": ["x"]}, "files"),
        ({"outputs": "x"}, "outputs"),
        ({"outputs": ["../x"]}, "outputs"),
        ({"stdin": 3}, "stdin"),
        ({"args": "x"}, "args"),
        ({"args": [1]}, "args"),
        ({"network": "wifi"}, "network"),
        ({"language": 3}, "language"),
        ({"language": "cobol"}, "language"),
        ({"globals": {"1x": 1}}, "1x"),
        ({"globals": {"x": object()}}, "globals['x']"),
        ({"globals": 3}, "globals"),
        ({"tools": {"x": 3}}, "tools['x']"),
        ({"on_stdout": 3}, "on_stdout"),
        ({"max_tool_calls": "x", "tools": {"f": print}}, "max_tool_calls"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"language": "bash", "globals": {"x": 1}}, "globals"),
        ({"env": {"A": "\ud800"}}, "env"),
        ({"timeout": 10**400}, "timeout"),
        ({"timeout": "\ud800"}, "timeout"),
        ({"client": "http://x"}, "client"),
        ({"check": "no"}, "check"),
        ({"fresh_interpreter": 1}, "fresh_interpreter"),
        ({"tools": {"class": len}}, "class"),
        ({"outputs": b"ab"}, "outputs"),
    ],
)
def test_what_is_wrong_is_named(options: dict, names: str) -> None:
    with pytest.raises((TypeError, ValueError)) as wrong:
        belljar.run("1", **options)
    assert names in str(wrong.value)


@pytest.mark.parametrize("code", [3, None, b"x", "a\0b", "\ud800"])
def test_code_is_text(code: object) -> None:
    with pytest.raises((TypeError, ValueError), match="code"):
        belljar.run(code)  # type: ignore[arg-type]


async def test_async() -> None:
    result = await belljar.run_async("print('x'); 1 + 1")
    assert (result.value, result.stdout) == (2, "x\n")
    seen = []
    result = await belljar.run_async("print('y'); f(2)", tools={"f": lambda n: n * 2}, on_stdout=seen.append)
    assert result.value == 4 and "".join(seen) == "y\n"
    with pytest.raises(ZeroDivisionError):
        await belljar.run_async("1/0", check=True)


def test_what_is_too_large_is_refused_as_that(client: belljar.Client) -> None:
    response = client.request("POST", "/v1/executions", b" " * (300 << 20))
    assert response.status == 413 and b"too_large" in response.body
    assert belljar.run("1 + 1").value == 2
