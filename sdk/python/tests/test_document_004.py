"""Document 004: sandboxes for commands, their manager, and tools. Its examples, and R2, R6 and R54 to R60."""

from __future__ import annotations

import gc
import http.server
import logging
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

import pytest
from snippets import blocks, execute

import belljar
from belljar import Denied, Result, SandboxStatus
from belljar.sandboxes import DockerSandbox, ProcessSandbox, SandboxConfig, SandboxManager, get_sandbox_manager
from belljar.tools import (
    PROGRAM,
    SandboxedCommandTool,
    SandboxedFileTool,
    SandboxedNetworkTool,
    SandboxedPythonTool,
    ToolContext,
    ToolResult,
)

BLOCKS = blocks("004.md", "47dc25519e746f7a44b38343f77ad257f9792571601af295f81d558d25fa1a03")
NAMES: Dict[str, Any] = {
    one.__name__: one
    for one in (
        SandboxConfig, ProcessSandbox, DockerSandbox, get_sandbox_manager, ToolContext, SandboxedCommandTool,
        SandboxedPythonTool, SandboxedFileTool, SandboxedNetworkTool, SandboxStatus, Path,
    )
}  # fmt: skip


@pytest.fixture
def sandbox(client: belljar.Client) -> Iterator[ProcessSandbox]:
    with ProcessSandbox() as made:
        yield made


@pytest.fixture
def context(client: belljar.Client) -> ToolContext:
    return ToolContext()


def sessions(client: belljar.Client) -> Set[str]:
    return {one["session_id"] for one in client.call("GET", "/v1/sessions")["sessions"]}


# The examples.


async def example(heading: str, **names: Any) -> Dict[str, Any]:
    return await execute(BLOCKS[heading], {**NAMES, **names})


def test_every_example_is_here() -> None:
    assert set(BLOCKS) == {
        "Basic Sandbox Execution", "Using Sandbox Manager", "Command Execution", "Python Code Execution",
        "File Operations", "Network Requests", "Error Handling", "Integration with Tool Framework",
        "Running Untrusted Scripts", "Batch Processing with Resource Limits", "Testing with Isolation",
    }  # fmt: skip


async def test_basic_sandbox_execution(client: belljar.Client, capsys: pytest.CaptureFixture[str]) -> None:
    """R56."""
    await example("Basic Sandbox Execution")
    assert capsys.readouterr().out == "Hello, Sandbox!\n\n"


async def test_using_sandbox_manager(client: belljar.Client) -> None:
    """R54."""
    names = await example("Using Sandbox Manager")
    assert names["result"].success and names["result"].output["stdout"] == "4\n"
    assert names["manager"].get_sandbox("my_sandbox") is None


