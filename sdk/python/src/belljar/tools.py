"""Tools for agents (document 004). Each of them works in a sandbox, whatever its context says."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from . import _client, _limits, _request
from ._errors import Denied, RequestError
from ._result import Result, SandboxStatus
from ._sandbox import Files, run
from .sandboxes import ProcessSandbox, SandboxConfig

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._client import Client

_MOST_ENTRIES = 1000
_OPERATIONS = ("write", "read", "list", "delete", "exists")
_METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class ToolContext:
    """Where a tool works, and how."""

    working_directory: Optional[Path] = None
    """What a command finds in its work directory. Without one it begins empty."""
    sandbox: bool = False
    """Whether to use a sandbox. The tools of this module always do."""
    dry_run: bool = False
    """Execute nothing, and say what would be executed."""

    def __post_init__(self) -> None:
        if self.working_directory is not None:
            if not isinstance(self.working_directory, (str, os.PathLike)):
                kind = type(self.working_directory).__name__
                raise TypeError(f"working_directory must be a path, not {kind}")
            object.__setattr__(self, "working_directory", Path(self.working_directory))
        _limits.flag("sandbox", self.sandbox)
        _limits.flag("dry_run", self.dry_run)


@dataclass(frozen=True)
class ToolResult:
    """What came of a tool."""

    success: bool
    output: Any = None
    error: Optional[str] = None
    status: SandboxStatus = SandboxStatus.COMPLETED
    """`pending` of what was not executed, since the context is a dry run."""
    duration: float = 0.0
    """Seconds."""
    result: Optional[Result] = None
    """What came of the execution, where there was one."""

    def __bool__(self) -> bool:
        return self.success


class SandboxedTool:
    """What the tools have in common: a configuration, and a client for those who do not want the default one."""

    def __init__(self, config: Optional[SandboxConfig] = None, *, client: Optional[Client] = None) -> None:
        if config is not None and not isinstance(config, SandboxConfig):
            raise TypeError(f"config must be a SandboxConfig, not {type(config).__name__}")
        self.config = config or SandboxConfig()
        self._client = client

    def _try(self, context: ToolContext, would: str, work: Callable[[], ToolResult]) -> ToolResult:
        """Does the work unless it is a dry run. What is denied has failed."""
        if not isinstance(context, ToolContext):
            raise TypeError(f"context must be a ToolContext, not {type(context).__name__}")
        if context.dry_run:
            return ToolResult(True, f"would {would}", status=SandboxStatus.PENDING)
        try:
            return work()
        except (Denied, RequestError) as error:
            return _failed(str(error))


class SandboxedCommandTool(SandboxedTool):
    """Runs a command, each in a sandbox of its own. The output is a dictionary of `stdout`, `stderr` and `exit_code`.

    The command finds the files and directories of the context's `working_directory` in its own, and can only read them;
    links, special files and names with a colon are left out. Whatever it writes beside them is gone afterwards. A
    service does not see the directories of this machine, so there a context with a working directory fails; give
    `files` in its place.
    """

    def execute(
        self,
        context: ToolContext,
        command: Union[str, Sequence[str]],
        *,
        files: Optional[Mapping[str, Union[str, bytes, os.PathLike[str]]]] = None,
    ) -> ToolResult:
        words = _request.command(command)
        _request.files(files or {})
        shown = words if isinstance(words, str) else " ".join(words)

        def work() -> ToolResult:
            client = _client.chosen(self._client)
            directory = context.working_directory
            if directory is None:
                mounts: List[str] = []
            elif not client.endpoint.is_embedded:
                who = client.endpoint.describe()
                return _failed(f"working_directory: {who} does not see {directory}; leave it out")
            else:
                try:
                    mounts = _mounts(directory)
                except OSError as error:
                    return _failed(f"working_directory: {error}")
            with _Place(self.config, mounts, files=files, client=client) as place:
                result = place.execute(words)
            return _told(result, result.output)

        return self._try(context, f"run the command: {shown}", work)


class _Place(ProcessSandbox):
    """A sandbox that shows something of the host."""

    def __init__(self, config: SandboxConfig, mounts: List[str], **options: Any) -> None:
        super().__init__(config, **options)
        self._mounts = mounts

    def _wish(self) -> Dict[str, Any]:
        return {**super()._wish(), "mounts": self._mounts}


def _mounts(directory: Path) -> List[str]:
    """What is in a directory, each where a command finds it under the same name."""
    place = os.path.realpath(directory)
    with os.scandir(place) as entries:
        plain = [entry.name for entry in entries if _is_shown(entry)]
    if len(plain) > _MOST_ENTRIES:
        raise OSError(f"{place} has more than {_MOST_ENTRIES} entries; name a directory below it")
    return [f"{os.path.join(place, name)}:/workspace/{name}:ro" for name in sorted(plain)]


def _is_shown(entry: os.DirEntry[str]) -> bool:
    if ":" in entry.name or not entry.name.isprintable():  # a mount could not name it
        return False
    return entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)


class SandboxedPythonTool(SandboxedTool):
    """Runs Python code, each time in a sandbox of its own.

    The output is the value of its last expression, or of its variable `result`; where there is none, what it printed.
    """

    def execute(self, context: ToolContext, code: str) -> ToolResult:
        code = _request.code(code)

        def work() -> ToolResult:
            limits: Any = self.config.limits
            result = run(code, client=self._client, network=self.config.network, **limits)
            value = result.value
            return _told(result, value if value is not None else result.stdout)

        return self._try(context, f"run this Python code:\n{code}", work)


class SandboxedFileTool(SandboxedTool):
    """Files in a sandbox of the tool's own, which stay as long as the tool does.

    Operations are `write`, `read`, `list`, `delete` and `exists`. Paths are from the sandbox's work directory; one that
    leads out of it is refused. The output is the text of a file that was read, or its bytes where they are no text, the
    names of what is there, or whether it exists.
    """

    def __init__(self, config: Optional[SandboxConfig] = None, *, client: Optional[Client] = None) -> None:
        super().__init__(config, client=client)
        self._sandbox = ProcessSandbox(self.config, client=client)

    def execute(
        self,
        context: ToolContext,
        operation: str,
        path: Union[str, os.PathLike[str]] = "",
        content: Union[str, bytes, None] = None,
    ) -> ToolResult:
        if operation not in _OPERATIONS:
            raise ValueError(f"operation must be one of {', '.join(_OPERATIONS)}, not {operation!r}")
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"path must be text or a path, not {type(path).__name__}")
        name = os.fspath(path)
        if operation == "write":
            if not isinstance(content, (str, bytes)):
                raise TypeError(f"content must be text or bytes, not {type(content).__name__}")
        elif content is not None:
            raise ValueError(f"content is for write, and the operation is {operation}")
        if name or operation != "list":
            try:
                _request.file_name("path", name)
            except ValueError as error:
                return _failed(str(error))
        return self._try(context, f"{operation} {name}".rstrip(), lambda: self._do(operation, name, content))

    def _do(self, operation: str, name: str, content: Union[str, bytes, None]) -> ToolResult:
        self._sandbox.setup()
        files = self._sandbox.files
        if operation == "write":
            files.write(name, content or "")
            return ToolResult(True, name)
        if operation == "read":
            octets = files.read(name)
            try:
                return ToolResult(True, octets.decode("utf-8"))
            except UnicodeDecodeError:
                return ToolResult(True, octets)
        if operation == "delete":
            files.delete(name)
            return ToolResult(True, name)
        plain = os.path.normpath(name) if name else ""
        if operation == "exists":
            return ToolResult(True, plain == "." or plain in files)
        return ToolResult(True, _below(files, "" if plain == "." else plain))

    def close(self) -> None:
        """Removes the files."""
        self._sandbox.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _below(files: Files, directory: str) -> List[str]:
    """The names of what is below a directory, sorted."""
    names = [file.path for file in files.list()]
    return sorted(name for name in names if not directory or name.startswith(f"{directory}/"))


class SandboxedNetworkTool(SandboxedTool):
    """Asks hosts of a list over HTTP, and no others. The output is a dictionary of `status`, `headers` and `body`.

    An entry is a host, which means the scheme's own port, or `host:port`. Hosts are compared as a whole. Redirects are
    not followed: one is an answer as any other. The request is made within a sandbox that can reach the listed hosts
    alone; where the engine has no such network, it is denied and says so.
    """

    def __init__(
        self,
        allowed_hosts: Sequence[str] = (),
        config: Optional[SandboxConfig] = None,
        *,
        client: Optional[Client] = None,
    ) -> None:
        super().__init__(config, client=client)
        self.allowed_hosts = _limits.texts("allowed_hosts", allowed_hosts)
        for host in self.allowed_hosts:
            _check_host(host)

    def execute(
        self,
        context: ToolContext,
        url: str,
        method: str = "GET",
        body: Union[str, bytes, None] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> ToolResult:
        if not isinstance(url, str):
            raise TypeError(f"url must be text, not {type(url).__name__}")
        if not isinstance(method, str) or method.upper() not in _METHODS:
            raise ValueError(f"method must be one of {', '.join(_METHODS)}, not {method!r}")
        if body is not None and not isinstance(body, (str, bytes)):
            raise TypeError(f"body must be text or bytes, not {type(body).__name__}")
        sent = _headers(headers or {})
        refusal = self._refusal(url)
        if refusal is not None:
            return _failed(refusal)
        asked = {
            "url": url,
            "method": method.upper(),
            "body": body.encode("utf-8") if isinstance(body, str) else body,
            "headers": sent,
            "timeout": self.config.timeout_seconds,
        }

        def work() -> ToolResult:
            limits: Any = self.config.limits
            result = run(
                PROGRAM,
                client=self._client,
                network="restricted",
                allowed_hosts=self.allowed_hosts,
                globals={"asked": asked},
                **limits,
            )
            return _told(result, result.value)

        return self._try(context, f"ask {method.upper()} {url}", work)

    def _refusal(self, url: str) -> Optional[str]:
        """Why this is not asked for."""
        from urllib.parse import urlsplit

        if any(ord(character) <= 0x20 or ord(character) == 0x7F for character in url) or "\\" in url:
            return f"url: {url!r} has characters that a URL cannot have"
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").lower(), parts.port
        except ValueError as error:
            return f"url: {url!r} is not a URL: {error}"
        if parts.scheme not in _PORTS or not host:
            return f"url: {url!r} is not like https://api.example.com/data"
        if parts.username is not None or parts.password is not None:
            return "url: names and passwords do not belong in a URL; give a header"
        usual = _PORTS[parts.scheme]
        port = usual if port is None else port
        place = f"[{host}]" if ":" in host else host
        listed = {entry.lower() for entry in self.allowed_hosts}
        if f"{place}:{port}" in listed or (port == usual and place in listed):
            return None
        allowed = ", ".join(self.allowed_hosts) or "none"
        return f"the host {place}, port {port}, is not on the list of allowed hosts: {allowed}"


def _check_host(entry: str) -> None:
    """Whether an entry is a host, or a host and a port, and nothing else."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(f"//{entry}")
        plain = parts.hostname is not None and parts.netloc == entry and "@" not in entry and "*" not in entry
        port = parts.port
    except ValueError:
        plain, port = False, None
    if not plain or not entry.isprintable() or " " in entry or entry.endswith(":") or port == 0:
        raise ValueError(f"allowed_hosts: {entry!r} is not like api.example.com or api.example.com:8443")


