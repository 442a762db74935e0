"""Workspaces on disk: the sandbox manager of document 003.

A workspace is a name; each set-up of it makes a directory of its own, `base/<workspace>/<sandbox>`, in which scripts
run one after the other. Only files pass from one to the next. What is in the directory was written by guests: it is
never read here, and it is removed one name at a time below an open directory, so that no link leads anywhere else.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from enum import Enum
from typing import TYPE_CHECKING, Any, Dict, Iterable, Mapping, Optional, Sequence, Union

from . import _client, _request
from ._client import Client
from ._directories import make, open_directory, remove_tree, removed_empty
from ._errors import BadRequest, EngineUnavailable, PolicyViolation, RequestError, SandboxError
from ._result import Result
from ._wire import execution

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._request import LimitOptions

_LONGEST_ID = 128


class Lifecycle(str, Enum):
    """Where a sandbox is in its life."""

    SETUP = "setup"
    READY = "ready"
    RUNNING = "running"
    TEARDOWN = "teardown"
    ERROR = "error"

    def __str__(self) -> str:
        return self.value

    def may_go_to(self, to: Lifecycle) -> bool:
        """R50: `running` goes back to `ready` for the next script, and after an error only teardown is left."""
        return to in _STEPS[self]


_STEPS = {
    Lifecycle.SETUP: (Lifecycle.READY, Lifecycle.TEARDOWN, Lifecycle.ERROR),
    Lifecycle.READY: (Lifecycle.RUNNING, Lifecycle.TEARDOWN, Lifecycle.ERROR),
    Lifecycle.RUNNING: (Lifecycle.READY, Lifecycle.TEARDOWN, Lifecycle.ERROR),
    Lifecycle.TEARDOWN: (),
    Lifecycle.ERROR: (Lifecycle.TEARDOWN,),
}


class WorkspaceError(SandboxError):
    """Something went wrong with a workspace."""


class BaseDirectoryError(WorkspaceError):
    """The base directory cannot be made, or must not be used."""


class SetupError(WorkspaceError):
    """A sandbox's directory cannot be made."""


class TeardownError(WorkspaceError):
    """Something of a workspace cannot be removed. What could be removed is gone."""


class CommandError(WorkspaceError):
    """A script or a command could not be run. One that ran and failed is a result."""


class CommandDenied(CommandError, PolicyViolation):
    """It was refused before anything ran."""


class IllegalTransition(WorkspaceError):
    """A step that a sandbox cannot take from where it is."""

    def __init__(self, current: Lifecycle, to: Lifecycle) -> None:
        super().__init__(f"a sandbox in state {current} cannot go to {to}")
        self.current = current
        self.to = to


