"""The sandbox for Inspect: its own checks of a sandbox, what they leave out, and an eval to its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, AsyncIterator, Dict

import pytest

import belljar

pytest.importorskip("inspect_ai", reason="not tested here: Inspect, which is not installed")

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Target, accuracy, scorer
from inspect_ai.solver import TaskState, generate, use_tools
from inspect_ai.tool import bash, python
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironmentSpec,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandbox,
)
from inspect_ai.util._sandbox.self_check import *  # noqa: F403
from pydantic import ValidationError

from belljar.integrations.inspect_ai import BelljarConfig, BelljarSandboxEnvironment

pytestmark = pytest.mark.usefixtures("client")

# Inspect's checks move 50 MiB.
WIDE = BelljarConfig(file_size="128M", disk="256M", memory="512M", timeout=120)

# What of Inspect's checks does not hold, and why.
UNLIKE = {
    "test_exec_as_user": "a sandbox has one user",
}


Environment = BelljarSandboxEnvironment


async def made(config: Any) -> BelljarSandboxEnvironment:
    environments = await BelljarSandboxEnvironment.sample_init("task", config, {})
    return environments["default"].as_type(BelljarSandboxEnvironment)


async def ended(environment: BelljarSandboxEnvironment) -> None:
    await BelljarSandboxEnvironment.sample_cleanup("task", None, {"default": environment}, False)


@pytest.fixture
async def sandbox_env(request: pytest.FixtureRequest, client: belljar.Client) -> AsyncIterator[Environment]:
    why = UNLIKE.get(request.node.originalname)
    if why is not None:
        request.applymarker(pytest.mark.xfail(reason=why, strict=True))
    environment = await made(WIDE)
    yield environment
    await ended(environment)


@pytest.fixture
async def environment(client: belljar.Client) -> AsyncIterator[BelljarSandboxEnvironment]:
    environment = await made(None)
    yield environment
    await ended(environment)


async def test_a_directory_is_no_file(environment: Environment) -> None:
    """What the checks that are marked above would show."""
    await environment.write_file("/tmp/d/file", "")
    for contents in ("text", b"\xc3\x28"):
        with pytest.raises(IsADirectoryError, match="directory"):
            await environment.write_file("/tmp/d", contents)  # type: ignore[arg-type]
    with pytest.raises(IsADirectoryError, match="directory"):
        await environment.read_file("/tmp/d")


async def test_there_is_one_user(environment: Environment) -> None:
    name = (await environment.exec(["id", "-un"])).stdout.strip()
    assert (await environment.exec(["id", "-un"], user=name)).stdout.strip() == name
    with pytest.raises(SandboxUserUnsupportedError, match="root"):
        await environment.exec(["true"], user="root")


async def test_variables_a_directory_and_input_at_once(environment: Environment) -> None:
    assert (await environment.exec(["mkdir", "-p", "a b"])).success
    result = await environment.exec(
        ["sh", "-c", "pwd; echo $V; cat"], input=b"\xff typed", cwd="a b", env={"V": "x = 'y' $HOME"}
    )
    assert result.stdout == "/workspace/a b\nx = 'y' $HOME\n\ufffd typed" and result.success
    missing = await environment.exec(["pwd"], cwd="nowhere")
    assert not missing.success and "nowhere" in missing.stderr


async def test_a_program_that_is_not_there_is_a_failure(environment: Environment) -> None:
    for options in ({}, {"env": {"A": "1"}}, {"cwd": "/tmp"}):
        result = await environment.exec(["no-such-program"], **options)  # type: ignore[arg-type]
        assert result.returncode == 127 and "no-such-program" in result.stderr
    for options in ({}, {"env": {"A": "1"}}, {"cwd": "/tmp"}):
        with pytest.raises(PermissionError, match="/etc/passwd"):
            await environment.exec(["/etc/passwd"], **options)  # type: ignore[arg-type]


async def test_what_the_guard_of_commands_refuses(environment: Environment) -> None:
    """R57."""
    with pytest.raises(PermissionError, match="dangerous"):
        await environment.exec(["rm", "-rf", "/"])


async def test_more_time_than_the_sandbox_has_is_not_had() -> None:
    """R22: its own limit holds."""
    environment = await made(BelljarConfig(timeout=1))
    with pytest.raises(TimeoutError, match="1 s"):
        await environment.exec(["sleep", "20"], timeout=100)
    assert (await environment.exec(["echo", "alive"], timeout=100)).stdout == "alive\n"
    await ended(environment)
    given = await made(None)
    for seconds in (400, 500, 5):
        assert (await given.exec(["echo", "alive"], timeout=seconds)).stdout == "alive\n"
    with pytest.raises(TimeoutError, match="1 s"):
        await given.exec(["sleep", "20"], timeout=1)
    await ended(given)


async def test_too_much_output_is_told(environment: Environment) -> None:
    """R31."""
    for stream in ("", ">&2"):
        with pytest.raises(OutputLimitExceededError, match="10 MiB"):
            await environment.exec(["sh", "-c", f"head -c 11000000 /dev/zero | tr '\\0' a {stream}"])
    narrow = await made(BelljarConfig(output_limit="1K"))
    with pytest.raises(OutputLimitExceededError, match="1024 bytes") as told:
        await narrow.exec(["sh", "-c", "head -c 5000 /dev/zero | tr '\\0' a"])
    assert told.value.truncated_output and "aaa" in told.value.truncated_output
    await ended(narrow)


async def test_what_does_not_fit_is_told_and_leaves_nothing() -> None:
    """R25."""
    environment = await made(BelljarConfig(disk="4M"))
    with pytest.raises(OSError):
        await environment.write_file("big", b"x" * (6 << 20))
    assert (await environment.exec(["ls", "-A"])).stdout in ("", "big\n")
    await environment.exec(["rm", "-f", "big"])
    await environment.write_file("small", "fits")
    await ended(environment)


async def test_files_that_cannot_be(environment: Environment) -> None:
    await environment.write_file("binary", b"\xc3\x28")
    with pytest.raises(UnicodeDecodeError):
        await environment.read_file("binary")
    with pytest.raises(PermissionError, match="/usr/new"):
        await environment.write_file("/usr/new", "x")
    await environment.exec(["ln", "-s", "/tmp/elsewhere", "link"])
    with pytest.raises(FileNotFoundError, match="link"):
        await environment.read_file("link")
    await environment.write_file("link", "through\r\nit")
    assert await environment.read_file("/tmp/elsewhere") == await environment.read_file("link") == "through\r\nit"
    assert sorted((await environment.exec(["ls", "-A"])).stdout.split()) == ["binary", "link"]


async def test_samples_are_apart_and_leave_nothing() -> None:
    """R32."""
    one, other = await made(None), await made(None)
    await one.write_file("mine", "x")
    with pytest.raises(FileNotFoundError, match="mine"):
        await other.read_file("mine")
    await ended(one)
    with pytest.raises(SandboxUnavailableError):
        await one.exec(["true"])
    with pytest.raises(SandboxUnavailableError):
        await one.write_file("mine", "x")
    await ended(other)


async def test_a_sandbox_that_is_over_is_unavailable(environment: Environment, client: belljar.Client) -> None:
    client.call("DELETE", f"/v1/sessions/{environment._sandbox.id}")
    with pytest.raises(SandboxUnavailableError):
        await environment.exec(["true"])


async def test_the_configuration() -> None:
    """R6, R8."""
    with pytest.raises(ValidationError, match="memry"):
        BelljarConfig(memry="1G")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="network"):
        await BelljarSandboxEnvironment.task_init("task", BelljarConfig(network="some"))
    with pytest.raises(belljar.RequestError, match="nobody-defined-it"):
        await made("nobody-defined-it")
    spec = SandboxEnvironmentSpec("belljar", WIDE)
    assert SandboxEnvironmentSpec.model_validate(spec.model_dump()).config == WIDE and hash(WIDE)


@scorer(metrics=[accuracy()])
def file_is_right() -> Any:
    async def score(state: TaskState, target: Target) -> Score:
        content = await sandbox().read_file("out.txt")
        return Score(value=content.strip() == target.text, answer=content)

    return score


def test_an_eval_to_its_end(tmp_path: Path) -> None:
    """Two tools of Inspect run in it, among the sample's files and after its setup; a scorer looks at what is left."""

    def counted(output: ModelOutput) -> ModelOutput:
        # Otherwise the model counts tokens with a table that it downloads.
        output.usage = ModelUsage()
        return output

    def call(tool: str, **arguments: Any) -> ModelOutput:
        return counted(ModelOutput.for_tool_call("mockllm/model", tool, arguments))

    outputs = [
        call("bash", command="cat in.txt ready.txt > both.txt; id -un"),
        call("python", code="open('out.txt', 'w').write(open('both.txt').read().replace('\\n', ' '))"),
        counted(ModelOutput.from_content("mockllm/model", "Done.")),
    ]
    task = Task(
        dataset=[Sample("Join them.", target="data ready", files={"in.txt": "data\n"}, setup="echo ready > ready.txt")],
        solver=[use_tools(bash(timeout=180), python()), generate()],
        scorer=file_is_right(),
        sandbox="belljar",
    )
    model = get_model("mockllm/model", custom_outputs=outputs)
    [log] = eval(task, model=model, log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error
    assert log.samples is not None and log.samples[0].error is None
    answers = [message.text for message in log.samples[0].messages if message.role == "tool"]
    assert answers == ["guest\n", ""], answers
    scores = log.samples[0].scores
    assert scores is not None and scores["file_is_right"].value is True, scores


def test_inspect_finds_it_by_its_entry_point(tmp_path: Path) -> None:
    """Nothing is imported: the name alone is enough, where the package is installed."""
    folder = tmp_path / "belljar-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: belljar\nVersion: 0\n")
    (folder / "entry_points.txt").write_text("[inspect_ai]\nbelljar = belljar.integrations.inspect_ai\n")
    source = Path(belljar.__file__).parents[1]
    environment: Dict[str, str] = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(source)))}
    code = "from inspect_ai.util._sandbox.registry import registry_find_sandboxenv as f; print(f('belljar').__name__)"
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert found.stdout == "BelljarSandboxEnvironment\n", found.stderr