def _headers(headers: Mapping[str, str]) -> Dict[str, str]:
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a mapping from text to text, not {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"headers[{name!r}] must be text")
        if any(character in name + value for character in "\r\n\0"):
            raise ValueError(f"headers[{name!r}] holds the end of a line")
        if name.lower() == "host":
            raise ValueError("headers: the host is the URL's")
    return dict(headers)


PROGRAM = """\
import urllib.error
import urllib.request


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


request = urllib.request.Request(asked["url"], asked["body"], asked["headers"], method=asked["method"])
opener = urllib.request.build_opener(Stay, urllib.request.ProxyHandler({}))
try:
    answer = opener.open(request, timeout=asked["timeout"])
except urllib.error.HTTPError as error:
    answer = error
with answer:
    octets = answer.read()
try:
    body = octets.decode("utf-8")
except UnicodeDecodeError:
    body = octets
result = {"status": answer.status, "headers": dict(answer.headers), "body": body}
"""
"""What makes a request. It runs in the sandbox, and finds in `asked` what to ask for."""


def _told(result: Result, output: object) -> ToolResult:
    return ToolResult(result.success, output, result.error, result.status, result.duration, result)


def _failed(error: str) -> ToolResult:
    return ToolResult(False, None, error, SandboxStatus.FAILED)
