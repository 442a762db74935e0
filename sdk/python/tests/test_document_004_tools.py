"""Document 004: tools."""

from __future__ import annotations

import gc
import http.server
import os
import threading
from pathlib import Path
from typing import Any, Dict

import pytest
from conftest import sessions

import belljar
from belljar import SandboxStatus
from belljar.sandboxes import SandboxConfig
from belljar.tools import (
    SandboxedCommandTool,
    SandboxedFileTool,
    SandboxedNetworkTool,
    SandboxedPythonTool,
    ToolContext,
    ToolResult,
)


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
def test_a_host_that_is_listed(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """R59: it is asked for within a sandbox that can reach the listed hosts alone."""
    asked: Dict[str, Any] = {}

    def run(*_: object, **options: Any) -> None:
        asked.update(options)
        raise ConnectionError("as far as this goes")

    monkeypatch.setattr("belljar.tools.run", run)
    with pytest.raises(ConnectionError):
        SandboxedNetworkTool(allowed_hosts=HOSTS).execute(ToolContext(), url, "post", "body", {"x-key": "k"})
    assert (asked["network"], asked["allowed_hosts"]) == ("restricted", HOSTS)


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

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.rfile.read(int(self.headers["content-length"])))

    do_PUT = do_DELETE = do_POST

    def log_message(self, *_: object) -> None:
        pass


def test_hosts_are_asked(engine: belljar.Client) -> None:
    """R59: from within a sandbox; the answer is what came, and no redirect is followed."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_port}"
        tool, context = SandboxedNetworkTool(allowed_hosts=[host], client=engine), ToolContext()

        def ask(path: str, method: str = "GET", body: Any = None) -> Dict[str, Any]:
            result = tool.execute(context, f"http://{host}{path}", method, body, {"x-key": "k"})
            assert result.success, result.error
            answer: Dict[str, Any] = result.output
            return answer

        assert (ask("/data")["status"], ask("/data")["body"]) == (200, "GET /data k")
        moved = ask("/moved")
        assert (moved["status"], moved["body"], moved["headers"]["location"]) == (302, "GET /moved k", "/elsewhere")
        assert ask("/gone")["status"] == 404
        for method in ("POST", "PUT", "DELETE"):
            assert ask("/", method, b"\xff")["body"] == b"\xff"
        head = ask("/data", "HEAD")
        assert (head["status"], head["body"]) == (200, "")
        # The list is the engine's as well: the program itself cannot reach another.
        with http.server.HTTPServer(("127.0.0.1", 0), Answers) as other:
            url = f"http://127.0.0.1:{other.server_port}/"
            code = f"import urllib.request\nurllib.request.urlopen({url!r}, timeout=5)"
            assert not belljar.run(code, client=engine, allowed_hosts=[host])
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
