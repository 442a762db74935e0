"""Document 003: workspaces on disk (R46 to R53)."""

from __future__ import annotations

import inspect
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, List, Tuple

import pytest

import belljar
from belljar import SandboxStatus, _client, workspace
from belljar._engine import find_executable
from belljar.workspace import (
    BaseDirectoryError,
    BasicSandboxManager,
    CommandDenied,
    CommandError,
    IllegalTransition,
    Lifecycle,
    SetupError,
    TeardownError,
    WorkspaceError,
    WorkspaceManager,
    WorkspaceSandbox,
)

DOCUMENT = (Path(__file__).parent / "documents" / "003.md").read_text(encoding="utf-8")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "base"


@pytest.fixture
def manager(base: Path, engine: belljar.Client, monkeypatch: pytest.MonkeyPatch) -> WorkspaceManager:
    """With an engine of this process: a workspace is a directory of this machine."""
    monkeypatch.setattr(_client, "_default", engine)
    return WorkspaceManager(base)


def names(directory: Path) -> List[str]:
    return sorted(os.listdir(directory))


# What the document says


def test_states_and_their_arrows_are_the_documents() -> None:
    """R1, R50: the whole table, so that a new arrow is a visible change."""
    said = {pair for pair in re.findall(r"^  (\w+) --> (\w+)$", DOCUMENT, re.MULTILINE)}
    assert said == {
        ("setup", "ready"),
        ("ready", "running"),
        ("running", "teardown"),
        ("running", "error"),
        ("error", "teardown"),
    }
    assert {state.value for state in Lifecycle} == {state for pair in said for state in pair}
    assert all(str(state) == state.value == state.name.lower() for state in Lifecycle)
    ours = {("running", "ready"), ("setup", "teardown"), ("setup", "error"), ("ready", "teardown"), ("ready", "error")}
    legal = {(one.value, other.value) for one in Lifecycle for other in Lifecycle if one.may_go_to(other)}
    assert legal == said | ours


def test_names_are_the_documents(manager: WorkspaceManager) -> None:
    assert "`BasicSandboxManager`" in DOCUMENT and BasicSandboxManager is WorkspaceManager
    for call in ("Setup(workspace_id)", "Teardown(workspace_id)"):
        assert f"M: {call}" in DOCUMENT
        method = getattr(WorkspaceManager, call.split("(")[0].lower())
        assert list(inspect.signature(method).parameters) == ["self", "workspace_id"]
    assert "sandbox(root_path)" in DOCUMENT and "ExecuteScript(script, input, sandbox)" in DOCUMENT
    assert {"script", "input"} <= set(inspect.signature(WorkspaceSandbox.run_script).parameters)
    with manager.setup("ws") as sandbox:
        assert os.path.isdir(sandbox.root_path)


def test_policy_and_limits_are_attached(base: Path, manager: WorkspaceManager) -> None:
    """`Sandbox policy level and resource limits are attached to sandbox state.`"""
    limited = WorkspaceManager(base, policy="permissive", memory="64M", timeout=9)
    with limited.setup("ws") as sandbox:
        assert (sandbox.policy, sandbox.limits) == ("permissive", {"memory": "64M", "timeout": 9})
        receipt = sandbox.run_script("1").receipt
        assert (receipt.policy_id, receipt.limits["memory"], receipt.limits["wall_time"]) == (
            "permissive",
            64 << 20,
            9.0,
        )
        assert sandbox.run_script("1", timeout=3).receipt.limits["wall_time"] == 3.0


# Setup and teardown


def test_setup_gives_a_unique_id_and_root(base: Path, manager: WorkspaceManager) -> None:
    """R46: below base/workspace, for its owner alone."""
    one, two = manager.setup("ws"), manager.setup("ws")
    assert one.id != two.id
    for sandbox in (one, two):
        assert Path(sandbox.root_path) == base.resolve() / "ws" / sandbox.id and sandbox.state is Lifecycle.READY
        for path in (Path(sandbox.root_path), base / "ws", base):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
    one.teardown()
    assert names(base / "ws") == [two.id] and one.state is Lifecycle.TEARDOWN and two.state is Lifecycle.READY
    two.teardown()
    assert names(base) == []
    two.teardown()