async def test_command_execution(client: belljar.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The working directory is shown where the engine sees it; a service says that it does not."""
    (tmp_path / "seen.txt").write_text("here")
    monkeypatch.chdir(tmp_path)
    result = (await example("Command Execution"))["result"]
    if client.endpoint.is_embedded:
        assert result.success and "seen.txt" in result.output["stdout"]
    else:
        assert not result.success and "working_directory" in result.error and "does not see" in result.error


async def test_python_code_execution(context: ToolContext, capsys: pytest.CaptureFixture[str]) -> None:
    """R58."""
    names = await example("Python Code Execution", context=context)
    assert names["result"].output == 4950 and capsys.readouterr().out == "4950\n"


async def test_file_operations(context: ToolContext, capsys: pytest.CaptureFixture[str]) -> None:
    """R58."""
    names = await example("File Operations", context=context)
    assert names["result"].output == "Hello, World!" and capsys.readouterr().out == "Hello, World!\n"
    names["tool"].close()


async def test_network_requests(context: ToolContext) -> None:
    """R59: the host is listed, and the engine has no such network yet, and says so."""
    result = (await example("Network Requests", context=context))["result"]
    assert not result.success and result.status == SandboxStatus.FAILED
    assert "network" in result.error and "hint" in result.error


@pytest.mark.parametrize(
    "command, wanted",
    [
        (["sleep", "20"], ("WARNING", "Command timed out after ")),
        ("ls; rm x", ("ERROR", "Command failed: ")),
        ("false", ("ERROR", "Command failed: the program returned 1")),
        ("echo fine", ("stdout", "fine\n")),
    ],
)
async def test_error_handling(
    client: belljar.Client, caplog: pytest.LogCaptureFixture, command: Any, wanted: "tuple[str, str]"
) -> None:
    told: List[Any] = []
    with ProcessSandbox(SandboxConfig(timeout_seconds=1)) as sandbox:
        logger = logging.getLogger("example")
        await example("Error Handling", sandbox=sandbox, command=command, logger=logger, process_output=told.append)
    said = [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "example"]
    said += [("stdout", output["stdout"]) for output in told]
    assert len(said) == 1 and said[0][0] == wanted[0] and said[0][1].startswith(wanted[1])


async def test_integration_with_tool_framework(client: belljar.Client, tmp_path: Path, monkeypatch: Any) -> None:
    """R60."""
    monkeypatch.chdir(tmp_path)
    names = await example("Integration with Tool Framework", command_tool=SandboxedCommandTool())
    assert names["context"].sandbox is True
    result = names["result"]
    assert not result.success
    if client.endpoint.is_embedded:
        assert "potentially_dangerous_command" in result.error and result.result.receipt.provider == "native"


async def test_running_untrusted_scripts(client: belljar.Client) -> None:
    """A path names a file of the sandbox, which its manager gives it."""
    script = "import socket\nprint('ran')\nsocket.create_connection(('192.0.2.1', 80), 1)"
    with SandboxManager(files={"script.py": script}) as manager:
        names = await example("Running Untrusted Scripts", manager=manager, untrusted_script_path="script.py")
        assert manager.get_sandbox("untrusted") is None
    assert names["result"].stdout == "ran\n" and not names["result"].success
    assert "PermissionError" in names["result"].stderr or "unreachable" in names["result"].stderr, "R26"


async def test_batch_processing(client: belljar.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    files = {"processor.py": "import sys\nprint(open(sys.argv[1]).read().upper())", "data/a.txt": "a"}
    paths = [Path("data/a.txt"), Path("data/missing.txt")]
    logger = logging.getLogger("example")
    with SandboxManager(files=files) as manager:
        around = {"manager": manager, "config": SandboxConfig(max_memory_mb=64), "files_to_process": paths}
        await example("Batch Processing with Resource Limits", **around, logger=logger)
        assert len(manager) == 0
    said = [one.getMessage() for one in caplog.records if one.name == "example"]
    assert said[0].startswith("Processed a.txt in 0.") and said[1].startswith("Failed to process missing.txt: ")


async def test_testing_with_isolation(client: belljar.Client) -> None:
    """R36: no container, no sandbox. Nothing is run with less."""
    before = sessions(client)
    with pytest.raises(Denied, match="container isolation") as raised:
        await example("Testing with Isolation")
    assert raised.value.code == "isolation_unavailable" and raised.value.fix
    assert sessions(client) == before
    policies = [one["policy"]["policy_id"] for one in client.call("GET", "/v1/policies")["policies"]]
    assert not [one for one in policies if one.startswith("docker")]


# The configuration.


def test_defaults() -> None:
    """R2."""
    config = SandboxConfig()
    assert (config.max_memory_mb, config.max_cpu_seconds, config.max_file_size_mb) == (512, 30, 100)
    assert (config.max_process_count, config.max_open_files, config.timeout_seconds) == (10, 100, 60)
    assert (config.allow_network, config.allowed_hosts, config.allowed_commands) == (False, [], [])


def test_the_documents_table_is_what_there_is() -> None:
    """R2: every option of the table, and its default."""
    rows = [line.split("|") for line in (Path(__file__).parent / "documents/004.md").read_text().splitlines()]
    table = {row[1].strip(): row[3].strip() for row in rows if len(row) == 6 and row[1].strip().islower()}
    assert len(table) == 9
    assert {name: repr(getattr(SandboxConfig(), name)) for name in table} == table
    assert set(SandboxConfig.__dataclass_fields__) == set(table)


@pytest.mark.parametrize("field", [name for name in SandboxConfig.__dataclass_fields__ if not name.startswith("allow")])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "12", None, True])
def test_wrong_limits_are_refused_when_constructed(field: str, value: object) -> None:
    """R6."""
    with pytest.raises((ValueError, TypeError), match=field):
        SandboxConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "field, value",
    [("allow_network", "no"), ("allowed_hosts", "pypi.org"), ("allowed_hosts", [""]), ("allowed_commands", [1])],
)
def test_wrong_fields_are_named(field: str, value: object) -> None:
    """R6."""
    with pytest.raises((ValueError, TypeError), match=field):
        SandboxConfig(**{field: value})  # type: ignore[arg-type]


def test_a_list_is_not_shared_with_whoever_gave_it() -> None:
    commands = ["ls"]
    config = SandboxConfig(allowed_commands=commands)
    commands.append("rm")
    assert config.allowed_commands == ["ls"]


# Commands.


def test_a_line_is_split_as_a_shell_would(sandbox: ProcessSandbox) -> None:
    """R56."""
    assert sandbox.execute("echo 'Hello, Sandbox!'").stdout == "Hello, Sandbox!\n"
    assert sandbox.execute("printf '%s.' \"a b\" c\\ d ''").stdout == "a b.c d.."
    assert sandbox.execute(["echo", "a;b", "$HOME", "*"]).stdout == "a;b $HOME *\n"


@pytest.mark.parametrize(
    "command",
    [
        "touch ran; ls", "touch ran && ls", "touch ran | cat", "touch ran > x", "touch $(ls)", "touch `ls`", "touch r*",
        "touch ran &", "touch ran\nls", "touch 'ran", "rm -rf /", ["rm", "-rf", "/"], "sudo touch ran",
        ["sudo", "touch", "ran"], "dd if=ran of=/dev/sda",
    ],
)  # fmt: skip
def test_what_is_refused_does_not_run(sandbox: ProcessSandbox, command: Any) -> None:
    """R57."""
    result = sandbox.execute(command)
    assert isinstance(result, Result) and not result.success
    assert result.status == SandboxStatus.FAILED and result.error_type == "PolicyViolation" and result.error
    assert result.exit_code is None and result.stdout == "" and result.duration == 0
    assert sandbox.files.list() == []


@pytest.mark.parametrize(
    "command", ["touch ran", ["touch", "ran"], "'tou'ch ran", "/bin/echo x", "./echo x", ["", "echo"]]
)
def test_commands_that_are_not_listed(client: belljar.Client, command: Any) -> None:
    """R57: compared as a whole."""
    with ProcessSandbox(SandboxConfig(allowed_commands=["echo", "cat"])) as sandbox:
        result = sandbox.execute(command)
        assert result.status == SandboxStatus.FAILED and result.error_type == "PolicyViolation"
        assert "not on the list of allowed commands" in (result.error or "") and sandbox.files.list() == []
        for allowed in ("echo x", ["echo", "x"], "'ec'ho x"):
            assert sandbox.execute(allowed).stdout == "x\n"
        assert sandbox.execute("echo x; touch ran").error_type == "PolicyViolation"


def test_files_stay_from_one_command_to_the_next(client: belljar.Client, tmp_path: Path) -> None:
    (tmp_path / "host.txt").write_text("of the host")
    with ProcessSandbox(files={"in.txt": "one", "host.txt": tmp_path / "host.txt"}) as sandbox:
        assert sandbox.execute("cp in.txt out.txt").success
        assert sandbox.execute("cat out.txt host.txt").stdout == "oneof the host"
        assert sandbox.execute("cat more.txt", files={"more.txt": "more"}).stdout == "more"
        assert sandbox.files.read("out.txt") == b"one"
        sandbox.files.write("by.txt", "hand")
        assert sandbox.execute("cat by.txt").stdout == "hand"
        assert sandbox.execute("cat", stdin="typed").stdout == "typed"
        assert not sandbox.execute(["cat", str(tmp_path / "host.txt")]).success, "R29"


def test_limits_bite(client: belljar.Client) -> None:
    """R22, R23, R25, through a configuration."""
    config = SandboxConfig(
        max_memory_mb=64, max_file_size_mb=1, max_process_count=3, max_open_files=32, timeout_seconds=3
    )
    with ProcessSandbox(config, files={"in.txt": "given"}) as sandbox:
        result = sandbox.execute(["python3", "-c", "x = b'x' * (300 << 20)"])
        assert result.status == SandboxStatus.FAILED and result.error_type == "out_of_memory"
        assert not sandbox.execute(["dd", "if=/dev/zero", "of=big", "bs=1M", "count=4"]).success
        opening = sandbox.execute(["python3", "-c", "x = [open('in.txt') for _ in range(64)]"])
        assert "Too many open files" in opening.stderr
        forks = "import os, time\nfor _ in range(5):\n    if os.fork() == 0: time.sleep(5)"
        assert not sandbox.execute(["python3", "-c", forks]).success
        began = time.monotonic()
        result = sandbox.execute("sleep 20", timeout=0.5)
        assert result.status == SandboxStatus.TIMEOUT and time.monotonic() - began < 5
        assert result.state_lost and sandbox.execute("cat in.txt").stdout == "given"


def test_no_more_time_than_the_configuration_has(sandbox: ProcessSandbox) -> None:
    with ProcessSandbox(SandboxConfig(timeout_seconds=2)) as short:
        result = short.execute("echo x", timeout=2000)
        assert result.error_type == "PolicyViolation" and result.stdout == ""
    for wrong in (-1, 0, float("nan"), "soon", True):
        with pytest.raises((ValueError, TypeError), match="timeout"):
            sandbox.execute("echo x", timeout=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", [3, None, b"ls", "", "  ", [], [1]])
def test_what_is_no_command(sandbox: ProcessSandbox, command: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="command"):
        sandbox.execute(command)


def test_only_between_setup_and_cleanup(client: belljar.Client) -> None:
    before = sessions(client)
    sandbox = ProcessSandbox()
    with pytest.raises(RuntimeError, match="not set up") as raised:
        sandbox.execute("ls")
    assert isinstance(raised.value, belljar.SandboxError)
    sandbox.setup()
    sandbox.setup()
    assert len(sessions(client) - before) == 1, "setting up twice makes one"
    sandbox.cleanup()
    sandbox.cleanup()
    assert sessions(client) <= before
    for use in (lambda: sandbox.execute("ls"), sandbox.setup, lambda: sandbox.files):
        with pytest.raises(belljar.SandboxClosed, match="cleaned up"):
            use()


def test_cleanup_follows_an_error(client: belljar.Client) -> None:
    before = sessions(client)
    with pytest.raises(KeyError):
        with ProcessSandbox():
            raise KeyError
    assert sessions(client) <= before


@pytest.mark.parametrize("hosts, network", [(["pypi.org"], "restricted"), ([], "full")])
def test_a_network_that_there_is_not(client: belljar.Client, hosts: List[str], network: str) -> None:
    """R26: no sandbox with less than was asked for, and the reason."""
    config = SandboxConfig(allow_network=True, allowed_hosts=hosts)
    assert config.network == network
    before = sessions(client)
    with pytest.raises(Denied, match="network") as raised:
        ProcessSandbox(config).setup()
    assert raised.value.fix and sessions(client) == before
    assert SandboxConfig(allowed_hosts=["pypi.org"]).network == "none"


def test_wrong_arguments_are_named(client: belljar.Client) -> None:
    with pytest.raises(TypeError, match="config"):
        ProcessSandbox({"max_memory_mb": 1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="files"):
        ProcessSandbox(files={"../x": ""})
    with pytest.raises(TypeError, match="image"):
        DockerSandbox(image=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="image"):
        DockerSandbox(image=" ")


# The manager.


def test_create_get_cleanup(client: belljar.Client) -> None:
    """R54."""
    before = sessions(client)
    with SandboxManager() as manager:
        one, two = manager.create_sandbox("one"), manager.create_sandbox("two", SandboxConfig(timeout_seconds=5))
        assert manager.get_sandbox("one") is one and two.config.timeout_seconds == 5
        assert manager.list_sandboxes() == ["one", "two"] and "one" in manager and "three" not in manager
        assert manager.get_sandbox("three") is None and manager.cleanup_sandbox("three") is False
        assert manager.cleanup_sandbox("one") is True and manager.get_sandbox("one") is None
        with pytest.raises(belljar.SandboxClosed):
            one.execute("ls")
        assert two.execute("echo x").success
        manager.create_sandbox("one")
        manager.cleanup_all()
        assert manager.list_sandboxes() == [] and sessions(client) <= before
        manager.create_sandbox("left")
    assert sessions(client) <= before


def test_one_manager() -> None:
    """R54: also of threads that come at the same time."""
    with ThreadPoolExecutor(8) as threads:
        assert len({id(one.result()) for one in [threads.submit(get_sandbox_manager) for _ in range(32)]}) == 1


def test_a_name_that_is_taken(client: belljar.Client) -> None:
    """R55."""
    before = sessions(client)
    with SandboxManager() as manager:
        first = manager.create_sandbox("same")
        first.files.write("kept", "kept")
        with pytest.raises(ValueError, match="'same'"):
            manager.create_sandbox("same")
        assert manager.get_sandbox("same") is first and first.execute("cat kept").stdout == "kept"
        assert len(sessions(client) - before) == 1
    assert sessions(client) <= before


def test_a_name_that_many_threads_want(client: belljar.Client) -> None:
    """R55."""
    before = sessions(client)
    with SandboxManager() as manager:

        def create(_: int) -> bool:
            try:
                manager.create_sandbox("same")
            except ValueError:
                return False
            return True

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(create, range(8))) == 1
        assert len(sessions(client) - before) == 1
    assert sessions(client) <= before


def test_a_sandbox_that_cannot_be_made_leaves_its_name(client: belljar.Client) -> None:
    with SandboxManager() as manager:
        with pytest.raises(Denied):
            manager.create_sandbox("one", kind="docker", image="python:3.9")
        assert manager.list_sandboxes() == [] and manager.create_sandbox("one").execute("echo x").success
        for name, kind in ((3, "process"), ("", "process"), ("two", "vm")):
            with pytest.raises((TypeError, ValueError), match="name|kind"):
                manager.create_sandbox(name, kind=kind)  # type: ignore[arg-type]


def test_what_a_manager_left_goes_with_it(client: belljar.Client) -> None:
    before = sessions(client)
    manager = SandboxManager()
    manager.create_sandbox("left")
    del manager
    gc.collect()
    assert sessions(client) <= before


def in_a_program(program: str, service: str) -> str:
    """What another program says that has the service as its own."""
    environment = {**os.environ, "BELLJAR_URL": service, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert ended.stderr == ""
    return ended.stdout


def test_what_a_program_left_goes_with_it(service: str) -> None:
    """At the end of the program, without a word of its own, also with a service, which does not end then."""
    program = """
from belljar.sandboxes import get_sandbox_manager, SandboxConfig
config = SandboxConfig(max_memory_mb=64, max_file_size_mb=1, max_open_files=64, max_process_count=5)
print(get_sandbox_manager().create_sandbox("left", config).execute("echo made"))
"""
    with belljar.connect(service, default=False) as client:
        before = sessions(client)
        assert in_a_program(program, service) == "made\n\n"
        assert sessions(client) <= before


def test_a_fork_has_a_manager_of_its_own(service: str) -> None:
    program = """
import os
from belljar.sandboxes import get_sandbox_manager, SandboxConfig
config = SandboxConfig(max_memory_mb=64, max_file_size_mb=1, max_open_files=64, max_process_count=5)
manager = get_sandbox_manager()
ours = manager.create_sandbox("same", config, files={"whose": "ours"})
child = os.fork()
if child == 0:
    manager = get_sandbox_manager()
    print(manager.list_sandboxes(), flush=True)
    print(manager.create_sandbox("same", config, files={"whose": "the fork's"}).execute("cat whose"), flush=True)
    raise SystemExit
os.waitpid(child, 0)
print(ours.execute("cat whose"))
"""
    with belljar.connect(service, default=False) as client:
        before = sessions(client)
        assert in_a_program(program, service) == "[]\nthe fork's\nours\n"
        assert sessions(client) <= before


# Tools.


def test_command_tool(context: ToolContext) -> None:
    tool = SandboxedCommandTool(SandboxConfig(timeout_seconds=1, allowed_commands=["cat", "sleep"]))
    result = tool.execute(context, "cat in.txt", files={"in.txt": "x"})
    assert isinstance(result, ToolResult) and result.success and result.error is None
    assert result.output == {"stdout": "x", "stderr": "", "exit_code": 0} and result.duration > 0
    assert not tool.execute(context, "cat in.txt"), "each has a sandbox of its own"
    assert tool.execute(context, ["sleep", "20"]).status == SandboxStatus.TIMEOUT
    refused = tool.execute(context, "ls")
    assert refused.status == SandboxStatus.FAILED and "allowed commands" in (refused.error or "")
    assert "metacharacter" in (tool.execute(context, "cat in.txt; ls").error or "")


def test_the_working_directory_can_be_read_and_not_written(engine: belljar.Client, tmp_path: Path) -> None:
    """R28, R29: what is in it and nothing beside it, also by links."""
    inside, beside = tmp_path / "inside", tmp_path / "beside"
    inside.mkdir()
    (inside / "src").mkdir()
    (inside / "src" / "a.py").write_text("text")
    (inside / "with space").write_text("space")
    (inside / "co:lon").write_text("colon")
    beside.write_text("secret")
    (inside / "link").symlink_to(beside)
    (inside / "src" / "link").symlink_to(beside)
    os.mkfifo(inside / "pipe")
    context = ToolContext(working_directory=inside)
    tool = SandboxedCommandTool(client=engine)
    assert tool.execute(context, "cat src/a.py 'with space'").output["stdout"] == "textspace"
    assert tool.execute(context, "ls").output["stdout"] == "src\nwith space\n"
    for command in ("cat link", "cat src/link", "cat ../beside", ["cat", str(beside)]):
        assert not tool.execute(context, command)
    for command in ("touch src/new", "rm src/a.py", ["sh", "-c", "echo x > 'with space'"]):
        assert not tool.execute(context, command)
    assert tool.execute(context, "touch scratch").success, "its own directory it may write to"
    assert sorted(os.listdir(inside)) == ["co:lon", "link", "pipe", "src", "with space"]
    assert sorted(os.listdir(inside / "src")) == ["a.py", "link"]
    gone = tool.execute(ToolContext(working_directory=inside / "gone"), "ls")
    assert not gone.success and "working_directory" in (gone.error or "")


def test_python_tool(context: ToolContext) -> None:
    tool = SandboxedPythonTool(SandboxConfig(timeout_seconds=1, max_memory_mb=128))
    assert tool.execute(context, "2 + 2").output == 4
    assert tool.execute(context, "print('said')").output == "said\n"
    failed = tool.execute(context, "1 / 0")
    assert not failed.success and failed.error == "ZeroDivisionError: division by zero"
    assert tool.execute(context, "while True: pass").status == SandboxStatus.TIMEOUT
    assert not tool.execute(context, "x = b'x' * (500 << 20)").success
    with pytest.raises(TypeError, match="code"):
        tool.execute(context, 3)  # type: ignore[arg-type]


def test_file_tool(context: ToolContext, client: belljar.Client) -> None:
    before = sessions(client)
    with SandboxedFileTool() as tool:
        assert tool.execute(context, "exists", "a/b.txt").output is False
        assert tool.execute(context, "write", "a/b.txt", "Hello, World!").success
        assert tool.execute(context, "write", "bytes", b"\xff\x00").success
        assert tool.execute(context, "read", "a/b.txt").output == "Hello, World!"
        assert tool.execute(context, "read", "bytes").output == b"\xff\x00"
        assert tool.execute(context, "exists", "a/b.txt").output is True
        assert tool.execute(context, "exists", "a").output is True
        assert tool.execute(context, "list").output == ["a", "a/b.txt", "bytes"]
        assert tool.execute(context, "list", "a").output == ["a/b.txt"]
        assert tool.execute(context, "delete", "a").success
        assert tool.execute(context, "list").output == ["bytes"]
        gone = tool.execute(context, "read", "a/b.txt")
        assert not gone.success and gone.status == SandboxStatus.FAILED and "a/b.txt" in (gone.error or "")
        assert not SandboxedFileTool().execute(context, "read", "bytes").success, "each tool has its own"
        with pytest.raises(ValueError, match="operation"):
            tool.execute(context, "chmod", "bytes")
        with pytest.raises(TypeError, match="content"):
            tool.execute(context, "write", "bytes")
        with pytest.raises(ValueError, match="content"):
            tool.execute(context, "read", "bytes", "x")
        with pytest.raises(TypeError, match="path"):
            tool.execute(context, "read", 3)  # type: ignore[arg-type]
    gc.collect()
    assert sessions(client) <= before


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "..", "a\0b"])
@pytest.mark.parametrize("operation", ["write", "read", "delete", "exists", "list"])
def test_a_path_that_leads_out(path: str, operation: str) -> None:
    """Refused before there is a sandbox."""
    content = "x" if operation == "write" else None
    result = SandboxedFileTool().execute(ToolContext(), operation, path, content)
    assert not result.success and result.status == SandboxStatus.FAILED and "path" in (result.error or "")


HOSTS = ["api.example.com", "other.example:8443", "[2001:db8::1]"]


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/data", "https://evil.com/api.example.com", "https://api.example.com.evil.com/",
        "https://xapi.example.com/", "https://api.example.com:8443/", "http://api.example.com:443/",
        "https://other.example/", "https://other.example:8444/", "https://api.example.com@evil.com/",
        "https://user:pw@api.example.com/", "https://evil.com\\@api.example.com/", "https://api.example.com./",
        "ftp://api.example.com/", "file:///etc/passwd", "//api.example.com/", "api.example.com", "",
        "https://api.example.com\t.evil.com/", "https://api.example.com /", "https://api.example.com:x/",
        "https://127.0.0.1/", "https://[::1]/", "https://[2001:db8::1]:8443/", "https://api.example.com\uff0eevil.com/",
    ],
)  # fmt: skip
def test_a_host_that_is_not_listed(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """R59: refused before there is a sandbox, other ports included."""
    monkeypatch.setattr("belljar.tools.run", lambda *_, **__: pytest.fail("something ran"))
    result = SandboxedNetworkTool(allowed_hosts=HOSTS).execute(ToolContext(), url)
    assert not result.success and result.status == SandboxStatus.FAILED and result.error


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/data", "http://api.example.com/", "https://API.example.com:443/",
        "https://other.example:8443/x", "http://other.example:8443/", "https://[2001:db8::1]/",
    ],
)  # fmt: skip
def test_a_host_that_is_listed(context: ToolContext, url: str) -> None:
    """R59: it is for the engine to give a network of these hosts, or to say that it cannot."""
    result = SandboxedNetworkTool(allowed_hosts=HOSTS).execute(context, url, "post", "body", {"x-key": "k"})
    assert not result.success and "network `restricted`" in (result.error or "")


def test_the_network_tools_arguments() -> None:
    tool, context = SandboxedNetworkTool(["api.example.com"]), ToolContext()
    url = "https://api.example.com/"
    for wrong in ("TRACE", "get it", "", 3):
        with pytest.raises(ValueError, match="method"):
            tool.execute(context, url, wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="url"):
        tool.execute(context, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="body"):
        tool.execute(context, url, "POST", 3)  # type: ignore[arg-type]
    for headers in ({"a": "b\r\nc: d"}, {"Host": "evil.com"}):
        with pytest.raises(ValueError, match="headers"):
            tool.execute(context, url, headers=headers)
    for entry in ("https://a.com", "a.com/x", "*.a.com", "a b", "", "u@a.com", "a.com:", "a.com:x", "a.com:99999"):
        with pytest.raises(ValueError, match="allowed_hosts"):
            SandboxedNetworkTool(allowed_hosts=[entry])
    with pytest.raises(TypeError, match="allowed_hosts"):
        SandboxedNetworkTool(allowed_hosts="a.com")


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302 if self.path == "/moved" else 404 if self.path == "/gone" else 200)
        self.send_header("location", "/elsewhere")
        self.end_headers()
        self.wfile.write(f"{self.command} {self.path} {self.headers.get('x-key')}".encode())

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.rfile.read(int(self.headers["content-length"])))

    def log_message(self, *_: object) -> None:
        pass


def test_the_program_that_asks() -> None:
    """R59: it answers with what came, and follows no redirect. No sandbox has a network for it yet, so it runs here."""
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def ask(path: str, method: str = "GET", body: Any = None) -> Dict[str, Any]:
            url = f"http://127.0.0.1:{server.server_port}{path}"
            names: Dict[str, Any] = {
                "asked": {"url": url, "method": method, "body": body, "headers": {"x-key": "k"}, "timeout": 5}
            }
            exec(PROGRAM, names)
            answer: Dict[str, Any] = names["result"]
            return answer

        assert (ask("/data")["status"], ask("/data")["body"]) == (200, "GET /data k")
        moved = ask("/moved")
        assert (moved["status"], moved["body"], moved["headers"]["location"]) == (302, "GET /moved k", "/elsewhere")
        assert ask("/gone")["status"] == 404
        assert ask("/", "POST", b"\xff")["body"] == b"\xff"
        server.shutdown()


@pytest.mark.parametrize("sandboxed", [True, False])
def test_a_dry_run_executes_nothing(monkeypatch: pytest.MonkeyPatch, sandboxed: bool) -> None:
    """R60: and says what it would."""

    def fail(*_: object, **__: object) -> None:
        pytest.fail("something ran")

    monkeypatch.setattr("belljar._client.default", fail)
    context = ToolContext(working_directory=Path.cwd(), sandbox=sandboxed, dry_run=True)
    told = [
        (SandboxedCommandTool().execute(context, "ls -la"), "ls -la"),
        (SandboxedPythonTool().execute(context, "1 / 0"), "1 / 0"),
        (SandboxedFileTool().execute(context, "write", "a.txt", "x"), "write a.txt"),
        (SandboxedNetworkTool(["a.com"]).execute(context, "https://a.com/x"), "GET https://a.com/x"),
    ]
    for result, wanted in told:
        assert result.success and result.status == SandboxStatus.PENDING and result.result is None
        assert wanted in result.output and result.output.startswith("would ")
    refused = SandboxedNetworkTool(["a.com"]).execute(context, "https://b.com/")
    assert not refused.success, "a dry run does not say that it would do what it would not"


@pytest.mark.parametrize("sandboxed", [True, False])
def test_tools_use_a_sandbox_whatever_the_context_says(client: belljar.Client, sandboxed: bool) -> None:
    """R60."""
    context = ToolContext(sandbox=sandboxed)
    for result in (
        SandboxedCommandTool().execute(context, ["sh", "-c", "echo $PPID; pwd"]),
        SandboxedPythonTool().execute(context, "import os; print(os.getcwd())"),
    ):
        assert result.success and result.result is not None
        assert result.result.receipt.provider == "native" and result.result.receipt.network == "none"
        assert "/workspace" in result.result.stdout


def test_a_context_is_checked() -> None:
    for arguments, named in (
        ({"working_directory": 3}, "working_directory"),
        ({"sandbox": "yes"}, "sandbox"),
        ({"dry_run": 1}, "dry_run"),
    ):
        with pytest.raises(TypeError, match=named):
            ToolContext(**arguments)  # type: ignore[arg-type]
    assert ToolContext(working_directory="/tmp").working_directory == Path("/tmp")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="context"):
        SandboxedPythonTool().execute(Path.cwd(), "1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="config"):
        SandboxedPythonTool({"max_memory_mb": 1})  # type: ignore[arg-type]
