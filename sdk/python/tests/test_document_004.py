"""Document 004: the examples."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import sessions
from snippets import blocks, execute

import belljar
from belljar import Denied, SandboxStatus
from belljar.sandboxes import DockerSandbox, ProcessSandbox, SandboxConfig, SandboxManager, get_sandbox_manager
from belljar.tools import (
    SandboxedCommandTool,
    SandboxedFileTool,
    SandboxedNetworkTool,
    SandboxedPythonTool,
    ToolContext,
)

BLOCKS = blocks("004.md", "47dc25519e746f7a44b38343f77ad257f9792571601af295f81d558d25fa1a03")
NAMES: Dict[str, Any] = {
    one.__name__: one
    for one in (
        SandboxConfig, ProcessSandbox, DockerSandbox, get_sandbox_manager, ToolContext, SandboxedCommandTool,
        SandboxedPythonTool, SandboxedFileTool, SandboxedNetworkTool, SandboxStatus, Path,
    )
}  # fmt: skip


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
    """R59: the host is listed, and nobody has that name; a service's policy may have no network at all."""
    result = (await example("Network Requests", context=context))["result"]
    assert not result.success and result.status == SandboxStatus.FAILED
    assert "urlopen error" in result.error or ("network" in result.error and "hint" in result.error)


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
