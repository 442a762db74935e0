"""Sandboxes for Inspect: `sandbox="belljar"` in a task, or `--sandbox belljar` for `inspect eval`."""

from __future__ import annotations

from errno import EACCES, EIO, EISDIR, ENOENT
from typing import Any, Dict, List, Literal, NoReturn, Optional, Tuple, Union, overload

from . import missing

try:
    from inspect_ai.util import (  # pyright: ignore[reportMissingImports]
        ExecResult,
        OutputLimitExceededError,
        SandboxEnvironment,
        SandboxEnvironmentConfigType,
        SandboxEnvironmentLimits,
        SandboxUnavailableError,
        SandboxUserUnsupportedError,
        sandboxenv,
    )
    from pydantic import BaseModel, ConfigDict  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise missing("inspect") from error

from .. import _client, _request
from .._async_sandbox import AsyncSandbox
from .._errors import Denied, EngineUnavailable, QuotaExceeded, RequestError, SandboxClosed
from .._result import Result, SandboxStatus

Quantity = Union[int, float, str, None]

_PIECE = 16 << 20  # a service takes 32 MiB in one request
_MESSAGE = 4 << 20
_SHELL = "/bin/sh"

# Scripts for the sandbox, which begin in its work directory. What they exit with says what is wrong.
_ABSENT, _DIRECTORY, _FORBIDDEN, _LARGE, _FULL = 91, 92, 93, 94, 95

# Says where in the work directory the file's content is, and puts it there if it is elsewhere.
_READ = f"""
[ -e "$1" ] || exit {_ABSENT}
[ -d "$1" ] && exit {_DIRECTORY}
[ -r "$1" ] || exit {_FORBIDDEN}
[ "$(wc -c < "$1")" -le "$2" ] || exit {_LARGE}
found=$(readlink -f -- "$1")
case $found in
    "$PWD"/*) found=${{found#"$PWD"/}};;
    *) cat < "$1" > "$3" || exit {_FULL}; found=$3;;
esac
printf %s "$found"
"""

_WRITE = f"""
to=$1; shift
[ -d "$to" ] && exit {_DIRECTORY}
case $to in */*) mkdir -p -- "${{to%/*}}/" || exit {_FORBIDDEN};; esac
(: >> "$to") || exit {_FORBIDDEN}
cat -- "$@" > "$to" || exit {_FULL}
"""

_TYPED = 'from=$1; shift; exec < "$from"; rm -f -- "$from"; exec "$@"'
_ELSEWHERE = 'cd -- "$1" || exit; shift; exec "$@"'


