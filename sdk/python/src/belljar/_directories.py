"""Directories that guests write into, made and removed below open handles: no link leads anywhere else."""

from __future__ import annotations

import errno
import os
from typing import Dict, List

_MOST_TRIES = 100
_MOST_PASSES = 100_000


def make(base: int, name: str, sandbox_id: str) -> None:
    """Makes `base/<workspace>/<sandbox>`, for its owner alone."""
    for _ in range(_MOST_TRIES):
        try:
            os.mkdir(name, 0o700, dir_fd=base)
        except FileExistsError:
            pass
        try:
            directory = open_directory(base, name)
        except FileNotFoundError:
            continue  # the last sandbox of this workspace was just torn down, and its directory with it
        try:
            found = os.fstat(directory)
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                # Below a shared base such as /tmp, somebody else was here first.
                raise PermissionError(errno.EPERM, "its directory is somebody else's")
            os.mkdir(sandbox_id, 0o700, dir_fd=directory)
            return
        except FileNotFoundError:
            continue
        finally:
            os.close(directory)
    raise BlockingIOError(errno.EAGAIN, "it is torn down again and again")


def open_directory(parent: int, name: str) -> int:
    """Opens a directory: no link, no other mount. One that shuts us out by its mode is given another."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(name, os.O_RDONLY | flags, dir_fd=parent)
    except PermissionError:
        # A handle of this kind cannot be changed, but the name that /proc gives to it leads to this very directory.
        shut = os.open(name, os.O_PATH | flags, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{shut}", 0o700)
            handle = os.open(name, os.O_RDONLY | flags, dir_fd=parent)
        finally:
            os.close(shut)
    try:
        found = os.fstat(handle)
        if found.st_dev != os.fstat(parent).st_dev:
            raise OSError(errno.EXDEV, "something is mounted there", name)
        if found.st_mode & 0o700 != 0o700:
            os.fchmod(handle, 0o700)
    except BaseException:
        os.close(handle)
        raise
    return handle


def remove_tree(parent: int, name: str) -> None:
    """Removes a tree that a guest made. What lies deep is moved up first: depth costs neither stack nor descriptors.

    What cannot be removed stays; the rest goes nevertheless, and the first failure is told.
    """
    if _removed_file(parent, name):
        return
    failed: Dict[str, OSError] = {}
    try:
        top = open_directory(parent, name)
    except FileNotFoundError:
        return
    try:
        for _ in range(_MOST_PASSES):
            names: List[str] = [one for one in os.listdir(top) if one not in failed]
            for one in names:
                try:
                    _flatten(top, one)
                except FileNotFoundError:
                    pass  # another teardown was faster
                except OSError as error:
                    failed[one] = error
            if not names and failed:
                raise next(iter(failed.values()))
            # A process that is just dying may have written into it meanwhile.
            if not names and removed_empty(parent, name):
                return
    finally:
        os.close(top)
    raise OSError(errno.ENOTEMPTY, "something goes on writing into it", name)


def _flatten(top: int, name: str) -> None:
    """Removes what is in a directory of the top one, and moves directories that are in it up there."""
    if _removed_file(top, name):
        return
    directory = open_directory(top, name)
    try:
        for one in os.listdir(directory):
            if not _removed_file(directory, one):
                # To move it, one must be allowed to change it.
                os.close(open_directory(directory, one))
                os.rename(one, f".belljar-{os.urandom(8).hex()}", src_dir_fd=directory, dst_dir_fd=top)
    finally:
        os.close(directory)
    removed_empty(top, name)


def _removed_file(parent: int, name: str) -> bool:
    """Removes a file or a link. False: it is a directory."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        return False
    return True


def removed_empty(parent: int, name: str) -> bool:
    """Removes an empty directory. False: there is something in it."""
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True
