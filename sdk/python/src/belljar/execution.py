"""Executing code and files: the interface of document 001."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence, Union

from . import _client, _request
from ._client import Client
from ._errors import PolicyViolation
from ._result import Result
from ._wire import execution
from .service import IsolationLevel, NetworkPolicy, word

if TYPE_CHECKING:
    from ._request import Content, Quantity

ExecutionResult = Result
"""The one result type, by the name that document 001 uses."""

LONGEST_TIMEOUT = 300.0

_WALLS = tuple(IsolationLevel)
_ISOLATION = {
    "venv": IsolationLevel.NONE, "native": IsolationLevel.PROCESS, "docker": IsolationLevel.CONTAINER,
    "gvisor": IsolationLevel.CONTAINER,
}  # fmt: skip
# As the engine tries them: the weakest that is strong enough, since every step up costs time.
_USUAL = ("native", "gvisor", "docker")
_PLACE = (
    "timeout", "memory", "cpu_seconds", "processes", "open_files", "file_size", "disk", "output_limit", "network",
    "mounts",
    "env", "environment", "policy", "provider", "image",
)  # fmt: skip

# As `belljar languages --json` tells them.
_ENDINGS = {
    "py": "python", "js": "javascript", "mjs": "javascript", "cjs": "javascript", "ts": "typescript",
    "mts": "typescript",
    "bash": "bash", "sh": "shell", "c": "c", "cpp": "cpp", "cc": "cpp", "cxx": "cpp", "rs": "rust", "go": "go",
    "java": "java", "rb": "ruby", "php": "php", "pl": "perl", "lua": "lua",
}  # fmt: skip


@dataclass(frozen=True)
class CodeExecutionConfig:
    """What an execution may use and see. Nothing of the host's network and files unless said."""

    timeout: float = 30.0
    """Seconds; at most 300, unless a policy is named, which says then."""
    memory: Optional[Quantity] = None
    """Bytes, or text such as "512M"."""
    cpu_seconds: Optional[Quantity] = None
    processes: Optional[int] = None
    open_files: Optional[int] = None
    file_size: Optional[Quantity] = None
    disk: Optional[Quantity] = None
    output_limit: Optional[Quantity] = None
    network: NetworkPolicy = NetworkPolicy.NONE
    mounts: Sequence[str] = ()
    """`HOST:GUEST[:ro|rw]`; read-only unless said."""
    env: Optional[Mapping[str, str]] = None
    """Variables."""
    environment: Optional[str] = None
    """The packages that are there, by the name of an environment."""
    policy: Optional[str] = None
    """The id of a policy to hold it against."""
    isolation: IsolationLevel = IsolationLevel.PROCESS
    """The least wall. One that is not there is refused, never replaced by a weaker one. With `none` the code has the
    host's files and network, and runs only if it was approved; a policy may still put a wall around it."""
    provider: Optional[str] = None
    """The wall by its name: `native`, `docker`, `gvisor` or `venv`. The first that is strong enough unless said."""
    image: Optional[str] = None
    """The image to make the sandbox of, for the provider `docker`."""

    def __post_init__(self) -> None:
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, (int, float)):
            raise TypeError(f"timeout must be a number of seconds, not {type(self.timeout).__name__}")
        if not self.timeout > 0:
            raise ValueError(f"timeout must be above 0, and is {self.timeout}")
        if self.timeout > LONGEST_TIMEOUT and self.policy is None:
            raise ValueError(f"timeout must be at most {LONGEST_TIMEOUT:g} without a policy, and is {self.timeout}")
        object.__setattr__(self, "network", word("network", NetworkPolicy, self.network))
        object.__setattr__(self, "isolation", word("isolation", IsolationLevel, self.isolation))
        _request.place(self._options())
        given = None if self.provider is None else _ISOLATION[self.provider]
        if given is not None and _WALLS.index(given) < _WALLS.index(self.isolation):
            raise ValueError(f"provider: {self.provider} gives {given} isolation, less than isolation={self.isolation}")

    def _options(self) -> Dict[str, Any]:
        return {name: getattr(self, name) for name in _PLACE}

    @property
    def wall(self) -> IsolationLevel:
        """How strong the wall is at least."""
        return self.isolation if self.provider is None else _ISOLATION[self.provider]


@dataclass(frozen=True)
class SecureToAutoRun:
    """Whether code may run that nobody looks at first: behind a wall always, without one only if it was approved."""

    approved: bool = False
    """Somebody has read the code and said yes."""

    def allows(self, isolation: Union[IsolationLevel, str]) -> bool:
        return self.approved is True or word("isolation", IsolationLevel, isolation) is not IsolationLevel.NONE

    def check(self, isolation: Union[IsolationLevel, str]) -> None:
        """Raises `Denied` where that is not allowed."""
        if not self.allows(isolation):
            raise _refusal(
                "auto_run_not_allowed", "SecureToAutoRun", IsolationLevel.NONE,
                "code that nobody has approved runs behind a wall or not at all",
                "leave isolation at `process`, or have it approved: SecureToAutoRun(approved=True)",
            )  # fmt: skip