class BelljarConfig(BaseModel):
    """What each sandbox of a task may use: the limits and places of `belljar.Sandbox`. None leaves it to the policy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: Optional[str] = None
    environment: Optional[str] = None
    provider: Optional[str] = None
    image: Optional[str] = None
    network: Optional[str] = None
    mounts: Tuple[str, ...] = ()
    require: Tuple[str, ...] = ()
    timeout: Optional[float] = None
    """Seconds that a command may take, however much more its caller would give it."""
    memory: Quantity = None
    cpu_seconds: Quantity = None
    cpu_percent: Optional[int] = None
    processes: Optional[int] = None
    open_files: Optional[int] = None
    file_size: Quantity = None
    disk: Quantity = None
    output_limit: Quantity = None
    idle_timeout: Quantity = None
    max_age: Quantity = None

    def wish(self) -> Dict[str, Any]:
        """A sandbox for commands, as the wire wants it."""
        wish, _ = _request.sandbox(self.model_dump(exclude_none=True))
        return {**wish, "commands": True}


@sandboxenv(name="belljar")
class BelljarSandboxEnvironment(SandboxEnvironment):
    """A sandbox of one sample. Its commands run one after the other, and what a command leaves running ends with it.

    Its configuration is a `BelljarConfig`, or text that names a policy. A command may take as long as these say,
    however much more its caller would give it.
    """

    def __init__(self, sandbox: AsyncSandbox, timeout: Optional[float] = None) -> None:
        super().__init__()
        self._sandbox = sandbox
        self._timeout = timeout
        self._names: Optional[List[str]] = None
        self._count = 0

    @classmethod
    def config_deserialize(cls, config: Dict[str, Any]) -> BaseModel:
        return BelljarConfig(**config)

    @classmethod
    async def task_init(cls, task_name: str, config: Optional[SandboxEnvironmentConfigType]) -> None:
        """Whether the configuration can be used, before anything starts."""
        _read(config).wish()

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Optional[SandboxEnvironmentConfigType], metadata: Dict[str, str]
    ) -> Dict[str, SandboxEnvironment]:
        read = _read(config)
        sandbox = AsyncSandbox._of(_client.default(), read.wish(), {})
        await sandbox
        return {"default": cls(sandbox, read.timeout)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Optional[SandboxEnvironmentConfigType],
        environments: Dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            await environment.as_type(BelljarSandboxEnvironment)._sandbox.close()

    async def exec(
        self,
        cmd: List[str],
        input: Union[str, bytes, None] = None,
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        user: Optional[str] = None,
        timeout: Optional[int] = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        await self._check_user(user)
        words = list(cmd)
        if cwd is not None:
            words = [_SHELL, "-c", _ELSEWHERE, "sh", cwd, *words]
        if env:
            words = ["/usr/bin/env", *(f"{name}={value}" for name, value in env.items()), *words]
        typed: Optional[str] = None
        if isinstance(input, str) and len(input) <= _MESSAGE:
            typed = input
        elif input is not None:
            name = self._new_name()
            await self.write_file(name, input)
            words = [_SHELL, "-c", _TYPED, "sh", name, *words]
        result = await self._execute(words, typed, timeout)
        if result.status is SandboxStatus.TIMEOUT:
            raise TimeoutError(result.error or "the command did not end in time")
        _check_output(result)
        return _exec_result(result, cmd)

    async def write_file(self, file: str, contents: Union[str, bytes]) -> None:
        octets = contents.encode("utf-8") if isinstance(contents, str) else contents
        names = await self._put(octets)
        try:
            result = await self._execute([_SHELL, "-c", _WRITE, "sh", file, *names])
        finally:
            await self._remove(names)
        if not result.success:
            _refuse(result, file, "written")

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> Union[str, bytes]:
        name = self._new_name()
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            result = await self._execute([_SHELL, "-c", _READ, "sh", file, str(most), name])
            if not result.success:
                _refuse(result, file, "read")
            octets = await self._content(result.stdout, file)
        finally:
            await self._remove([name])
        return octets.decode("utf-8") if text else octets

    async def _execute(self, words: List[str], stdin: Optional[str] = None, timeout: Optional[int] = None) -> Result:
        try:
            if timeout is not None and (self._timeout is None or timeout < self._timeout):
                try:
                    return await self._sandbox.exec(words, stdin=stdin, timeout=timeout)
                except Denied as denied:
                    if denied.rule != "max_wall_time_seconds":
                        raise
                    # The policy gives less, and that holds; so much is not asked for again.
                    self._timeout = timeout
            return await self._sandbox.exec(words, stdin=stdin)
        except (SandboxClosed, EngineUnavailable, QuotaExceeded) as error:
            raise SandboxUnavailableError(str(error)) from error
        except Denied as denied:
            raise PermissionError(str(denied)) from denied

    async def _check_user(self, user: Optional[str]) -> None:
        if user is None:
            return
        if self._names is None:
            result = await self._execute([_SHELL, "-c", "id -un; id -u"])
            self._names = result.stdout.split()
        if user not in self._names:
            who = " or ".join(self._names)
            raise SandboxUserUnsupportedError(f"the sandbox has one user, {who}, and cannot run anything as {user!r}")

    def _new_name(self) -> str:
        self._count += 1
        return f".belljar-{self._count}"

    async def _put(self, octets: bytes) -> List[str]:
        """Puts bytes into the work directory, in as many files as it takes."""
        names: List[str] = []
        for at in range(0, max(len(octets), 1), _PIECE):
            names.append(self._new_name())
            try:
                await self._sandbox.files.write(names[-1], octets[at : at + _PIECE])
            except RequestError as error:
                await self._remove(names)
                raise OSError(f"nothing can be put into the sandbox: {error}") from error
            except (SandboxClosed, EngineUnavailable) as error:
                raise SandboxUnavailableError(str(error)) from error
        return names

    async def _content(self, name: str, file: str) -> bytes:
        try:
            return await self._sandbox.files.read(name)
        except RequestError as error:
            raise FileNotFoundError(ENOENT, f"cannot be read: {error}", file) from error
        except (SandboxClosed, EngineUnavailable) as error:
            raise SandboxUnavailableError(str(error)) from error

    async def _remove(self, names: List[str]) -> None:
        for name in names:
            try:
                await self._sandbox.files.delete(name)
            except (RequestError, SandboxClosed, EngineUnavailable):
                pass  # it is gone already


def _read(config: Optional[SandboxEnvironmentConfigType]) -> BelljarConfig:
    if config is None:
        return BelljarConfig()
    if isinstance(config, str):
        return BelljarConfig(policy=config)
    if not isinstance(config, BelljarConfig):
        raise TypeError(f"config must be a BelljarConfig or the id of a policy, not {type(config).__name__}")
    return config


def _check_output(result: Result) -> None:
    most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
    for octets in (result.stdout_bytes, result.stderr_bytes):
        if len(octets) > most:
            kept = octets[-most:].decode("utf-8", "replace")
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, kept)
    if result.truncated:
        limit = result.receipt.limits.get("output")
        raise OutputLimitExceededError(f"{limit} bytes", result.stdout)


def _exec_result(result: Result, cmd: List[str]) -> ExecResult[str]:
    code, stderr = result.exit_code, result.stderr
    if code is None:
        stderr += result.error or str(result.status)
        if result.signal is not None:
            code = 128 + result.signal
        elif result.error_type == "cannot_start":
            code = 126 if stderr.endswith("cannot be executed") else 127
        else:
            code = 1
    if code == 126 and ("permission denied" in stderr.lower() or result.exit_code is None):
        raise PermissionError(EACCES, stderr.strip(), cmd[0])
    return ExecResult(code == 0 and result.success, code, result.stdout, stderr)


def _refuse(result: Result, file: str, done: str) -> NoReturn:
    """Why a file could not be read or written."""
    if result.status is SandboxStatus.TIMEOUT:
        raise TimeoutError(f"{file} could not be {done} in time")
    if result.exit_code == _ABSENT:
        raise FileNotFoundError(ENOENT, "there is no such file", file)
    if result.exit_code == _DIRECTORY:
        raise IsADirectoryError(EISDIR, "it is a directory", file)
    if result.exit_code == _FORBIDDEN:
        raise PermissionError(EACCES, result.stderr.strip() or f"it may not be {done}", file)
    if result.exit_code == _LARGE:
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
    raise OSError(EIO, result.stderr.strip() or result.error or f"it could not be {done}", file)
