"""The engine as a child process: started when it is first used, shared by the whole process, and gone with it.

It has one socket to us, over which each connection is handed to it as a descriptor. So nobody else can reach it, and
there is nothing to clean up. It ends when that socket is closed, and when this process is gone, however that happens.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from typing import TYPE_CHECKING, List, Optional

from ._errors import EngineUnavailable

if TYPE_CHECKING:
    from subprocess import Popen

PROTOCOL = 1
_STARTING = 30.0
_ENDING = 5.0
_DYING = 0.5


def find_executable() -> str:
    """The `belljar` executable: BELLJAR_BIN, the one that came with this package, or the one on PATH."""
    said = os.environ.get("BELLJAR_BIN")
    if said:
        if os.access(said, os.X_OK):
            return said
        raise EngineUnavailable(
            f"BELLJAR_BIN is {said}, which cannot be executed", hint="unset it, or name the executable"
        )
    for directory in _directories():
        path = os.path.join(directory, "belljar")
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    from shutil import which

    found = which("belljar")
    if found:
        return found
    raise EngineUnavailable(
        "there is no belljar executable", hint="pip install --force-reinstall belljar, or set BELLJAR_BIN"
    )


def _directories() -> List[str]:
    """Where installers put it."""
    import sysconfig

    here = os.path.dirname(os.path.abspath(__file__))
    found = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable), os.path.join(os.path.dirname(here), "bin")]
    user = f"{os.name}_user"
    if user in sysconfig.get_scheme_names():
        found.append(sysconfig.get_path("scripts", scheme=user))
    return [directory for directory in found if directory]


class Engine:
    """One engine of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: Optional[socket.socket] = None
        self._process: Optional[Popen[bytes]] = None
        self._closed = False
        self._in_doubt = False

    @property
    def is_at_hand(self) -> bool:
        """Whether a connection can be had without waiting."""
        return self.pid is not None and not self._in_doubt

    @property
    def pid(self) -> Optional[int]:
        """The engine's process, if it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def connect(self) -> socket.socket:
        """A new connection to the engine, which is started if it does not run."""
        ours, theirs = socket.socketpair()
        try:
            with self._lock:
                control = self._running()
                try:
                    socket.send_fds(control, [b"\0"], [theirs.fileno()])
                except OSError:
                    # It ended between two uses. Whoever needs what it had is told by the new one.
                    self._end()
                    socket.send_fds(self._running(), [b"\0"], [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def _running(self) -> socket.socket:
        if self._closed:
            raise EngineUnavailable("the engine was closed")
        if self._control is not None and self._process is not None and self._lives(self._process):
            return self._control
        self._end()
        return self._start()

    def _lives(self, process: Popen[bytes]) -> bool:
        if self._in_doubt:
            from subprocess import TimeoutExpired

            self._in_doubt = False
            try:
                process.wait(_DYING)
            except TimeoutExpired:
                pass
        return process.poll() is None

    def _start(self) -> socket.socket:
        from subprocess import Popen

        executable = find_executable()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = os.memfd_create("belljar-engine") if not os.environ.get("BELLJAR_LOG_LEVEL") else None
        command = [executable, "embedded", "--parent", str(os.getpid())]
        try:
            try:
                # A session of its own: Ctrl-C is for us, and we tell it what that means.
                self._process = Popen(
                    command, stdin=theirs.fileno(), stdout=words, stderr=words, start_new_session=True
                )
            except OSError as error:
                raise EngineUnavailable(f"cannot start {executable}: {error}") from error
            finally:
                theirs.close()
            ours.settimeout(_STARTING)
            try:
                greeting = ours.recv(4096)
            except OSError:
                greeting = b""
            if not greeting:
                raise self._explain(executable, words)
            _check(greeting, executable)
        except BaseException:
            ours.close()
            self._reap()
            raise
        finally:
            if words is not None:
                os.close(words)
        ours.settimeout(None)
        self._control = ours
        return ours

    def _explain(self, executable: str, words: Optional[int]) -> EngineUnavailable:
        """Why it did not start, in its own words and those of `belljar doctor`."""
        said = ""
        if words is not None:
            os.lseek(words, 0, os.SEEK_SET)
            said = os.read(words, 16384).decode("utf-8", "replace").strip()
        return EngineUnavailable(
            f"the engine did not start: {said or 'it ended without a word'}", hint=doctor(executable)
        )

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        self._reap()

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        from subprocess import TimeoutExpired

        try:
            process.wait(_ENDING)
        except TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Ends the engine and everything in it, and waits for that."""
        with self._lock:
            self._closed = True
            self._end()

    def doubt(self) -> None:
        """A connection to it broke, so it is probably dying; the next use waits a moment for that."""
        self._in_doubt = True

    def forget(self) -> None:
        """In a fork: the engine belongs to the process that it was forked from."""
        self._lock = threading.Lock()
        control, self._control, self._process = self._control, None, None
        if control is not None:
            control.close()


def _check(greeting: bytes, executable: str) -> None:
    try:
        spoken = json.loads(greeting)["protocol"]
    except (ValueError, KeyError, TypeError):
        spoken = None
    if spoken != PROTOCOL:
        raise EngineUnavailable(
            f"{executable} speaks protocol {spoken}, this package {PROTOCOL}",
            hint="install the executable that came with the package, or unset BELLJAR_BIN",
        )


def doctor(executable: str) -> str:
    """What `belljar doctor` says of this machine."""
    from subprocess import PIPE, STDOUT, SubprocessError, run

    try:
        found = run([executable, "doctor"], stdout=PIPE, stderr=STDOUT, timeout=20, check=False)
    except (OSError, SubprocessError) as error:
        return f"`belljar doctor` cannot be run either: {error}"
    return "belljar doctor says:\n" + found.stdout.decode("utf-8", "replace").strip()
