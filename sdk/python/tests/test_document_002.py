"""Document 002: `SandboxEnvironment`. Its examples, and R6 and R38 to R45."""

from __future__ import annotations

import asyncio
import inspect
import time
from dataclasses import FrozenInstanceError
from typing import Any, AsyncIterator, Dict, List

import pytest
from snippets import blocks, execute

import belljar
from belljar.environment import ResourceLimits, SandboxEnvironment

BLOCKS = blocks("002.md", "117b727a0a1adc196bd3fa0b885b1b137b9de587c56c4834e50dad3d3f650f31")
NAMES = {"SandboxEnvironment": SandboxEnvironment, "ResourceLimits": ResourceLimits}

# How code that gets round the checks comes by the modules that they keep from it.
AROUND = """
import json
sys = json.codecs.builtins.__spec__.__class__.__init__.__globals__["sys"]
os = sys.modules["os"]
fetch = sys.modules["_frozen_importlib"]._gcd_import
"""


@pytest.fixture
async def sandbox(client: belljar.Client) -> AsyncIterator[SandboxEnvironment]:
    async with SandboxEnvironment() as made:
        yield made


# The examples.


async def example(name: str) -> Dict[str, Any]:
    names = await execute(BLOCKS[name], dict(NAMES))
    return names


def test_every_example_is_here() -> None:
    tried = {"Import Path", "Signature", "Basic Sandbox Usage", "With Custom Globals", "Restricted Imports"}
    assert set(BLOCKS) == tried | {"Timeout Protection", "Memory Limit", "Filesystem Isolation"}


def test_import_path() -> None:
    names = [line.partition(" import ")[2] for line in BLOCKS["Import Path"].splitlines()]
    assert names == ["SandboxEnvironment"] and names[0] in NAMES


def test_signature() -> None:
    """Whatever calls it as the document has it finds the same names, order and defaults."""
    names: Dict[str, Any] = {}
    exec("from __future__ import annotations\n" + BLOCKS["Signature"], names)
    documented = names["SandboxEnvironment"]
    for method in ("__init__", "execute_code"):
        wanted = list(inspect.signature(getattr(documented, method)).parameters.values())
        given = list(inspect.signature(getattr(SandboxEnvironment, method)).parameters.values())
        assert [(one.name, one.default, one.kind) for one in given[: len(wanted)]] == [
            (one.name, one.default, one.kind) for one in wanted
        ]
        assert all(one.kind is one.KEYWORD_ONLY for one in given[len(wanted) :])
    assert inspect.iscoroutinefunction(SandboxEnvironment.execute_code)


async def test_basic_usage(client: belljar.Client, capsys: pytest.CaptureFixture[str]) -> None:
    """R38."""
    names = await example("Basic Sandbox Usage")
    assert names["result"] == 328350 and capsys.readouterr().out == "Result: 328350\n"
    await names["sandbox"].close()


async def test_custom_globals(client: belljar.Client, capsys: pytest.CaptureFixture[str]) -> None:
    """R38, R41."""
    names = await example("With Custom Globals")
    assert names["result"] == 30 and capsys.readouterr().out == "Result: 30\n"
    await names["sandbox"].close()


async def test_restricted_imports(client: belljar.Client) -> None:
    """R38, R39."""
    names = await example("Restricted Imports")
    sandbox = names["sandbox"]
    assert names["result1"] == '{"key": "value"}'
    with pytest.raises(ImportError) as raised:
        await sandbox.execute_code(names["code2"])
    assert str(raised.value) == "Import 'os' not allowed" and isinstance(raised.value, belljar.SandboxError)
    await sandbox.close()


async def test_timeout_protection(client: belljar.Client, capsys: pytest.CaptureFixture[str]) -> None:
    """R40. The next execution works again."""
    began = time.monotonic()
    names = await example("Timeout Protection")
    assert 4.5 < time.monotonic() - began < 60
    assert capsys.readouterr().out == "Code exceeded 5 second timeout\n"
    assert await names["sandbox"].execute_code("return 1") == 1
    await names["sandbox"].close()