def test_setups_in_parallel_are_unique_and_survive_a_teardown(base: Path, manager: WorkspaceManager) -> None:
    """R46, R49: what is set up meanwhile is nobody's leftover."""

    def work(number: int) -> List[str]:
        roots = []
        for _ in range(20):
            sandbox = manager.setup("ws")
            roots.append(sandbox.root_path)
            if number == 0:
                manager._remove("ws", None)
            assert os.path.isdir(sandbox.root_path)
            sandbox.teardown()
        return roots

    with ThreadPoolExecutor(8) as pool:
        roots = [root for some in pool.map(work, range(8)) for root in some]
    assert len(set(roots)) == 160 and names(base) == []


def test_scripts_run_in_the_sandboxs_directory(manager: WorkspaceManager) -> None:
    """R48: only files pass from one to the next."""
    with manager.setup("ws") as sandbox:
        root = Path(sandbox.root_path)
        result = sandbox.run_script("pwd; echo one > note; (setsid sleep 600 &)", "bash")
        assert result.stdout == "/workspace\n" and (root / "note").read_text() == "one\n"
        assert (root / "note").stat().st_uid == os.geteuid()
        (root / "input").write_text("two\n")
        result = sandbox.run_script("import os; print(open('note').read() + open('input').read(), os.listdir('/tmp'))")
        assert result.stdout == "one\ntwo\n []\n"
        assert sandbox.run_command(["cat", "note", "input"]).stdout == "one\ntwo\n"
        assert sandbox.run_command("cat 'note'").stdout == "one\n"
        assert sandbox.run_script("cat", "bash", input=b"\xff").stdout_bytes == b"\xff"
        assert (
            sandbox.run_script("import sys; print(sys.argv[1:], input())", input="in", args=["a b"]).stdout
            == "['a b'] in\n"
        )
        assert sandbox.run_command(["printenv", "A"], env={"A": "b"}).stdout == "b\n"


def test_a_workspace_is_all_that_can_be_reached(base: Path, manager: WorkspaceManager) -> None:
    """R29, R48: not the neighbour, not the directory above."""
    with manager.setup("ws") as sandbox, manager.setup("other") as other:
        secret = Path(other.root_path) / "secret"
        secret.write_text("of the other")
        os.symlink(secret, os.path.join(sandbox.root_path, "link"))
        for path in (str(secret), "link", f"../../other/{other.id}/secret", "../../etc/shadow"):
            assert sandbox.run_script(f"print(open({path!r}).read())").exit_code == 1, path


NASTY = (
    "mkdir -p a/b/c; echo x > a/b/c/f; chmod 000 a/b a; ln -s / root; ln -s ../../ws-2 beside; ln -s \"$CANARY\" away; "
    "mkfifo pipe; touch $'new\\nline' -- '-rf' $'bad\\xff'; mkdir shut; chmod 000 shut; exit 4"
)  # fmt: skip


def test_teardown_runs_on_error_and_touches_nothing_else(base: Path, manager: WorkspaceManager) -> None:
    """R49: `ws` never touches `ws-2`, nor what a guest links to."""
    canary = base.parent / "canary"
    canary.mkdir(parents=True)
    (canary / "file").write_text("alive")
    neighbour = manager.setup("ws-2")
    (Path(neighbour.root_path) / "kept").write_text("x")
    manager.setup("w")
    (base / "ws" / "sb-old" / "x").mkdir(parents=True)  # left over by a process that died
    (base / "ws").chmod(0o700)

    with pytest.raises(ZeroDivisionError):
        with manager.setup("ws") as sandbox:
            assert sandbox.run_script(NASTY, "bash", env={"CANARY": str(canary)}).exit_code == 4
            assert len(names(Path(sandbox.root_path))) >= 8
            raise ZeroDivisionError
    assert names(base / "ws") == ["sb-old"]
    first, second = manager.setup("ws"), manager.setup("ws")
    second.run_script(NASTY, "bash", env={"CANARY": str(canary)})
    manager.teardown("ws")
    assert names(base) == ["w", "ws-2"] and first.state is second.state is Lifecycle.TEARDOWN
    assert (Path(neighbour.root_path) / "kept").read_text() == "x" and neighbour.state is Lifecycle.READY
    assert (canary / "file").read_text() == "alive"
    for name in ("ws", "never", "ws-2", "w"):
        manager.teardown(name)
    assert names(base) == []


