"""`Sandbox` and `AsyncSandbox`: variables and files stay."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
import time
from typing import Iterator

import pytest

import belljar
from belljar import AsyncSandbox, Sandbox

pytestmark = pytest.mark.usefixtures("client")


@pytest.fixture
def sandbox(client: belljar.Client) -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def test_state_stays_and_a_reset_clears_it(sandbox: Sandbox) -> None:
    """R42."""
    sandbox.run("x = 20\nprint('hello')").check()
    sandbox.files.write("kept.txt", "kept")
    assert sandbox.run("x + 1").value == 21
    assert sandbox.logs.stdout == "hello\n" and sandbox.logs.stderr == ""
    sandbox.reset()
    assert sandbox.run("x").error_type == "NameError"
    assert sandbox.run("open('kept.txt').read()").value == "kept"


def test_files(sandbox: Sandbox) -> None:
    sandbox.files.write("dir/ä b.bin", b"\x00\xff")
    assert sandbox.files.read("dir/ä b.bin") == b"\x00\xff"
    sandbox.files.write("t.txt", "text")
    assert sandbox.files.read_text("t.txt") == "text" and "t.txt" in sandbox.files
    assert {file.path for file in sandbox.files if file.kind == "file"} == {"dir/ä b.bin", "t.txt"}
    sandbox.files.delete("dir")
    assert [file.path for file in sandbox.files.list()] == ["t.txt"]
    with pytest.raises(FileNotFoundError) as missing:
        sandbox.files.read("gone")
    assert isinstance(missing.value, belljar.FileNotFoundError)
    for name in ("../x", "/etc/passwd", ""):
        with pytest.raises(ValueError, match="path"):
            sandbox.files.read(name)


def test_a_link_out_of_the_sandbox_leads_nowhere(sandbox: Sandbox) -> None:
    sandbox.run("import os; os.symlink('/etc/passwd', 'link')").check()
    with pytest.raises(belljar.SandboxError):
        sandbox.files.read("link")


def test_commands_share_the_files(sandbox: Sandbox) -> None:
    sandbox.run("kept = 5\nopen('a.txt', 'w').write('one two')").check()
    result = sandbox.exec(["wc", "-w", "a.txt"])
    assert result.success and result.stdout.split() == ["2", "a.txt"]
    assert sandbox.exec("echo 'Hello, Sandbox!'").stdout == "Hello, Sandbox!\n"
    assert sandbox.exec(["sh", "-c", "exit 3"]).exit_code == 3
    assert sandbox.exec(["cat"], stdin="typed").stdout == "typed"
    missing = sandbox.exec(["no-such-program"])
    assert not missing.success and "no-such-program" in (missing.error or "")
    with pytest.raises(ValueError):
        sandbox.exec("cat a.txt | sh")
    with pytest.raises(belljar.Denied):
        sandbox.exec(["sudo", "ls"])
    assert sandbox.run("kept").value == 5


def test_programs_of_other_languages_share_the_files() -> None:
    with Sandbox(language="bash") as sandbox:
        assert sandbox.run("echo one > f; X=1").success
        assert sandbox.run("cat f; echo $X").stdout == "one\n\n"
        assert sandbox.exec(["cat", "f"]).stdout == "one\n"
        late = sandbox.run("sleep 60", timeout=0.5)
        assert late.status is belljar.SandboxStatus.TIMEOUT and late.state_lost == "variables and files"
        assert sandbox.run("echo again").stdout == "again\n"


class Shop:
    def __init__(self) -> None:
        self.sold = 0

    def sell(self, number: int) -> int:
        self.sold += number
        return self.sold


async def slowly(x: int) -> int:
    await asyncio.sleep(0.01)
    return x + 1


def test_callables_of_every_kind() -> None:
    """A lambda, a function, an async function, a bound method, a partial."""
    shop = Shop()
    tools = {
        "double": lambda x: x * 2,
        "slowly": slowly,
        "sell": shop.sell,
        "power": functools.partial(pow, 2),
        "size": len,
    }
    with Sandbox(globals=tools) as sandbox:
        assert sandbox.run("double(2), slowly(3), sell(4), sell(1), power(5), size('abc')").check().value == (
            4,
            4,
            4,
            5,
            32,
            3,
        )
        assert sandbox.run("triple(2)", tools={"triple": lambda x: x * 3}).value == 6
        assert sandbox.run("triple(3) + extra", globals={"extra": 1}).value == 10
    assert shop.sold == 5


def test_a_host_s_exception_reaches_the_code_and_comes_back() -> None:
    class Own(Exception):
        pass

    def fails(kind: str) -> None:
        raise {"value": ValueError, "key": KeyError, "own": Own}[kind](f"no {kind}")

    with Sandbox(tools={"fails": fails}) as sandbox:
        code = "try: fails('value')\nexcept ValueError as error: caught = str(error)\ncaught"
        assert sandbox.run(code).value == "no value"
        with pytest.raises(ValueError, match="no value") as raised:
            sandbox.run("fails('value')", check=True)
        assert type(raised.value.__cause__) is ValueError
        with pytest.raises(KeyError):
            sandbox.run("fails('key')", check=True)
        with pytest.raises(belljar.ExecutionError, match="no own"):
            sandbox.run("fails('own')", check=True)


def test_what_is_no_data_cannot_be_returned_to_the_code() -> None:
    with Sandbox(tools={"bad": lambda: object()}) as sandbox:
        result = sandbox.run("bad()")
        assert result.error_type == "TypeError" and "bad()" in (result.error or "")


def test_a_slow_function_holds_up_nobody_else() -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow() -> int:
        started.set()
        go_on.wait(30)
        return 1

    with Sandbox(tools={"slow": slow}) as one, Sandbox() as other:
        thread = threading.Thread(target=one.run, args=("slow()",))
        thread.start()
        assert started.wait(30)
        assert other.run("1 + 1").value == 2
        go_on.set()
        thread.join(30)
        assert not thread.is_alive()


def test_calls_run_side_by_side() -> None:
    barrier = threading.Barrier(3)
    with Sandbox(tools={"meet": lambda: barrier.wait(20)}) as sandbox:
        code = "import asyncio\nsorted(await asyncio.gather(meet(), meet(), meet()))"
        assert sandbox.run(code).check().value == [0, 1, 2]


def test_the_budget_of_calls_ends() -> None:
    """R45."""
    with Sandbox(tools={"f": lambda: 1}, max_tool_calls=3) as sandbox:
        result = sandbox.run("[f() for _ in range(4)]")
        assert not result.success and len([c for c in result.tool_calls if c.error is None]) == 3


def test_events_in_their_order() -> None:
    with Sandbox(tools={"f": lambda: 1}) as sandbox:
        events = list(sandbox.stream("print('a', flush=True)\nf()\nprint('b')\n7"))
    kinds = [type(event).__name__ for event in events]
    assert kinds[-1] == "Done" and events[-1].result.value == 7
    assert "".join(event.text for event in events if isinstance(event, belljar.Output)) == "a\nb\n"
    assert kinds.index("ToolStarted") < kinds.index("ToolEnded")


def test_a_stream_that_is_left_early_is_interrupted(sandbox: Sandbox) -> None:
    for event in sandbox.stream("x = 3\nimport time\nwhile True:\n    print(1, flush=True)\n    time.sleep(0.01)"):
        assert isinstance(event, belljar.Output)
        break
    assert sandbox.run("x").value == 3


def test_an_interrupt_from_another_thread(sandbox: Sandbox) -> None:
    assert sandbox.interrupt() is False
    begun = threading.Event()
    timer = threading.Thread(target=lambda: (begun.wait(20), time.sleep(0.2), sandbox.interrupt()))
    timer.start()
    result = sandbox.run("x = 1\nprint('begun', flush=True)\nwhile True: pass", on_stdout=lambda _: begun.set())
    timer.join()
    assert result.status is belljar.SandboxStatus.KILLED
    assert sandbox.run("x").value == 1


def test_ctrl_c_interrupts_and_keeps_the_state(sandbox: Sandbox) -> None:
    sandbox.run("x = 4").check()
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        sandbox.run("while True: pass")
    assert sandbox.run("x").value == 4


def test_after_a_timeout_it_goes_on(sandbox: Sandbox) -> None:
    sandbox.run("x = 1").check()
    result = sandbox.run("while True: pass", timeout=0.5)
    assert result.status is belljar.SandboxStatus.TIMEOUT and result.state_lost
    assert sandbox.run("1 + 1").value == 2


def test_a_closed_sandbox_says_so(sandbox: Sandbox) -> None:
    sandbox.close()
    sandbox.close()
    assert sandbox.closed
    for use in (lambda: sandbox.run("1"), sandbox.reset, lambda: sandbox.logs, lambda: sandbox.exec(["ls"])):
        with pytest.raises(belljar.SandboxClosed):
            use()


def test_threads_share_a_sandbox(sandbox: Sandbox) -> None:
    sandbox.run("total = 0").check()
    threads = [threading.Thread(target=sandbox.run, args=(f"total += {n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sandbox.run("total").value == sum(range(8))


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"memry": 1}, "'memory'"),
        ({"idle_timeout": -1}, "idle_timeout"),
        ({"max_concurrent_tools": 1.5}, "max_concurrent_tools"),
    ],
)
def test_what_is_wrong_is_named(options: dict, names: str) -> None:
    with pytest.raises((TypeError, ValueError)) as wrong:
        Sandbox(**options)
    assert names in str(wrong.value)


@pytest.mark.parametrize("command", [3, "", [], ["a", 1], None, "echo \ud800", "a\0b"])
def test_a_command_is_words(sandbox: Sandbox, command: object) -> None:
    with pytest.raises((TypeError, ValueError), match="command"):
        sandbox.exec(command)  # type: ignore[arg-type]


async def test_async_everything() -> None:
    async with AsyncSandbox(tools={"slowly": slowly, "double": lambda x: x * 2}) as sandbox:
        assert (await sandbox.run("x = await slowly(1)\nx + await double(2)")).value == 6
        code = "import asyncio\nawait asyncio.gather(*(slowly(i) for i in range(5)))"
        assert (await sandbox.run(code)).value == [1, 2, 3, 4, 5]
        await sandbox.files.write("a", "b")
        assert await sandbox.files.read_text("a") == "b" and [f.path for f in await sandbox.files.list()] == ["a"]
        assert (await sandbox.exec(["cat", "a"])).stdout == "b"
        events = [event async for event in sandbox.stream("print('s')\n1")]
        assert isinstance(events[-1], belljar.Done) and events[-1].result.value == 1
        await sandbox.files.delete("a")
        await sandbox.reset()
        assert (await sandbox.run("x")).error_type == "NameError"
        assert "s\n" in (await sandbox.logs()).stdout
        assert await sandbox.interrupt() is False
    with pytest.raises(belljar.SandboxClosed):
        await sandbox.run("1")


async def test_a_cancelled_execution_is_interrupted() -> None:
    async with AsyncSandbox() as sandbox:
        (await sandbox.run("x = 2")).check()
        task = asyncio.ensure_future(sandbox.run("while True: pass"))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await sandbox.run("x")).value == 2


async def test_many_at_once() -> None:
    async def one(n: int) -> object:
        async with AsyncSandbox() as sandbox:
            return (await sandbox.run(f"{n} * 2")).value

    assert await asyncio.gather(*(one(n) for n in range(12))) == [n * 2 for n in range(12)]


def test_one_loop_after_the_other() -> None:
    sandbox = AsyncSandbox()

    async def add() -> object:
        return (await sandbox.run("x = globals().get('x', 0) + 1\nx")).value

    assert [asyncio.run(add()) for _ in range(3)] == [1, 2, 3]
    asyncio.run(sandbox.close())


def test_a_sandbox_that_another_ended_says_so(sandbox: Sandbox, client: belljar.Client) -> None:
    sandbox.run("1").check()
    client.call("DELETE", f"/v1/sessions/{sandbox.id}")
    with pytest.raises(belljar.SandboxClosed):
        sandbox.run("1")
    with pytest.raises(belljar.SandboxClosed):
        sandbox.files.read("x")


def test_data_for_files_is_not_for_messages(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="files"):
        sandbox.run("1", stdin="x" * (40 << 20))
    assert sandbox.run("1 + 1").value == 2


def test_an_execution_asks_for_no_more_than_its_sandbox_has() -> None:
    with Sandbox(timeout=1) as sandbox:
        assert sandbox.run("1", timeout=0.9).success
        with pytest.raises(belljar.Denied) as denied:
            sandbox.run("import time; time.sleep(3)", timeout=100)
        assert "open" in denied.value.fix


def test_large_answers_of_tools_do_not_get_mixed_up() -> None:
    """The code calls them at once, so they are sent at once."""
    code = "import asyncio\n[len(x) for x in await asyncio.gather(*(large() for _ in range(4)))]"

    async def large() -> str:
        return "x" * (3 << 20)

    with Sandbox(tools={"large": lambda: "x" * (3 << 20)}) as sandbox:
        assert sandbox.run(code).check().value == [3 << 20] * 4

    async def main() -> object:
        async with AsyncSandbox(tools={"large": large}) as sandbox:
            return (await sandbox.run(code)).check().value

    assert asyncio.run(main()) == [3 << 20] * 4


def test_every_call_of_a_tool_has_an_answer() -> None:
    """Whatever the function does: too much, an exception that cannot be shown, an exit."""

    def exits() -> None:
        raise SystemExit(3)

    tools = {"much": lambda: b"x" * (40 << 20), "key": lambda k: {}[k], "exits": exits}
    code = """