async def test_memory_limit(client: belljar.Client, capsys: pytest.CaptureFixture[str]) -> None:
    """R40. The next execution works again."""
    names = await example("Memory Limit")
    assert capsys.readouterr().out == "Code exceeded 100MB memory limit\n"
    assert await names["sandbox"].execute_code("return 1") == 1
    await names["sandbox"].close()


async def test_filesystem_isolation(client: belljar.Client) -> None:
    """R39."""
    names = await example("Filesystem Isolation")
    with pytest.raises(PermissionError) as raised:
        await names["sandbox"].execute_code(names["code"])
    assert isinstance(raised.value, belljar.SandboxError) and raised.value.result is not None
    await names["sandbox"].close()


# Limits.


def test_defaults() -> None:
    limits = ResourceLimits()
    assert (limits.max_memory_mb, limits.max_cpu_percent, limits.timeout_seconds) == (512, 50, 30)
    assert (limits.max_tool_calls, limits.max_concurrent) == (100, 5)
    with pytest.raises(FrozenInstanceError):
        limits.max_memory_mb = -1  # type: ignore[misc]


@pytest.mark.parametrize("field", list(ResourceLimits.__dataclass_fields__))
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "12", None, True, [1]])
def test_wrong_limits_are_refused_when_constructed(field: str, value: object) -> None:
    """R6."""
    with pytest.raises((ValueError, TypeError), match=field):
        ResourceLimits(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["max_memory_mb", "max_cpu_percent", "timeout_seconds", "max_concurrent"])
def test_nothing_is_not_a_limit(field: str) -> None:
    """R6."""
    with pytest.raises(ValueError, match=field):
        ResourceLimits(**{field: 0})


@pytest.mark.parametrize(
    "arguments, named",
    [
        ({"limits": {"max_memory_mb": 1}}, "limits"),
        ({"allowed_imports": "json"}, "allowed_imports"),
        ({"allowed_imports": [3]}, "allowed_imports"),
        ({"filesystem_access": "no"}, "filesystem_access"),
    ],
)
def test_wrong_arguments_are_named(arguments: Dict[str, Any], named: str) -> None:
    with pytest.raises(TypeError, match=named):
        SandboxEnvironment(**arguments)


async def test_wrong_arguments_of_an_execution_are_named(sandbox: SandboxEnvironment) -> None:
    with pytest.raises(TypeError, match="code"):
        await sandbox.execute_code(b"1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="globals_dict"):
        await sandbox.execute_code("1", [("a", 1)])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="thing"):
        await sandbox.execute_code("1", {"thing": object()})


# What code may do.


@pytest.mark.parametrize("name", ["os", "sys", "subprocess", "socket", "requests"])
async def test_blocked_imports(sandbox: SandboxEnvironment, name: str) -> None:
    """R39: what the document lists as blocked, and from a function that is called later too."""
    for code in (f"import {name}", f"from {name} import x", f"__import__({name!r})"):
        with pytest.raises(ImportError) as raised:
            await sandbox.execute_code(code)
        assert str(raised.value) == f"Import '{name}' not allowed"


async def test_safe_imports(sandbox: SandboxEnvironment) -> None:
    """R38: what the document lists as safe."""
    assert sandbox.allowed_imports == ["json", "math", "datetime", "asyncio", "typing"]
    code = "import json, math, datetime, asyncio, typing\nreturn math.gcd(12, 18)"
    assert await sandbox.execute_code(code) == 6


async def test_without_file_access_nothing_is_opened(sandbox: SandboxEnvironment) -> None:
    """R39: neither for reading nor for writing, nor by another name."""
    for code in ("open('note.txt', 'w')", "f = open\nf('/etc/passwd')"):
        with pytest.raises(PermissionError):
            await sandbox.execute_code(code)
    with pytest.raises(OSError):
        await sandbox.execute_code("f = open\nwith f('note.txt', 'w') as file: file.write('x')")


async def test_with_file_access_files_of_its_own(client: belljar.Client) -> None:
    async with SandboxEnvironment(filesystem_access=True) as sandbox:
        await sandbox.execute_code("with open('note.txt', 'w') as file: file.write('kept')")
        assert await sandbox.execute_code("return open('note.txt').read()") == "kept"
        with pytest.raises(PermissionError):
            await sandbox.execute_code("open('/etc/passwd')")
        await sandbox.reset()
        with pytest.raises(FileNotFoundError):
            await sandbox.execute_code("open('note.txt')")


