"""The engine's process: started by the first use, shared, and gone with this one, however that ends."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Set

import pytest
from conftest import POLICY, children, start_service

import belljar

SCRIPT = """
import belljar, os, sys
sandbox = belljar.Sandbox()
sandbox.run("x = 1").check()
belljar.run("1 + 1").check()
print(belljar._client.default().endpoint.engine.pid, flush=True)
"""


def script(text: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", text, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def is_gone(pid: int, patience: float = 20) -> bool:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z" and os.getpid() != int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]):
            return True
        time.sleep(0.05)
    return False


def test_importing_starts_nothing_and_loads_little() -> None:
    code = (
        "import sys, os; import belljar\n"
        "children = open(f'/proc/self/task/{os.getpid()}/children').read()\n"
        "print(repr(children), 'asyncio' in sys.modules, 'ssl' in sys.modules, 'subprocess' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["''", "False", "False", "False"]


def test_an_exit_without_close_leaves_nothing() -> None:
    process = script(SCRIPT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert is_gone(int(out))


@pytest.mark.parametrize("fork", ["", "os.fork()", "ctypes.CDLL(None).fork()"])
def test_sigkill_leaves_nothing(fork: str) -> None:
    """Also where a fork of the process lives on, and where it has kept the descriptors that it inherited."""
    with_fork = f"""
import ctypes
child = {fork}
if child == 0:
    import time; time.sleep(30); os._exit(0)