class WorkspaceManager:
    """Makes and removes the directories of workspaces, for an engine of one's own.

    One base directory belongs to one manager at a time: `teardown` takes what it does not know for left over by a
    process that died. With `check_paths`, arguments that name a place outside the sandbox's directory are refused.
    """

    def __init__(
        self,
        base_dir: Union[str, os.PathLike[str]],
        *,
        policy: Optional[str] = None,
        check_paths: bool = True,
        client: Optional[Client] = None,
        **limits: Unpack[LimitOptions],
    ) -> None:
        if not isinstance(base_dir, (str, os.PathLike)):
            raise TypeError(f"base_dir must be a path, not {type(base_dir).__name__}")
        if not os.fspath(base_dir):
            raise ValueError("base_dir is empty")
        if not isinstance(check_paths, bool):
            raise TypeError(f"check_paths must be true or false, not {type(check_paths).__name__}")
        _check_limits("WorkspaceManager()", limits)
        _request.place({"policy": policy, **limits})
        # Later the process may be in another directory.
        self.base_dir = os.path.abspath(base_dir)
        self.policy = policy
        self.check_paths = check_paths
        self.limits: Mapping[str, Any] = dict(limits)
        self._given = client
        self._lock = threading.Lock()
        self._live: Dict[str, Dict[str, WorkspaceSandbox]] = {}

    def setup(self, workspace_id: str) -> WorkspaceSandbox:
        """Makes a sandbox with a directory of its own. As a context manager it is torn down at the end."""
        name = _workspace(workspace_id)
        client = _client.chosen(self._given)
        if not client.endpoint.is_embedded:
            reason = f"a workspace is for an engine of one's own, and this is {client.endpoint.describe()}"
            raise SetupError(f"cannot set up a sandbox: {reason}", hint="use a Sandbox, or `files`")
        base = self._made_base()
        try:
            # Held until the directory is known as live, so that a teardown cannot take it for a leftover.
            with self._lock:
                sandbox_id = f"sb-{os.urandom(8).hex()}"
                root = os.path.join(os.path.realpath(self.base_dir), name, sandbox_id)
                try:
                    make(base, name, sandbox_id)
                except OSError as error:
                    raise SetupError(f"cannot set up a sandbox: cannot make {root}: {error.strerror}") from error
                sandbox = WorkspaceSandbox(self, client, name, sandbox_id, root)
                self._live.setdefault(name, {})[sandbox_id] = sandbox
                return sandbox
        finally:
            os.close(base)

    def teardown(self, workspace_id: str) -> None:
        """Removes everything of one workspace and nothing of any other. What runs in it is ended first."""
        name = _workspace(workspace_id)
        with self._lock:
            live = self._live.pop(name, {})
        for sandbox in live.values():
            sandbox._end()
        self._remove(name, None)

    def _remove(self, name: str, names: Optional[Iterable[str]]) -> None:
        """Removes these from a workspace's directory, or all that are not live, and then itself if it is empty."""
        base = self._base()
        if base is None:
            return
        failure: Optional[OSError] = None
        try:
            try:
                directory = open_directory(base, name)
            except FileNotFoundError:
                return
            try:
                if names is None:
                    with self._lock:
                        names = set(os.listdir(directory)) - self._live.get(name, {}).keys()
                for one in names:
                    try:
                        remove_tree(directory, one)
                    except OSError as error:
                        failure = failure or error
            finally:
                os.close(directory)
            # Another sandbox of this workspace may live in it.
            removed_empty(base, name)
        except OSError as error:
            failure = failure or error
        finally:
            os.close(base)
        if failure is not None:
            raise TeardownError(f"cannot tear down {os.path.join(self.base_dir, name)}: {failure}") from failure

    def _base(self) -> Optional[int]:
        """The base directory, open; None if there is none."""
        try:
            # The path is the caller's own, so a link in it is meant.
            handle = os.open(self.base_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BaseDirectoryError(f"cannot open the base directory {self.base_dir}: {error.strerror}") from error
        found = os.fstat(handle)
        # Others who may rename in it could put their own directory in a sandbox's place.
        is_open = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if is_open or found.st_uid not in (os.geteuid(), 0):
            os.close(handle)
            raise BaseDirectoryError(
                f"cannot use the base directory {self.base_dir}: other users can change what is in it",
                hint="take one that only you can write to (chmod 700)",
            )
        return handle

    def _made_base(self) -> int:
        try:
            os.makedirs(self.base_dir, mode=0o700, exist_ok=True)
        except OSError as error:
            raise BaseDirectoryError(f"cannot make the base directory {self.base_dir}: {error.strerror}") from error
        base = self._base()
        if base is None:
            raise BaseDirectoryError(f"cannot open the base directory {self.base_dir}: it was removed just now")
        return base

    def _forget(self, sandbox: WorkspaceSandbox) -> None:
        with self._lock:
            live = self._live.get(sandbox.workspace_id, {})
            live.pop(sandbox.id, None)
            if not live:
                self._live.pop(sandbox.workspace_id, None)

    def __repr__(self) -> str:
        return f"<belljar.WorkspaceManager of {self.base_dir}>"


BasicSandboxManager = WorkspaceManager
"""The same, by the name that document 003 uses."""


class WorkspaceSandbox:
    """A directory in which scripts run, one after the other."""

    def __init__(self, manager: WorkspaceManager, client: Client, workspace_id: str, id: str, root_path: str) -> None:
        self._manager = manager
        # One with connections of its own: hanging up ends what runs here and nothing else.
        self._client = client.sibling()
        self.workspace_id = workspace_id
        self.id = id
        """Different for every set-up, and the `run_id` of what runs in it."""
        self.root_path = root_path
        """The directory, on this machine."""
        self.policy = manager.policy
        self.limits = manager.limits
        self._changed = threading.Condition()
        self._state = Lifecycle.SETUP
        self._ending = False
        self._go(Lifecycle.READY)

    @property
    def state(self) -> Lifecycle:
        return self._state

    def run_script(
        self,
        script: str,
        language: str = "python",
        *,
        input: Union[str, bytes, None] = None,
        args: Sequence[str] = (),
        env: Optional[Mapping[str, str]] = None,
        check_paths: Optional[bool] = None,
        sandbox_permissions: Optional[str] = None,
        **limits: Unpack[LimitOptions],
    ) -> Result:
        """Runs a script with the sandbox's directory as its work directory. `input` is what it reads.

        With `sandbox_permissions="require_escalated"` it waits until somebody approves it.
        """
        _check_limits("run_script()", limits)
        options = {
            "policy": self.policy, **self.limits, **limits, "language": language, "stdin": input, "args": args,
            "env": env,
        }  # fmt: skip
        wish, _ = _request.run(script, options)
        wish.pop("evaluate", None)
        return self._run(wish, check_paths, sandbox_permissions)

    def run_command(
        self,
        command: Union[str, Sequence[str]],
        *,
        input: Union[str, bytes, None] = None,
        env: Optional[Mapping[str, str]] = None,
        check_paths: Optional[bool] = None,
        sandbox_permissions: Optional[str] = None,
        **limits: Unpack[LimitOptions],
    ) -> Result:
        """Runs a command there: its words, or one line that is split as a shell would split it."""
        _check_limits("run_command()", limits)
        wish, _ = _request.place({"policy": self.policy, **self.limits, **limits, "env": env})
        wish.update(_request.stdin(input))
        wish["command"] = _request.command(command)
        return self._run(wish, check_paths, sandbox_permissions)

    def teardown(self) -> None:
        """Removes the directory with everything in it. What runs is ended first."""
        self._end()
        self._manager._forget(self)
        self._manager._remove(self.workspace_id, [self.id])

    def _run(self, wish: Dict[str, Any], check_paths: Optional[bool], permissions: Optional[str]) -> Result:
        if not isinstance(check_paths, (bool, type(None))):
            raise TypeError(f"check_paths must be true or false, not {type(check_paths).__name__}")
        if not isinstance(permissions, (str, type(None))):
            raise TypeError(f"sandbox_permissions must be text, not {type(permissions).__name__}")
        wish["workspace"] = self.root_path
        wish["check_paths"] = self._manager.check_paths if check_paths is None else check_paths
        wish["run_id"] = self.id
        if permissions is not None:
            wish["sandbox_permissions"] = permissions
        with self._changed:
            if self._ending:
                raise IllegalTransition(self._state, Lifecycle.RUNNING)
            self._go(Lifecycle.RUNNING)
        following = Lifecycle.ERROR
        try:
            result = execution(self._client.call("POST", "/v1/executions", self._client.under_policy(wish)))
            following = Lifecycle.READY
            return result
        except PolicyViolation as refused:
            following = Lifecycle.READY
            raise CommandDenied(refused.denial, refused.record) from refused
        except BadRequest as refused:
            following = Lifecycle.READY
            if refused.message.startswith("`sandbox_permissions`"):
                raise _unknown_permissions(permissions, refused.message) from refused
            raise CommandError(f"cannot run it: {refused.message}", hint=refused.hint) from refused
        except RequestError as refused:
            if refused.kind != "engine":
                following = Lifecycle.READY
            raise CommandError(f"cannot run it: {refused.message}", hint=refused.hint) from refused
        except EngineUnavailable as gone:
            if self._ending:
                raise CommandError("cannot run it to its end: the sandbox was torn down") from gone
            raise CommandError(f"cannot run it: {gone.message}", hint=gone.hint) from gone
        except SandboxError:  # a quota
            following = Lifecycle.READY
            raise
        finally:
            with self._changed:
                self._go(following)
                self._changed.notify_all()

    def _end(self) -> None:
        """Ends what runs in it, waits for that, and lets nothing run any more."""
        with self._changed:
            self._ending = True
            self._client.hang_up()
            self._changed.wait_for(lambda: self._state is not Lifecycle.RUNNING)
            if self._state is not Lifecycle.TEARDOWN:
                self._go(Lifecycle.TEARDOWN)

    def _go(self, to: Lifecycle) -> None:
        if not self._state.may_go_to(to):
            raise IllegalTransition(self._state, to)
        self._state = to

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.teardown()

    def __repr__(self) -> str:
        return f"<belljar.WorkspaceSandbox {self.workspace_id}/{self.id}, {self._state}>"


def _unknown_permissions(value: Optional[str], message: str) -> CommandDenied:
    """R52: what is not known is denied."""
    fix = "use use_default or require_escalated"
    rule = "sandbox_permissions"
    return CommandDenied({"code": rule, "rule": rule, "value": str(value), "message": message, "fix": fix})


def _check_limits(where: str, limits: Mapping[str, Any]) -> None:
    _request.known(where, limits, _request._LIMITS)


def _workspace(workspace_id: object) -> str:
    """R51: one plain name."""
    if not isinstance(workspace_id, str):
        raise TypeError(f"workspace_id must be text, not {type(workspace_id).__name__}")
    if len(workspace_id) > _LONGEST_ID or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", workspace_id):
        raise ValueError(
            f"workspace_id must be 1 to {_LONGEST_ID} letters, digits, `-`, `_` and `.`, not start with `.`, "
            f"and is {workspace_id!r}"
        )
    return workspace_id