found = []
for call in (much, lambda: key(10**5000), exits):
    try: call()
    except BaseException as error: found.append(type(error).__name__)
found
"""
    with Sandbox(tools=tools, timeout=20, memory="512M") as sandbox:
        found = sandbox.run(code).check().value
        assert found[:2] == ["ValueError", "KeyError"] and len(found) == 3

    async def main() -> object:
        async with AsyncSandbox(tools=tools, timeout=20, memory="512M") as sandbox:
            return (await sandbox.run(code)).check().value

    assert asyncio.run(main()) == found


async def test_slow_functions_hold_up_no_other_sandbox() -> None:
    go_on = threading.Event()
    async with AsyncSandbox(tools={"slow": lambda: go_on.wait(30)}, max_concurrent_tools=40) as one:
        async with AsyncSandbox(tools={"quick": lambda: 1}) as other:
            code = "import asyncio\nawait asyncio.gather(*(slow() for _ in range(40)))"
            task = asyncio.ensure_future(one.run(code))
            await asyncio.sleep(0.5)
            assert (await asyncio.wait_for(other.run("quick()"), 15)).value == 1
            go_on.set()
            assert (await task).success


async def test_closing_ends_whoever_awaits() -> None:
    sandbox = AsyncSandbox()
    task = asyncio.ensure_future(sandbox.run("import time; time.sleep(25)"))
    await asyncio.sleep(0.7)
    await asyncio.wait_for(sandbox.close(), 20)
    with pytest.raises(belljar.SandboxError):
        await asyncio.wait_for(task, 10)


def test_closing_from_another_thread_ends_what_runs() -> None:
    sandbox = Sandbox()
    threading.Timer(0.7, sandbox.close).start()
    began = time.monotonic()
    with pytest.raises(belljar.SandboxError):
        sandbox.run("import time; time.sleep(25)")
    assert time.monotonic() - began < 24


def test_whoever_is_at_it_already_is_told(sandbox: Sandbox) -> None:
    stream = sandbox.stream("print(1, flush=True)\nimport time; time.sleep(20)")
    next(stream)
    with pytest.raises(belljar.SandboxError, match="already"):
        sandbox.run("2")
    stream.close()
    with pytest.raises(belljar.SandboxError, match="already"):
        sandbox.run("print(1)", on_stdout=lambda _: sandbox.run("2"))
    assert sandbox.run("2").value == 2


def test_ctrl_c_in_the_middle_of_a_large_message(sandbox: Sandbox) -> None:
    """What the code prints then is never taken for something else."""
    sandbox.run("x = 4").check()
    threading.Timer(0.6, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sandbox.run(
            "try:\n    while True: print('\u04411' * (1 << 20))\nexcept KeyboardInterrupt: pass\nwhile True: pass"
        )
    assert time.monotonic() - began < 30
    assert sandbox.run("1 + 1").value == 2


async def test_a_cancel_while_it_is_being_sent() -> None:
    async with AsyncSandbox(memory="512M") as sandbox:
        (await sandbox.run("x = 1")).check()
        for turns in (1, 3, 6):
            task = asyncio.ensure_future(sandbox.run("len(b)", globals={"b": "x" * 20_000_000}))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await asyncio.wait_for(sandbox.run("x"), 20)).value == 1


def test_a_callback_s_own_exception_is_its_own(sandbox: Sandbox) -> None:
    def broken(_: str) -> None:
        raise BrokenPipeError("mine")

    with pytest.raises(BrokenPipeError, match="mine"):
        sandbox.run("print(1)\nimport time; time.sleep(20)", on_stdout=broken)
    assert sandbox.run("1 + 1").value == 2


def test_a_file_s_size_is_bounded_here(sandbox: Sandbox) -> None:
    sandbox.run("open('big', 'wb').write(b'x' * 3_000_000)").check()
    assert len(sandbox.files.read("big")) == 3_000_000
    with pytest.raises(ValueError, match="max_bytes"):
        sandbox.files.read("big", max_bytes=1_000_000)


def test_values_that_cannot_be_written_are_shown_all_the_same(sandbox: Sandbox) -> None:
    result = sandbox.run("10**5000")
    assert "cannot be shown" in repr(result) and result._repr_mimebundle_()["text/plain"]
    assert "cannot be shown" in belljar.answer_tool_call({"code": "10**5000"}, sandbox=sandbox)
    with pytest.raises(belljar.ExecutionError):
        sandbox.run("raise StopIteration", check=True)