print(child)
"""
    text = SCRIPT.replace("print(", f"{with_fork if fork else ''}\nprint(")
    process = script(f"{text}\nimport time; time.sleep(60)")
    assert process.stdout is not None
    child = int(process.stdout.readline()) if fork else None
    pid = int(process.stdout.readline())
    below = [pid, *children(pid)]
    assert len(below) > 2
    process.kill()
    process.wait()
    assert all(is_gone(one) for one in below)
    if child is not None:
        os.kill(child, signal.SIGKILL)


def test_an_engine_that_dies_is_told_and_replaced() -> None:
    with belljar.connect(default=False) as client:
        sandbox = belljar.Sandbox(client=client)
        sandbox.run("x = 1").check()
        pid = client.endpoint.engine.pid
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(belljar.SandboxError):
            sandbox.run("x")
        assert belljar.run("1 + 1", client=client).value == 2
        assert client.endpoint.engine.pid != pid
        with pytest.raises(belljar.SandboxClosed):
            sandbox.run("x")


def _in_child(queue: "multiprocessing.Queue[object]", sandbox: belljar.Sandbox) -> None:
    try:
        sandbox.run("1")
        told = "it ran"
    except belljar.SandboxClosed as error:
        told = str(error)
    queue.put((told, belljar.run("6 * 7").value, belljar._client.default().endpoint.engine.pid))
    belljar.close()


def test_a_fork_has_an_engine_of_its_own() -> None:
    belljar.close()
    with belljar.Sandbox() as sandbox:
        sandbox.run("x = 5").check()
        mine = belljar._client.default().endpoint.engine.pid
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_in_child, args=(queue, sandbox))
        child.start()
        told, value, theirs = queue.get(timeout=60)
        child.join(60)
        assert "forked" in told and value == 42 and theirs != mine
        assert sandbox.run("x").value == 5
        assert is_gone(theirs)
    belljar.close()


def sockets() -> Set[str]:
    """The sockets of this process."""
    found: Set[str] = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{entry}"))
        except OSError:
            pass  # the directory's own
    return {one for one in found if one.startswith("socket:")}


def in_a_fork(work: Callable[[], object]) -> Any:
    """What that gives in a fork of this process; text if it raises."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told: object = work()
        except BaseException as error:
            told = repr(error)
        os.write(writing, json.dumps(told).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return json.loads(answer)


@pytest.mark.parametrize("remote", [False, True])
def test_a_fork_uses_no_socket_of_its_parent(remote: bool, service: str) -> None:
    before = sockets()
    with belljar.connect(service if remote else None, default=False) as client:
        belljar.run("1", client=client)
        asyncio.run(belljar.run_async("1", client=client)).check()
        with belljar.Sandbox(client=client) as sandbox:
            sandbox.run("x = 5").check()
            mine = sockets() - before
            assert len(mine) >= 3, "one that waits, one that is awaited, and the sandbox's"

            def work() -> object:
                inherited = sockets() & mine
                value = belljar.run("6 * 7", client=client).value
                theirs = sockets() & mine
                client.close()
                return [len(inherited), value, len(theirs)]

            assert in_a_fork(work) == [0, 42, 0]
            assert sockets() >= mine and sandbox.run("x").value == 5
            assert belljar.run("6 * 7", client=client).value == 42


def test_a_forgotten_sandbox_waits_for_nobody(tmp_path: Path) -> None:
    """Not for a service that is stuck: whoever asks for something next ends it."""
    process, url = start_service(tmp_path)
    try:
        with belljar.connect(url, default=False) as client:
            kept = [belljar.Sandbox(client=client)]
            kept[0].run("1").check()
            process.send_signal(signal.SIGSTOP)
            forgetting = threading.Thread(target=kept.clear, daemon=True)
            forgetting.start()
            forgetting.join(20)
            assert not forgetting.is_alive() and len(client.forgotten) == 1
            process.send_signal(signal.SIGCONT)
            assert client.call("GET", "/v1/sessions") == {"sessions": []}
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize("end", ["", "sys.exit()", "os.kill(os.getpid(), signal.SIGINT)"])
@pytest.mark.parametrize("remote", [False, True])
def test_a_process_ends_soon_although_a_map_is_under_way(
    remote: bool, end: str, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if remote:
        with belljar.connect(service, default=False) as client:
            client.call("PUT", "/v1/policies/tests", POLICY)
        monkeypatch.setenv("BELLJAR_URL", service)
    text = f"""
import belljar, os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
codes = ["1", *["import time; time.sleep(100)"] * 8]
results = belljar.map(codes, concurrency=4, policy={"tests" if remote else None!r})
assert next(results).value == 1
time.sleep(0.5)
print("one", flush=True)
{end}
"""
    process = script(text)
    assert process.stdout is not None
    assert process.stdout.readline() == "one\n"
    began = time.monotonic()
    try:
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert time.monotonic() - began < 30
    assert "Exception ignored" not in told and ("kill" in end or told == "")


def test_a_thousand_sandboxes_leave_nothing() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with belljar.connect(default=False) as client:
        for _ in range(5):
            belljar.Sandbox(client=client).close()
        time.sleep(1)
        pid = client.endpoint.engine.pid
        before, theirs = descriptors(), len(os.listdir(f"/proc/{pid}/fd"))
        tree = len(children(pid))
        for n in range(1000):
            sandbox = belljar.Sandbox(client=client)
            if n % 50 == 0:
                assert sandbox.run("1 + 1").value == 2
            if n % 3:
                sandbox.close()
            del sandbox  # one that was forgotten is closed as well
        assert client.call("GET", "/v1/sessions") == {"sessions": []}
        until = time.monotonic() + 20
        while len(children(pid)) > tree + 8 and time.monotonic() < until:
            time.sleep(0.1)
        assert descriptors() <= before + 2
        assert len(children(pid)) <= tree + 8, "processes of sandboxes are left"
        assert len(os.listdir(f"/proc/{pid}/fd")) <= theirs + 100
    assert is_gone(pid)


def test_an_engine_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BELLJAR_BIN", str(tmp_path / "none"))
    with pytest.raises(belljar.EngineUnavailable, match="BELLJAR_BIN"):
        belljar.connect(default=False).call("GET", "/healthz")
    broken = tmp_path / "belljar"
    broken.write_text(
        "#!/bin/sh\nif [ \"$1\" = doctor ]; then echo 'no seccomp here'; exit 1; fi\necho 'it broke' >&2; exit 3\n"
    )
    broken.chmod(0o755)
    monkeypatch.setenv("BELLJAR_BIN", str(broken))
    with pytest.raises(belljar.EngineUnavailable) as raised:
        belljar.connect(default=False).call("GET", "/healthz")
    assert "it broke" in str(raised.value) and "no seccomp here" in str(raised.value)
    other = tmp_path / "other"
    other.write_text("#!/usr/bin/env python3\nimport socket\nsocket.socket(fileno=0).send(b'{\"protocol\": 99}')\n")
    other.chmod(0o755)
    monkeypatch.setenv("BELLJAR_BIN", str(other))
    with pytest.raises(belljar.EngineUnavailable, match="protocol 99"):
        belljar.connect(default=False).call("GET", "/healthz")


def test_a_service_that_is_not_there_says_so() -> None:
    client = belljar.connect("http://127.0.0.1:9", "bj_key", default=False)
    with pytest.raises(belljar.EngineUnavailable, match="127.0.0.1:9"):
        belljar.run("1", client=client)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x",
        "127.0.0.1:80",
        "http://",
        "http://u:p@h",
        "http://:p@h",
        "http://h:99999",
        "http://h/a b",
        "http://h/#f",
        "http://[::1",
        "http://h/\u20ac",
        3,
    ],
)
def test_a_url_that_is_none_is_named(url: object) -> None:
    with pytest.raises((TypeError, ValueError), match="url"):
        belljar.connect(url, default=False)  # type: ignore[arg-type]


def test_the_environment_names_a_service(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from belljar import _client

    monkeypatch.setenv("BELLJAR_URL", service)
    monkeypatch.setattr(_client, "_default", None)
    assert belljar.run("1 + 1").value == 2
    assert belljar._client.default().endpoint.describe() == f"the service at {service}"
    belljar.close()


def test_nobody_else_can_reach_the_engine() -> None:
    """No socket of it has a name, and none listens."""
    with belljar.connect(default=False) as client:
        belljar.run("1", client=client)
        pid = client.endpoint.engine.pid
        inodes = set()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(entry)
            except OSError:
                continue  # it was closed meanwhile
            if target.startswith("socket:"):
                inodes.add(target[8:-1])
        for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[6] in inodes:
                assert len(fields) == 7, f"a socket with a name: {line}"
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                assert line.split()[9] not in inodes, "a TCP socket"


def test_records_are_json_like_the_command_line_s() -> None:
    assert json.loads(json.dumps(belljar.run("1").to_dict()))["status"] == "completed"
    belljar.close()