def test_depth_and_number_cost_nothing(base: Path, manager: WorkspaceManager) -> None:
    """R49: a tree that is deeper than paths, stacks and descriptors go."""
    with manager.setup("ws") as sandbox:
        deep = "import os\nfor n in range(1200):\n    os.mkdir('d'); open('f', 'w').close(); os.chdir('d')"
        assert sandbox.run_script(deep).success
        assert sandbox.run_script("import os\nfor n in range(3000): open(f'f{n}', 'w').close()").success
    assert names(base) == []


def test_two_teardowns_at_once_do_no_harm(base: Path, manager: WorkspaceManager) -> None:
    """R49: whoever is faster, it is gone, and nobody is told of a failure."""
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            sandbox = manager.setup("ws")
            for number in range(30):
                os.makedirs(os.path.join(sandbox.root_path, str(number), "a", "b"))
            ways = [sandbox.teardown, lambda: manager.teardown("ws")] * 2
            for work in [pool.submit(way) for way in ways]:
                work.result()
            assert names(base) == []


def test_a_link_in_place_of_a_directory_is_not_followed(base: Path, manager: WorkspaceManager) -> None:
    """R49, R53."""
    canary = base.parent / "canary"
    canary.mkdir(parents=True)
    (canary / "file").write_text("alive")
    sandbox = manager.setup("ws")
    os.rmdir(sandbox.root_path)
    os.symlink(canary, sandbox.root_path)
    sandbox.teardown()
    assert names(base) == []
    sandbox = manager.setup("ws")
    os.rename(base / "ws", base.parent / "aside")
    os.symlink(canary, base / "ws")
    with pytest.raises(TeardownError):
        sandbox.teardown()
    with pytest.raises(SetupError):
        manager.setup("ws")
    assert names(canary) == ["file"] and (canary / "file").read_text() == "alive"


def test_teardown_stops_what_runs(base: Path, manager: WorkspaceManager) -> None:
    """R49: and waits for that."""
    sandbox = manager.setup("ws")
    caught: List[BaseException] = []

    def run() -> None:
        try:
            sandbox.run_script("while :; do echo x >> grows; mkdir -p d; done", "bash")
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    grows = Path(sandbox.root_path) / "grows"
    for _ in range(100):
        if grows.exists():
            break
        time.sleep(0.05)
    assert grows.exists() and sandbox.state is Lifecycle.RUNNING
    began = time.monotonic()
    manager.teardown("ws")
    assert time.monotonic() - began < 30 and names(base) == []
    thread.join(10)
    assert [type(error) for error in caught] == [CommandError] and "torn down" in str(caught[0])
    assert sandbox.state is Lifecycle.TEARDOWN
    time.sleep(0.3)
    assert names(base) == []


# States


def test_only_legal_transitions(manager: WorkspaceManager) -> None:
    """R50: after a failure, a timeout and a refusal it is ready, after teardown never."""
    sandbox = manager.setup("ws")
    endless = "while True: pass"
    for code, limits, status in (
        ("raise SystemExit(1)", {}, SandboxStatus.FAILED),
        (endless, {"timeout": 0.5}, SandboxStatus.TIMEOUT),
        ("1", {}, SandboxStatus.COMPLETED),
    ):
        assert sandbox.run_script(code, **limits).status is status  # type: ignore[arg-type]
        assert sandbox.state is Lifecycle.READY
    with pytest.raises(CommandDenied):
        sandbox.run_script("")
    assert sandbox.state is Lifecycle.READY
    sandbox.teardown()
    with pytest.raises(IllegalTransition) as illegal:
        sandbox.run_script("1")
    assert (illegal.value.current, illegal.value.to) == (Lifecycle.TEARDOWN, Lifecycle.RUNNING)
    assert isinstance(illegal.value, belljar.SandboxError)


