"""Everything is tried twice: with an engine of this process, and with a service."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Callable, Iterator, List, Set

import pytest

import belljar
from belljar._engine import find_executable

sys.path.insert(0, str(Path(__file__).parent))
# Whoever starts tests in the background may have them ignore it, and some of them are about Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


# A service counts and bounds: under this policy it gives what an engine of one's own gives to whoever asks.
POLICY = {
    "extends": "permissive", "allow_network": True, "network_policy": "local", "max_executions_per_minute": 1000000,
    "max_executions_per_hour": 1000000, "max_memory_mb": 2048, "max_tool_calls": 1000, "max_wall_time_seconds": 300,
    "max_file_size_mb": 1024, "max_disk_mb": 1024, "max_open_files": 1024, "max_processes": 64, "max_cpu_seconds": 300,
    "max_concurrent_tools": 100,
}  # fmt: skip


def start_service(directory: Path) -> "tuple[subprocess.Popen[str], str]":
    """A service on a port of its own, and its address."""
    command = [find_executable(), "serve", "--dev", "--listen", "127.0.0.1:0", "--store", str(directory / "belljar.db")]
    environment = {**os.environ, "BELLJAR_HOME": str(directory)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment)
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"http://[0-9.:]+", line)
        if found:
            return process, found.group()
    raise AssertionError(f"the service did not start: {process.wait()}")


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service that lets everybody in."""
    process, url = start_service(tmp_path_factory.mktemp("service"))
    drain = __import__("threading").Thread(target=lambda: list(process.stderr or ()), daemon=True)
    drain.start()
    yield url
    process.terminate()
    process.wait(60)


@pytest.fixture(scope="session")
def engine() -> Iterator[belljar.Client]:
    """An engine that most tests share."""
    with belljar.connect(default=False) as client:
        yield client


@pytest.fixture(params=["embedded", "service"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[belljar.Client]:
    """The client that everything uses unless said, embedded and remote in turn."""
    from belljar import _client

    if request.param == "embedded":
        chosen = request.getfixturevalue("engine")
    else:
        chosen = belljar.connect(request.getfixturevalue("service"), policy="tests", default=False)
        chosen.call("PUT", "/v1/policies/tests", POLICY)
    monkeypatch.setattr(_client, "_default", chosen)
    yield chosen
    if request.param == "service":
        chosen.close()


@pytest.fixture
def context(client: belljar.Client) -> belljar.ToolContext:
    return belljar.ToolContext()


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have no module of these names."""

    def remove(*names: str) -> None:
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return remove


def children(of: int) -> List[int]:
    """All processes below one."""
    found: List[int] = []
    try:
        tasks = os.listdir(f"/proc/{of}/task")
    except OSError:
        return found  # it ended meanwhile
    for task in tasks:
        try:
            direct = [int(pid) for pid in Path(f"/proc/{of}/task/{task}/children").read_text().split()]
        except OSError:
            continue
        for pid in direct:
            found += [pid, *children(pid)]
    return found


def sessions(client: belljar.Client) -> Set[str]:
    """The sandboxes that are kept."""
    return {one["session_id"] for one in client.call("GET", "/v1/sessions")["sessions"]}