@pytest.mark.parametrize(
    "code, wanted",
    [
        ("os.fork()", BlockingIOError),  # R43: no subprocesses
        ("fetch('subprocess').run(['true'])", BlockingIOError),
        ("getattr(os, 'open')('/etc/shadow', os.O_RDONLY)", FileNotFoundError),
        ("os.write(getattr(os, 'open')('x', os.O_CREAT | os.O_WRONLY), b'x')", OSError),
        ("fetch('socket').create_connection(('192.0.2.1', 80), 2)", OSError),
    ],
)
async def test_the_walls_hold_without_the_checks(sandbox: SandboxEnvironment, code: str, wanted: type) -> None:
    """R44."""
    with pytest.raises(wanted) as raised:
        await sandbox.execute_code(AROUND + code)
    result = raised.value.result
    assert result.to_dict()["error"]["type"] == "exception", "it ran, and came to the wall"


async def test_the_processor_is_shared(client: belljar.Client) -> None:
    """R43."""
    limits = ResourceLimits(max_cpu_percent=20)
    async with SandboxEnvironment(limits=limits, allowed_imports=["time"]) as sandbox:
        code = """
import time
began, used = time.monotonic(), time.process_time()
while time.monotonic() - began < 1.5: pass
return (time.process_time() - used) / (time.monotonic() - began)
"""
        assert await sandbox.execute_code(code) < 0.4


# Values, functions, state.


async def test_return_and_await_at_the_top(sandbox: SandboxEnvironment) -> None:
    """R41."""
    code = "import asyncio\nawait asyncio.sleep(0)\nif True:\n    return [1, 2]\nreturn 3"
    assert await sandbox.execute_code(code) == [1, 2]
    assert await sandbox.execute_code("pass") is None


class Shop:
    def __init__(self) -> None:
        self.sold: List[str] = []

    def sell(self, name: str, *, price: float = 1.0) -> float:
        self.sold.append(name)
        return price


async def double(number: int) -> int:
    await asyncio.sleep(0.01)
    return number * 2


def half(number: int) -> float:
    return number / 2


async def test_functions_of_the_host(sandbox: SandboxEnvironment) -> None:
    """R41: lambdas, functions, async functions, bound methods, and data beside them."""
    shop = Shop()
    given: Dict[str, Any] = {
        "data": {"a": (1, 2)}, "add": lambda x, y: x + y, "half": half, "double": double, "sell": shop.sell,
    }  # fmt: skip
    code = """
import asyncio
both = await asyncio.gather(double(1), double(2))
return [await add(*data["a"]), await half(3), both, await sell("tea", price=3.5)]
"""
    assert await sandbox.execute_code(code, given) == [3, 1.5, [2, 4], 3.5]
    assert shop.sold == ["tea"]
    assert await sandbox.execute_code("return double(4) + half(2)") == 9
    assert [call.name for call in sandbox.tool_calls] == ["double", "double", "add", "half", "sell", "double", "half"]


async def test_what_the_code_raises_comes_back(sandbox: SandboxEnvironment) -> None:
    """As the built-in exception that it is, and with the host's own as its cause."""
    for code, wanted in (("1 / 0", ZeroDivisionError), ("[][1]", IndexError), ("x +", SyntaxError), ("y", NameError)):
        with pytest.raises(wanted) as raised:
            await sandbox.execute_code(code)
        assert isinstance(raised.value, belljar.ExecutionError)

    def fail() -> None:
        raise LookupError("not there")

    with pytest.raises(LookupError, match="not there") as raised:
        await sandbox.execute_code("fail()", {"fail": fail})
    assert type(raised.value.__cause__) is LookupError


async def test_state_persists_and_reset_clears_it(sandbox: SandboxEnvironment) -> None:
    """R42: whether it is awaited or not."""
    await sandbox.execute_code("x = 1\ndef f(): return x + 1")
    assert await sandbox.execute_code("return f()") == 2
    sandbox.reset()
    with pytest.raises(NameError):
        await sandbox.execute_code("x")
    await sandbox.execute_code("x = 2")
    await sandbox.reset()
    with pytest.raises(NameError):
        await sandbox.execute_code("x")