def test_one_script_at_a_time(manager: WorkspaceManager) -> None:
    """R50."""
    with manager.setup("ws") as sandbox, ThreadPoolExecutor(1) as pool:
        running = pool.submit(sandbox.run_script, "import time; time.sleep(1); print('done')")
        while sandbox.state is not Lifecycle.RUNNING:
            time.sleep(0.01)
        with pytest.raises(IllegalTransition, match="running"):
            sandbox.run_script("1")
        assert running.result().stdout == "done\n" and sandbox.state is Lifecycle.READY


def test_after_an_error_only_teardown_is_left(base: Path) -> None:
    """R50, R53: here the engine dies."""
    with belljar.connect(default=False) as client:
        sandbox = WorkspaceManager(base, client=client).setup("ws")
        assert sandbox.run_script("print(1)").success
        pid = client.endpoint.engine.pid  # type: ignore[attr-defined]
        killer = threading.Timer(0.5, lambda: os.kill(pid, signal.SIGKILL))
        killer.start()
        with pytest.raises(CommandError):
            sandbox.run_script("while True: pass", timeout=20)
        killer.join()
        assert sandbox.state is Lifecycle.ERROR
        with pytest.raises(IllegalTransition):
            sandbox.run_script("1")
        sandbox.teardown()
        assert names(base) == []


# What is refused


@pytest.mark.parametrize(
    "bad", ["", ".", "..", "../x", "a/b", "/abs", "a\\b", "a b", "~", ".hidden", "a\0b", "ü", "a\n", "x" * 129]
)
def test_workspace_ids_are_plain_names(base: Path, manager: WorkspaceManager, bad: str) -> None:
    """R51: and nothing is made or removed."""
    for work in (manager.setup, manager.teardown):
        with pytest.raises(ValueError, match="workspace_id"):
            work(bad)
    assert not base.exists()


def test_workspace_ids_that_are_fine(manager: WorkspaceManager) -> None:
    """R51."""
    for good in ("ws", "ws-2", "a.b_c", "7", "-", "x" * 128):
        with manager.setup(good) as sandbox:
            assert sandbox.workspace_id == good
    with pytest.raises(TypeError, match="workspace_id"):
        manager.setup(7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "argument", ["..", "../x", "a/../../x", "/etc/passwd", "~", "~/x", "--output=../x", "--input=/x", "x=~/y"]
)
def test_arguments_that_leave_are_refused_when_checked(manager: WorkspaceManager, argument: str) -> None:
    """R47: of scripts and of commands, unless the check is off."""
    runs: Tuple[Callable[..., belljar.Result], ...]
    with manager.setup("ws") as sandbox:
        runs = (
            lambda **more: sandbox.run_script('echo "$1"', "bash", args=[argument], **more),
            lambda **more: sandbox.run_command(["echo", argument], **more),
        )
        for run in runs:
            for checked in ({}, {"check_paths": True}):
                with pytest.raises(CommandDenied) as refused:
                    run(**checked)
                assert refused.value.code == "path_not_allowed" and refused.value.value == argument
                assert isinstance(refused.value, belljar.Denied) and sandbox.state is Lifecycle.READY
            assert run(check_paths=False).stdout == f"{argument}\n"


def test_arguments_that_stay_are_fine(base: Path, manager: WorkspaceManager) -> None:
    """R47: and a manager may leave the check out."""
    with manager.setup("ws") as sandbox:
        assert sandbox.run_command(["echo", "a/b.txt", "x..y", "--n=1"]).stdout == "a/b.txt x..y --n=1\n"
    with WorkspaceManager(base, check_paths=False).setup("ws") as sandbox:
        assert sandbox.run_command(["echo", "/x"]).stdout == "/x\n"
        with pytest.raises(CommandDenied):
            sandbox.run_command(["echo", "/x"], check_paths=True)


def pending(client: belljar.Client, run_id: str) -> str:
    for _ in range(200):
        for approval in client.call("GET", "/v1/approvals?state=pending")["approvals"]:
            if approval["run_id"] == run_id:
                return str(approval["approval_id"])
        time.sleep(0.05)
    raise AssertionError("nothing waits for approval")