def execute_code(
    code: str,
    language: str = "python",
    *,
    config: Optional[CodeExecutionConfig] = None,
    guard: Optional[SecureToAutoRun] = None,
    args: Sequence[str] = (),
    stdin: Union[str, bytes, None] = None,
    files: Optional[Mapping[str, Content]] = None,
    outputs: Sequence[str] = (),
    client: Optional[Client] = None,
) -> ExecutionResult:
    """Runs code as a program, in a sandbox of its own, and gives what came of it.

    >>> import belljar
    >>> belljar.execute_code("print(sum(range(100)))").stdout
    '4950\\n'

    A program that fails is a result; what is refused raises `Denied`. The result's receipt says which wall it was.
    """
    if config is None:
        config = CodeExecutionConfig()
    elif not isinstance(config, CodeExecutionConfig):
        raise TypeError(f"config must be a CodeExecutionConfig, not {type(config).__name__}")
    if guard is not None and not isinstance(guard, SecureToAutoRun):
        raise TypeError(f"guard must be a SecureToAutoRun, not {type(guard).__name__}")
    options = {
        **config._options(), "language": language, "args": args, "stdin": stdin, "files": files, "outputs": outputs,
    }  # fmt: skip
    wish, _ = _request.run(code, options)
    wish.pop("evaluate", None)
    (guard or SecureToAutoRun()).check(config.wall)
    client = _client.chosen(client)
    wish = client.under_policy(wish)
    _choose_wall(client, config, wish)
    return execution(client.call("POST", "/v1/executions", wish))


def execute_file(
    path: Union[str, os.PathLike[str]],
    *,
    language: Optional[str] = None,
    config: Optional[CodeExecutionConfig] = None,
    guard: Optional[SecureToAutoRun] = None,
    args: Sequence[str] = (),
    stdin: Union[str, bytes, None] = None,
    files: Optional[Mapping[str, Content]] = None,
    outputs: Sequence[str] = (),
    client: Optional[Client] = None,
) -> ExecutionResult:
    """Runs a file of this machine. Its language is what its ending means, else what its `#!` line says."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path must be a path, not {type(path).__name__}")
    file = Path(path)
    try:
        code = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"path: {str(file)!r} is not UTF-8 text") from None
    return execute_code(
        code, language or _language(file, code), config=config, guard=guard, args=args, stdin=stdin, files=files,
        outputs=outputs, client=client,
    )  # fmt: skip


def run_code(
    script: str,
    language: str = "python",
    *,
    config: Optional[CodeExecutionConfig] = None,
    guard: Optional[SecureToAutoRun] = None,
    client: Optional[Client] = None,
) -> ExecutionResult:
    """Runs a script, whatever provider isolates it."""
    return execute_code(script, language, config=config, guard=guard, client=client)


def _language(file: Path, code: str) -> str:
    ending = file.suffix[1:].lower()
    found = _ENDINGS.get(ending) or _of_first_line(code)
    if found is None:
        raise ValueError(f"path: {str(file)!r} has no ending that means a language; say it with `language`")
    return found


def _of_first_line(code: str) -> Optional[str]:
    """The program of a `#!` line, which the engine knows by its name."""
    words = code[2:].split("\n", 1)[0].split() if code.startswith("#!") else []
    if words and words[0].rsplit("/", 1)[-1] == "env":
        words = [one for one in words[1:] if not one.startswith("-")]
    name = words[0].rsplit("/", 1)[-1] if words else ""
    return name.rstrip("0123456789.") or None


def _choose_wall(client: Client, config: CodeExecutionConfig, wish: Dict[str, Any]) -> None:
    """The wall to ask for, where that is not left to the engine or to a policy."""
    if config.wall is IsolationLevel.NONE:
        # By now it was approved; a service asks somebody of its own.
        if client.is_own:
            wish["approved"] = True
            if "policy_id" not in wish:
                wish["provider"] = "venv"
        # Without a wall there is the host's network; to ask for none would be to ask for a wall.
        if wish.get("provider") == "venv" and config.network is NetworkPolicy.NONE:
            del wish["network"]
    elif config.provider is None and config.isolation is not IsolationLevel.PROCESS:
        wish["provider"] = _strong_enough(client, config.isolation)


def _strong_enough(client: Client, wanted: IsolationLevel) -> str:
    """R36: where nothing is, that is refused."""
    told = client.call("GET", "/v1/capabilities")
    walls = {wall["provider"]: wall for wall in told["providers"]}
    strong = [name for name in _USUAL if _WALLS.index(_ISOLATION[name]) >= _WALLS.index(wanted)]
    for name in strong:
        if walls.get(name, {}).get("state") == "present":
            return name
    whys = [f"{name}: {walls[name]['why']}" for name in strong if name in walls]
    here = f"; {'; '.join(whys)}" if whys else ""
    raise _refusal(
        "isolation_unavailable", "isolation", wanted,
        f"{wanted} isolation is asked for, and nothing that gives it is here{here}",
        f"ask for `{told['isolation']}`, or for less; `belljar providers` tells how to get more",
    )  # fmt: skip


def _refusal(code: str, rule: str, value: str, message: str, fix: str) -> PolicyViolation:
    return PolicyViolation({"code": code, "rule": rule, "value": str(value), "message": message, "fix": fix})
