"""Sandboxes for commands, and who keeps them (document 004): `ProcessSandbox`, `DockerSandbox`, `SandboxManager`."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union

from . import _client, _limits, _request
from ._errors import BadRequest, Denied, QuotaExceeded, SandboxClosed, SandboxError
from ._result import Result, SandboxStatus
from ._sandbox import Files, Sandbox

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._client import Client
    from ._request import Content

_UNCOUNTED = 1 << 31


@dataclass(frozen=True)
class SandboxConfig:
    """What commands in a sandbox may use, each of them for itself."""

    max_memory_mb: int = 512
    max_cpu_seconds: float = 30
    max_file_size_mb: int = 100
    max_process_count: int = 10
    max_open_files: int = 100
    allow_network: bool = False
    allowed_hosts: List[str] = field(default_factory=list)
    """With `allow_network`, the only hosts that can be reached; none listed means any."""
    timeout_seconds: float = 60
    allowed_commands: List[str] = field(default_factory=list)
    """The only programs that may be started, compared as whole words; none listed means any."""

    def __post_init__(self) -> None:
        _limits.whole("max_memory_mb", self.max_memory_mb, 8, _limits.MOST_MB)
        _limits.seconds("max_cpu_seconds", self.max_cpu_seconds)
        _limits.whole("max_file_size_mb", self.max_file_size_mb, 0, _limits.MOST_MB)
        _limits.whole("max_process_count", self.max_process_count, 1, 32768)
        _limits.whole("max_open_files", self.max_open_files, 16, 1048576)
        _limits.flag("allow_network", self.allow_network)
        _limits.seconds("timeout_seconds", self.timeout_seconds)
        for name in ("allowed_hosts", "allowed_commands"):
            object.__setattr__(self, name, _limits.texts(name, getattr(self, name)))

    @property
    def network(self) -> str:
        """The network that this asks for: `none`, `restricted` or `full`."""
        if not self.allow_network:
            return "none"
        return "restricted" if self.allowed_hosts else "full"

    @property
    def limits(self) -> Dict[str, Union[int, float]]:
        """The limits by the names that `belljar.run` has for them."""
        return {
            "memory": self.max_memory_mb * _limits.MIB,
            "cpu_seconds": self.max_cpu_seconds,
            "file_size": self.max_file_size_mb * _limits.MIB,
            "processes": self.max_process_count,
            "open_files": self.max_open_files,
            "timeout": self.timeout_seconds,
        }


class ProcessSandbox:
    """A place for commands, with files that stay from one to the next.

    ::

        with ProcessSandbox(SandboxConfig(timeout_seconds=5), files={"in.txt": "a b c"}) as sandbox:
            print(sandbox.execute("wc -w in.txt").output["stdout"])

    Nothing of this machine is in it but its programs: a path among a command's words names a file of the sandbox. What
    commands need is given by `files`, here or with the command, or written by `sandbox.files`. A command that takes
    too long ends with everything in the sandbox; its result says so in `state_lost`, and the next one finds what
    `files` gave.
    """

    def __init__(
        self,
        config: Optional[SandboxConfig] = None,
        *,
        files: Optional[Mapping[str, Content]] = None,
        client: Optional[Client] = None,
    ) -> None:
        if config is not None and not isinstance(config, SandboxConfig):
            raise TypeError(f"config must be a SandboxConfig, not {type(config).__name__}")
        self.config = config or SandboxConfig()
        self._files = _request.files(files) if files else {}
        self._client = client
        self._making = threading.Lock()
        self._sandbox: Optional[Sandbox] = None
        self._over = False

    def setup(self) -> None:
        """Makes it. What the engine cannot give is denied here, and nothing is run with less."""
        with self._making:
            if self._over:
                raise SandboxClosed("the sandbox was cleaned up", hint="make another one")
            if self._sandbox is None:
                self._sandbox = self._open(_client.chosen(self._client))

    def _open(self, client: Client) -> Sandbox:
        return Sandbox._of(client, self._wish(), {})

    def _wish(self) -> Dict[str, Any]:
        config = self.config
        wish: Dict[str, Any] = {
            "commands": True,
            "limits": config.limits,
            "network": config.network,
            "files": self._files,
        }
        if config.network == "restricted":
            wish["allowed_hosts"] = config.allowed_hosts
        return wish

    def execute(
        self,
        command: Union[str, Sequence[str]],
        *,
        timeout: Optional[float] = None,
        stdin: Optional[str] = None,
        files: Optional[Mapping[str, Content]] = None,
    ) -> Result:
        """Runs a command: its words, or one line that is split as a shell would split it. There is no shell.

        A command that is refused is a result as well, with status `failed` and the error type `PolicyViolation`, and
        nothing ran: one that is not in `allowed_commands`, a line with characters that a shell would act on, and what
        does nothing but harm. `files` are put into the sandbox before. `timeout` is at most the configuration's.
        """
        command = _request.command(command)
        limit = None if timeout is None else _limits.seconds("timeout", timeout)
        sandbox = self._ready()
        refusal = self._refusal(command)
        if refusal is not None:
            return refused(refusal)
        for name, content in (files or {}).items():
            sandbox.files.write(name, content)
        try:
            return sandbox.exec(command, timeout=limit, stdin=stdin)
        except QuotaExceeded:
            raise
        except Denied as denied:
            return refused(str(denied))
        except BadRequest as wrong:
            if not wrong.message.startswith("`command`"):
                raise
            return refused(str(wrong))

    def _refusal(self, command: Union[str, List[str]]) -> Optional[str]:
        """Why the list of commands has no place for this one. What cannot be split, the engine refuses."""
        if not self.config.allowed_commands:
            return None
        program = first_word(command)
        if program is None or program in self.config.allowed_commands:
            return None
        return f"`{program}` is not on the list of allowed commands: {', '.join(self.config.allowed_commands)}"

    @property
    def files(self) -> Files:
        """The files of its work directory."""
        return self._ready().files

    def _ready(self) -> Sandbox:
        if self._over:
            raise SandboxClosed("the sandbox was cleaned up", hint="make another one")
        if self._sandbox is None:
            raise NotSetUp("the sandbox is not set up", hint="call setup() first, or use it as a context manager")
        return self._sandbox

    def cleanup(self) -> None:
        """Ends everything in it, and waits until nothing is left. Twice is no mistake."""
        with self._making:
            self._over = True
            sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.close()

    def __enter__(self) -> Self:
        self.setup()
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def __repr__(self) -> str:
        state = "cleaned up" if self._over else "not set up" if self._sandbox is None else self._sandbox.id
        return f"<belljar.{type(self).__name__}, {state}>"


class NotSetUp(SandboxError, RuntimeError):
    """The sandbox was used before `setup()`."""


class DockerSandbox(ProcessSandbox):
    """The same in a container of an image.

    It never runs with less than a container: where the engine has none, `setup()` is denied and says so.
    """

    def __init__(
        self,
        config: Optional[SandboxConfig] = None,
        image: str = "python:3.9",
        *,
        files: Optional[Mapping[str, Content]] = None,
        client: Optional[Client] = None,
    ) -> None:
        super().__init__(config, files=files, client=client)
        self.image = _request.image(image)

    def _open(self, client: Client) -> Sandbox:
        from uuid import uuid4

        policy_id = f"docker-sandbox-{uuid4().hex}"
        client.call("PUT", f"/v1/policies/{policy_id}", self._policy())
        try:
            wish = {**self._wish(), "provider": "docker", "image": self.image, "metadata": {"image": self.image}}
            return Sandbox._of(client, {**wish, "policy_id": policy_id}, {})
        finally:
            client.call("DELETE", f"/v1/policies/{policy_id}")

    def _policy(self) -> Dict[str, Any]:
        config = self.config
        return {
            "extends": "standard",
            "name": f"container of {self.image}",
            "isolation_level": "container",
            "providers": ["docker"],
            "allowed_images": [self.image],
            "network_policy": config.network,
            "allow_network": config.allow_network,
            "allowed_commands": config.allowed_commands,
            "max_memory_mb": config.max_memory_mb,
            "max_cpu_seconds": config.max_cpu_seconds,
            "max_wall_time_seconds": config.timeout_seconds,
            "max_processes": config.max_process_count,
            "max_open_files": config.max_open_files,
            "max_file_size_mb": config.max_file_size_mb,
            "max_disk_mb": max(64, config.max_file_size_mb),
            "max_executions_per_minute": _UNCOUNTED,
            "max_executions_per_hour": _UNCOUNTED,
        }


_KINDS: Dict[str, Type[ProcessSandbox]] = {"process": ProcessSandbox, "docker": DockerSandbox}
_OPTIONS = {"docker": ("image",)}


class SandboxManager:
    """Sandboxes by name. Those that are left are cleaned up with it, and at the end of the program. Threads share it.

    `files` are what each of its sandboxes begins with.
    """

    def __init__(self, *, files: Optional[Mapping[str, Content]] = None, client: Optional[Client] = None) -> None:
        self._files = dict(files or {})
        _request.files(self._files)
        self._client = client
        self._lock = threading.Lock()
        # None stands for one that is being made.
        self._sandboxes: Dict[str, Optional[ProcessSandbox]] = {}
        weakref.finalize(self, _clean, self._sandboxes)

    def create_sandbox(
        self,
        name: str,
        config: Optional[SandboxConfig] = None,
        *,
        kind: Union[str, Sequence[str]] = "process",
        files: Optional[Mapping[str, Content]] = None,
        **options: Any,
    ) -> ProcessSandbox:
        """Makes a sandbox and sets it up. `kind` is `process` or `docker`; further options are its own.

        One kind is a requirement: where the machine does not have it, nothing is made. Several are a preference, best
        first, such as `("docker", "process")`: the first that is there is taken, and its type says which that was.

        A name that is taken is refused, and its sandbox stays as it is.
        """
        if not isinstance(name, str):
            raise TypeError(f"name must be text, not {type(name).__name__}")
        if not name:
            raise ValueError("name is empty")
        files = {**self._files, **(files or {})}
        candidates = [
            one(config, files=files, client=self._client, **own) for one, own in _of_kinds(_kinds(kind), options)
        ]
        with self._lock:
            if name in self._sandboxes:
                raise ValueError(f"name: there is a sandbox {name!r} already")
            self._sandboxes[name] = None
        try:
            sandbox = _first_that_is_there(candidates)
        except BaseException:
            with self._lock:
                del self._sandboxes[name]
            raise
        with self._lock:
            self._sandboxes[name] = sandbox
        return sandbox

    def get_sandbox(self, name: str) -> Optional[ProcessSandbox]:
        """The sandbox of that name; None if there is none."""
        with self._lock:
            return self._sandboxes.get(name)

    def list_sandboxes(self) -> List[str]:
        """The names of all of them."""
        with self._lock:
            return sorted(name for name, sandbox in self._sandboxes.items() if sandbox is not None)

    def cleanup_sandbox(self, name: str) -> bool:
        """Cleans up the sandbox of that name, which is free again then. False if there is none."""
        with self._lock:
            sandbox = self._sandboxes.get(name)
            if sandbox is None:
                return False
            del self._sandboxes[name]
        sandbox.cleanup()
        return True

    def cleanup_all(self) -> None:
        """Cleans up all of them."""
        for name in self.list_sandboxes():
            self.cleanup_sandbox(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get_sandbox(name) is not None

    def __len__(self) -> int:
        return len(self.list_sandboxes())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup_all()

    def __repr__(self) -> str:
        return f"<belljar.SandboxManager of {self.list_sandboxes()}>"


def _kinds(kind: object) -> List[str]:
    kinds = [kind] if isinstance(kind, str) else list(kind) if isinstance(kind, (list, tuple)) else []
    if not kinds or not all(isinstance(one, str) and one in _KINDS for one in kinds):
        raise ValueError(f"kind must be one of {', '.join(_KINDS)}, or several of them in order, not {kind!r}")
    return kinds


def _of_kinds(kinds: List[str], options: Dict[str, Any]) -> Iterator[Tuple[Type[ProcessSandbox], Dict[str, Any]]]:
    """The kinds, each with its own options. What is for one of several is not for the others."""
    for kind in kinds:
        theirs = _OPTIONS if len(kinds) > 1 else {}
        foreign = {name for other, names in theirs.items() if other in kinds and other != kind for name in names}
        yield _KINDS[kind], {name: value for name, value in options.items() if name not in foreign}


def _first_that_is_there(candidates: List[ProcessSandbox]) -> ProcessSandbox:
    """R35: only what is preferred is replaced, and only where it is not there."""
    *preferred, last = candidates
    for sandbox in preferred:
        try:
            sandbox.setup()
            return sandbox
        except Denied as denied:
            if denied.code != "isolation_unavailable":
                raise
    last.setup()
    return last


def _clean(sandboxes: Dict[str, Optional[ProcessSandbox]]) -> None:
    """What a manager left. One that cannot be ended any more keeps nobody from ending the others."""
    while sandboxes:
        _, sandbox = sandboxes.popitem()
        try:
            if sandbox is not None:
                sandbox.cleanup()
        except SandboxError:
            pass


_manager: Optional[SandboxManager] = None
_making = threading.Lock()


def get_sandbox_manager() -> SandboxManager:
    """The manager of this process, always the same one."""
    global _manager
    with _making:
        if _manager is None:
            _manager = SandboxManager()
        return _manager


def _after_fork() -> None:
    """The manager of a fork is its own: the sandboxes of the other belong to the process that it was forked from."""
    global _manager, _making
    _manager, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def first_word(command: Union[str, List[str]]) -> Optional[str]:
    """The program that a command names; None if the line cannot be split."""
    if not isinstance(command, str):
        return command[0]
    import shlex

    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return words[0] if words else None


def refused(reason: str) -> Result:
    """The result of what did not run, since a policy forbids it."""
    error = {"type": "PolicyViolation", "message": reason, "stage": "policy"}
    return Result({"outcome": {"status": SandboxStatus.FAILED.value, "error": error}})