def test_sandbox_permissions(manager: WorkspaceManager, engine: belljar.Client) -> None:
    """R52: absent and use_default go on, require_escalated waits for approval, anything else is denied."""
    with manager.setup("ws") as sandbox, ThreadPoolExecutor(1) as pool:
        for fine in (None, "use_default"):
            assert sandbox.run_script("print('ran')", sandbox_permissions=fine).stdout == "ran\n"
            assert sandbox.run_command(["echo", "ran"], sandbox_permissions=fine).stdout == "ran\n"
        for odd in ("all", "", "REQUIRE_ESCALATED"):
            with pytest.raises(CommandDenied) as denied:
                sandbox.run_script("open('ran', 'w')", sandbox_permissions=odd)
            assert denied.value.rule == "sandbox_permissions" and denied.value.value == odd
        work = pool.submit(sandbox.run_script, "print('approved')", sandbox_permissions="require_escalated")
        approval = pending(engine, sandbox.id)
        assert not work.done()
        engine.call("POST", f"/v1/approvals/{approval}/grant", {})
        assert work.result(30).stdout == "approved\n"
        work = pool.submit(sandbox.run_script, "open('ran', 'w')", sandbox_permissions="require_escalated")
        engine.call("POST", f"/v1/approvals/{pending(engine, sandbox.id)}/deny", {"reason": "as tests do"})
        with pytest.raises(CommandDenied) as denied:
            work.result(30)
        assert denied.value.code == "approval_denied" and sandbox.state is Lifecycle.READY
        assert "ran" not in names(Path(sandbox.root_path))


def test_failures_are_told_apart(base: Path, manager: WorkspaceManager) -> None:
    """R53."""
    kinds = (BaseDirectoryError, SetupError, TeardownError, CommandError)
    for kind in kinds:
        assert issubclass(kind, WorkspaceError) and issubclass(kind, belljar.SandboxError)
        assert not any(issubclass(kind, other) for other in kinds if other is not kind)

    base.parent.parent.mkdir(parents=True, exist_ok=True)
    base.parent.write_text("a file")
    with pytest.raises(BaseDirectoryError, match="base directory"):
        manager.setup("ws")
    base.parent.unlink()
    base.mkdir(parents=True)
    base.chmod(0o777)
    for work in (manager.setup, manager.teardown):
        with pytest.raises(BaseDirectoryError, match="other users"):
            work("ws")
    base.chmod(0o700)

    (base / "taken").write_text("a file")
    with pytest.raises(SetupError, match="taken"):
        manager.setup("taken")
    with pytest.raises(TeardownError, match="taken"):
        manager.teardown("taken")
    assert (base / "taken").read_text() == "a file"

    with manager.setup("ws") as sandbox:
        with pytest.raises(CommandError, match="cobol"):
            sandbox.run_script("1", "cobol")
        with pytest.raises(CommandError, match="metacharacter"):
            sandbox.run_command("cat x; rm -rf /")
        assert sandbox.state is Lifecycle.READY
    with WorkspaceManager(base, policy="standard").setup("ws") as sandbox:
        with pytest.raises(CommandDenied, match="ruby"):
            sandbox.run_script("1", "ruby")
    with WorkspaceManager(base, policy="no-such-policy").setup("ws") as sandbox:
        with pytest.raises(CommandError, match="no-such-policy"):
            sandbox.run_script("1")


def test_a_failing_teardown_does_not_hide_the_error(base: Path, manager: WorkspaceManager) -> None:
    """R49, R53: both are told."""
    with pytest.raises(TeardownError) as told:
        with manager.setup("ws"):
            os.rename(base / "ws", base.parent / "aside")
            (base / "ws").write_text("a file")
            raise ZeroDivisionError
    assert isinstance(told.value.__cause__, OSError)
    context: Any = told.value.__cause__
    while context is not None and not isinstance(context, ZeroDivisionError):
        context = context.__context__
    assert isinstance(context, ZeroDivisionError)


