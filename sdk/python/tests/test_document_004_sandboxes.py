"""Document 004: sandboxes for commands, and their manager."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Iterator

import pytest
from conftest import sessions

import belljar
from belljar import Denied, Result, SandboxStatus
from belljar.sandboxes import DockerSandbox, ProcessSandbox, SandboxConfig, SandboxManager, get_sandbox_manager


@pytest.fixture
def sandbox(client: belljar.Client) -> Iterator[ProcessSandbox]:
    with ProcessSandbox() as made:
        yield made


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
        result = sandbox.execute("sleep 50", timeout=0.5)
        assert result.status == SandboxStatus.TIMEOUT and time.monotonic() - began < 40
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


def test_the_network_that_is_asked_for_or_none(client: belljar.Client, request: pytest.FixtureRequest) -> None:
    """R26: no sandbox with less than was asked for, and the reason; R27: and none with more than the world."""
    config = SandboxConfig(allow_network=True)
    assert config.network == "full"
    assert SandboxConfig(allow_network=True, allowed_hosts=["pypi.org"]).network == "restricted"
    assert SandboxConfig(allowed_hosts=["pypi.org"]).network == "none"
    before = sessions(client)
    if "service" in request.node.name:
        # Its policy permits no network.
        with pytest.raises(Denied, match="network") as raised:
            ProcessSandbox(config).setup()
        assert raised.value.fix and sessions(client) == before
        return
    with ProcessSandbox(config) as sandbox:
        code = "import socket; socket.create_connection(('169.254.169.254', 80), 5).recv(1)"
        result = sandbox.execute(["python3", "-c", code])
        assert result.exit_code == 1 and "ConnectionResetError" in result.stderr


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