async def test_logs(sandbox: SandboxEnvironment) -> None:
    """R42: also of code that failed; whether it is awaited or not."""
    await sandbox.execute_code("print('one')")
    with pytest.raises(ZeroDivisionError):
        await sandbox.execute_code("print('two')\n1 / 0")
    async with SandboxEnvironment(allowed_imports=["sys"]) as other:
        await other.execute_code("import sys\nprint('three', file=sys.stderr)")
        assert other.get_logs() == ("", "three\n", 0)
    logs = sandbox.get_logs()
    assert logs.stdout == "one\ntwo\n" and await sandbox.get_logs() == logs
    sandbox.reset()
    assert sandbox.get_logs() == ("", "", 0)


async def test_a_timeout_keeps_the_logs_and_loses_the_state(client: belljar.Client) -> None:
    async with SandboxEnvironment(limits=ResourceLimits(timeout_seconds=1)) as sandbox:
        await sandbox.execute_code("x = 1")
        with pytest.raises(TimeoutError):
            await sandbox.execute_code("print('so far', flush=True)\nwhile True: pass")
        assert sandbox.get_logs().stdout == "so far\n"
        with pytest.raises(NameError):
            await sandbox.execute_code("x")


async def test_the_101st_call_fails(sandbox: SandboxEnvironment) -> None:
    """R45."""
    calls: List[int] = []
    with pytest.raises(belljar.ExecutionError, match="100 times"):
        await sandbox.execute_code("for i in range(101): call(i)", {"call": calls.append})
    assert calls == list(range(100))
    assert len(sandbox.tool_calls) == 100
    assert await sandbox.execute_code("for i in range(100): call(i)\nreturn i") == 99


async def test_functions_at_the_same_time(client: belljar.Client) -> None:
    """`max_concurrent` is how many run at once; the others wait."""
    now = most = 0

    async def call() -> None:
        nonlocal now, most
        now += 1
        most = max(now, most)
        await asyncio.sleep(0.05)
        now -= 1

    async with SandboxEnvironment(limits=ResourceLimits(max_concurrent=2)) as sandbox:
        await sandbox.execute_code("import asyncio\nawait asyncio.gather(*[call() for _ in range(6)])", {"call": call})
    assert most == 2


async def test_one_execution_after_the_other(sandbox: SandboxEnvironment) -> None:
    await sandbox.execute_code("seen = []")
    await asyncio.gather(*[sandbox.execute_code(f"seen.append({i})") for i in range(8)])
    assert await sandbox.execute_code("return sorted(seen)") == list(range(8))


def test_each_call_in_an_event_loop_of_its_own(client: belljar.Client) -> None:
    async def several() -> List[Any]:
        return list(await asyncio.gather(*[environment.execute_code(f"return x + {i}") for i in range(3)]))

    with SandboxEnvironment() as environment:
        asyncio.run(environment.execute_code("x = 1"))
        assert asyncio.run(several()) == [1, 2, 3]
        assert asyncio.run(several()) == [1, 2, 3]
        environment.reset()
        with pytest.raises(NameError):
            asyncio.run(environment.execute_code("x"))
    with pytest.raises(belljar.SandboxClosed):
        asyncio.run(environment.execute_code("1"))


async def test_nothing_is_left(client: belljar.Client) -> None:
    """R32: neither after a close nor after a reset, awaited or not."""
    before = {one["session_id"] for one in client.call("GET", "/v1/sessions")["sessions"]}
    async with SandboxEnvironment() as sandbox:
        await sandbox.execute_code("1")
        await sandbox.reset()
        await sandbox.execute_code("1")
        sandbox.reset()
        await sandbox.execute_code("1")
    with sandbox:
        pass
    await asyncio.sleep(0.2)
    after = {one["session_id"] for one in client.call("GET", "/v1/sessions")["sessions"]}
    assert after <= before
    with pytest.raises(belljar.SandboxClosed):
        await sandbox.execute_code("1")


async def test_giving_up_leaves_it_usable(sandbox: SandboxEnvironment) -> None:
    await sandbox.execute_code("x = 1")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(sandbox.execute_code("while True: pass"), 0.5)
    assert await sandbox.execute_code("return x") == 1