@pytest.mark.parametrize(
    "wrong, error",
    [
        ({"memory": -1}, ValueError), ({"timeout": []}, TypeError), ({"policy": 7}, TypeError),
        ({"memry": 1}, TypeError),
        ({"processes": "7"}, TypeError), ({"check_paths": 1}, TypeError),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(base: Path, wrong: Any, error: type) -> None:
    """R6."""
    with pytest.raises(error, match=next(iter(wrong))):
        WorkspaceManager(base, **wrong)
    for odd, kind in ((7, TypeError), ("", ValueError)):
        with pytest.raises(kind, match="base_dir"):
            WorkspaceManager(odd)  # type: ignore[arg-type]


def test_wrong_arguments_of_a_run_are_named(manager: WorkspaceManager) -> None:
    with manager.setup("ws") as sandbox:
        for call, error, name in (
            (lambda: sandbox.run_script(7), TypeError, "code"),  # type: ignore[arg-type]
            (lambda: sandbox.run_script("1", args="x"), TypeError, "args"),
            (lambda: sandbox.run_script("1", memory=-1), ValueError, "memory"),
            (lambda: sandbox.run_script("1", memry=1), TypeError, "memory"),  # type: ignore[call-arg]
            (lambda: sandbox.run_command([]), ValueError, "command"),
            (lambda: sandbox.run_command(7), TypeError, "command"),  # type: ignore[arg-type]
            (lambda: sandbox.run_command("ls", input=7), TypeError, "stdin"),  # type: ignore[arg-type]
            (lambda: sandbox.run_command("ls", check_paths="no"), TypeError, "check_paths"),  # type: ignore[arg-type]
            (lambda: sandbox.run_script("1", sandbox_permissions=7), TypeError, "sandbox_p"),  # type: ignore[arg-type]
        ):
            with pytest.raises(error, match=name):
                call()
            assert sandbox.state is Lifecycle.READY


def test_a_service_has_no_workspaces(base: Path, service: str) -> None:
    """A directory of this machine is not the service's; it says so before anything is made, and so does the service."""
    with belljar.connect(service, default=False) as client:
        with pytest.raises(SetupError, match="an engine of one's own"):
            WorkspaceManager(base, client=client).setup("ws")
        assert not base.exists()
        with pytest.raises(belljar.BadRequest, match="workspace"):
            client.call("POST", "/v1/executions", {"code": "1", "workspace": str(base)})


# As somebody else

ORDINARY = 54321


def test_all_of_it_as_an_ordinary_user() -> None:
    """R46 to R53 again, by a user without any rights."""
    if os.geteuid() != 0:
        pytest.skip("not tested here: this is an ordinary user already, and cannot become another")
    with tempfile.TemporaryDirectory() as directory:
        os.chown(directory, ORDINARY, ORDINARY)
        # Whoever tests may have an interpreter that others cannot reach; the system's will do then.
        paths = [Path(workspace.__file__).parent.parent, Path(pytest.__file__).parent.parent]
        environment = {
            "HOME": directory, "TMPDIR": directory, "USER": "ordinary", "PATH": "/usr/local/bin:/usr/bin:/bin",
            "BELLJAR_BIN": find_executable(), "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }  # fmt: skip
        whole: Any = {"user": ORDINARY, "group": ORDINARY, "extra_groups": [], "env": environment, "cwd": directory}

        def run(*command: str) -> "subprocess.CompletedProcess[str]":
            try:
                return subprocess.run(command, capture_output=True, text=True, timeout=300, **whole)
            except OSError as error:
                return subprocess.CompletedProcess(command, 126, "", str(error))

        reached = {}
        for python in (sys.executable, "/usr/bin/python3"):
            reached[python] = run(python, "-c", "import belljar, pytest; belljar.run('1', check=True)")
            if reached[python].returncode == 0:
                break
        else:
            pytest.skip(f"not tested here: another user has no interpreter or no engine: {reached}")
        options = (
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(Path(__file__).parent.parent),
            "--basetemp",
            f"{directory}/t",
        )
        told = run(python, "-m", "pytest", *options, "-k", "not ordinary and not service", __file__)
        assert told.returncode == 0, told.stdout[-5000:] + told.stderr[-2000:]
        assert re.search(r"\b[3-9]\d passed", told.stdout) and "skipped" not in told.stdout, told.stdout[-500:]
