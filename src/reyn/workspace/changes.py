"""Apply and revert recorded changes of single files, atomically and idempotently.

A `Change` refers to contents by hash, so the journal can record it before it is applied. It takes effect only if the
file has not changed since the change was planned; applying it a second time, after a crash, has no effect. A lock on
the folder excludes other runs between the comparison and the replacement.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Literal

from reyn.folders import FOLDER, OpenFolder, open_beneath, take_lock
from reyn.journal import digest
from reyn.journal.kinds import Change
from reyn.workspace.files import (
    TEMPORARY,
    ChangeUncertain,
    FileError,
    Fingerprint,
    FolderHandle,
    Guard,
    fingerprint,
    open_base,
    open_below,
    open_existing,
    stat_stamp,
    translated,
)
from reyn.workspace.paths import Location, PathInvalid, Roots, locate

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors of `rmdir` that mean: there is nothing of ours to remove."""

ChangeOutcome = Literal["done", "already", "unconfirmed", "conflict"]


def apply_change(
    change: Change, roots: Roots, content: Callable[[str], bytes], token: str, location: Location | None = None
) -> ChangeOutcome:
    """Apply a change of a file.

    Args:
        change: The change.
        roots: The folders of the project and the run.
        content: Returns recorded content by its hash.
        token: Identifies this change; the same when it is applied again after a crash.
        location: The resolved path, if the caller has it already.

    Returns:
        `done`, `already` if the file was as after the change, or `conflict` if the file is neither as before nor as
        after the change; a file in conflict is not touched. `unconfirmed` if the file is as after the change and the
        system reported an error while it was made durable.

    Raises:
        FileError: The path leads elsewhere than when it was recorded, or the file cannot be written. The file is
            unchanged, and folders created for it are removed.
        ChangeUncertain: It failed, and it is unknown whether something was changed.
    """
    location = _resolve_recorded(change.path, roots, location)
    attempt = _Attempt(change, location, Guard(roots))
    try:
        outcome = attempt.run(content, token)
        if outcome == "conflict":
            attempt.remove_folders()
    except (OSError, FileError) as error:
        failure = error if isinstance(error, FileError) else translated(error, location)
        return attempt.look_again(failure)
    return outcome


def revert(change: Change, roots: Roots, content: Callable[[str], bytes], token: str) -> ChangeOutcome:
    """Apply a change backwards, and remove the folders that it created if they are empty.

    Raises:
        FileError: As `apply_change`, or a folder cannot be removed. Reverting again continues.
    """
    inverse = Change(change.path, change.after, change.before, change.mode)
    outcome = apply_change(inverse, roots, content, token)
    if outcome != "conflict":
        _remove_folders(change.made, roots)
    return outcome


def _resolve_recorded(path: str, roots: Roots, location: Location | None = None) -> Location:
    """Resolve a recorded path. Raises `FileError` if it no longer leads where it led when it was recorded."""
    try:
        location = location or locate(path, roots)
    except PathInvalid as error:
        raise FileError(str(error)) from error
    if location.zone not in ("project", "workspace") or location.display_path != path or not location.parts:
        raise FileError(f"`{path}` leads elsewhere than it did")
    return location


class _Attempt:
    """One attempt to apply a change, and how far it got."""

    def __init__(self, change: Change, location: Location, guard: Guard) -> None:
        self.change = change
        self.location = location
        self.guard = guard
        self.name = location.parts[-1]
        self.made: list[str] = []
        """Display paths of the folders that this attempt created."""
        self.may_have_changed = False

    def run(self, content: Callable[[str], bytes], token: str) -> ChangeOutcome:
        change = self.change
        try:
            folder = self._open_folder()
        except FileNotFoundError:
            return "already" if change.after is None else "conflict"
        try:
            with FolderLock(folder, self.location, self.guard.roots):
                return self._apply(folder, content, token)
        finally:
            os.close(folder)

    def _apply(self, folder: int, content: Callable[[str], bytes], token: str) -> ChangeOutcome:
        change = self.change
        temporary = f"{TEMPORARY}{digest(token.encode())[:16]}"
        _unlink(folder, temporary)
        current = fingerprint(folder, self.location, self.guard)
        now = current.hash if current else None
        if now == change.after:
            # The process that applied it may have crashed before the fsync.
            self.may_have_changed = True
            os.fsync(folder)
            return "already"
        if now != change.before:
            return "conflict"
        if change.after is None:
            if self._is_modified(folder, current):
                return "conflict"
            self.may_have_changed = True
            os.unlink(self.name, dir_fd=folder)
        else:
            try:
                _write(folder, temporary, content(change.after), change.mode)
                if self._is_modified(folder, current):
                    _unlink(folder, temporary)
                    return "conflict"
                self.may_have_changed = True
                os.rename(temporary, self.name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                _unlink(folder, temporary)
                raise
        os.fsync(folder)
        return "done"

    def _is_modified(self, folder: int, expected: Fingerprint | None) -> bool:
        """Return whether the file changed since its fingerprint was taken."""
        try:
            status = os.stat(self.name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return expected is not None
        return expected is None or stat_stamp(status) != expected.stamp

    # -- folders --------------------------------------------------------------------------------------

    def _open_folder(self) -> int:
        """Open the folder of the file. For a new file, create the folders that are missing and make them durable.

        Folders in `change.made` may exist already: a crash came after `mkdir` and before the fsync.
        """
        location, change = self.location, self.change
        folders = location.parts[:-1]
        is_new = change.before is None and change.after is not None
        try:
            handle, missing = open_existing(location.zone, folders, self.guard)
        except FileNotFoundError:
            if not is_new or location.zone != "workspace":
                raise
            os.close(open_base(location.zone, self.guard.roots, create=True))
            handle, missing = open_existing(location.zone, folders, self.guard)
        if not missing and not change.made:
            return handle
        if missing and not is_new:
            os.close(handle)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        try:
            for depth in range(len(folders) - missing, len(folders)):
                self.made.append(location.upper(depth + 1).display_path)
                with suppress(FileExistsError):
                    os.mkdir(folders[depth], dir_fd=handle)
                above, handle = handle, open_below(handle, folders[depth], self.guard)
                os.close(above)
            if is_new:
                self._sync_folders(max(missing, len(change.made)))
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _sync_folders(self, count: int) -> None:
        """Make the innermost folders durable, in the folders above them."""
        folders = self.location.parts[:-1]
        for depth in range(max(0, len(folders) - count), len(folders)):
            with FolderHandle(self.location.zone, folders[:depth], self.guard) as above:
                os.fsync(above)

    # -- failures -------------------------------------------------------------------------------------

    def look_again(self, failure: FileError) -> ChangeOutcome:
        """Return the outcome of an attempt that failed, by looking at the file; raise the failure if it is unchanged.

        A change that is in the file must be recorded, even if the system reported an error. Otherwise it would be made
        twice, and `undo` would not revert it.
        """
        try:
            now = self._current_hash() if self.may_have_changed else self.change.before
            if self.may_have_changed and now == self.change.after:
                return "unconfirmed"
            if now != self.change.before:
                raise failure
            self.remove_folders()
        except (OSError, FileError):
            text = f"{failure}; it may have been changed nevertheless: read it before you try again"
            raise ChangeUncertain(text) from failure
        raise failure

    def remove_folders(self) -> None:
        """Remove the folders that were created for the file, if they are empty."""
        planned = self.change.made if self.change.before is None else ()
        _remove_folders(sorted({*planned, *self.made}, key=len), self.guard.roots)

    def _current_hash(self) -> str | None:
        try:
            with FolderHandle(self.location.zone, self.location.parts[:-1], self.guard) as folder:
                current = fingerprint(folder, self.location, self.guard)
        except FileNotFoundError:
            return None
        return current.hash if current else None


def _write(folder: int, name: str, content: bytes, mode: int | None) -> None:
    # Create with 0600 and set the mode after writing, so that a private file is never readable by others.
    handle = os.open(name, _NEW, 0o666 if mode is None else 0o600, dir_fd=folder)
    try:
        written = 0
        while written < len(content):
            written += os.write(handle, content[written:] if written else content)
        if mode is not None:
            os.fchmod(handle, mode & 0o777)
        os.fsync(handle)
    finally:
        os.close(handle)


def _unlink(folder: int, name: str) -> None:
    try:  # every change comes here, and `suppress` costs three calls
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def _remove_folders(paths: Iterable[str], roots: Roots) -> None:
    """Remove folders, innermost first. One that is not empty, or that is something else now, stays.

    Raises:
        FileError: A folder that is ours cannot be removed.
    """
    failure: FileError | None = None
    for path in reversed(tuple(paths)):
        try:
            location = _resolve_recorded(path, roots)
        except FileError:
            continue
        try:
            with FolderHandle(location.zone, location.parts[:-1], Guard(roots)) as above:
                os.rmdir(location.parts[-1], dir_fd=above)
                os.fsync(above)
        except FileError:
            continue
        except OSError as error:
            if error.errno not in _NOT_EMPTY and _exists(location, roots):
                failure = failure or translated(error, location)
    if failure is not None:
        raise failure


def _exists(location: Location, roots: Roots) -> bool:
    try:
        with FolderHandle(location.zone, location.parts[:-1], Guard(roots)) as above:
            os.stat(location.parts[-1], dir_fd=above, follow_symlinks=False)
    except (OSError, FileError):
        return False
    return True


# -- locks ----------------------------------------------------------------------------------------------------

LOCK_SECONDS = 10.0
"""Maximum wait for the lock of a concurrent change, which is held for milliseconds."""
_NOT_LOCKABLE = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""Some network file systems do not lock folders."""
_LOCK_FILE = "files.lock"


class FolderLock:
    """Context manager that holds the lock of an open folder.

    Where the file system cannot lock a folder, a file in the state directory serves for all of them.

    Raises:
        FileError: Another process holds the lock.
    """

    def __init__(self, folder: int, location: Location, roots: Roots) -> None:
        self._handle = folder
        self._location = location
        self._roots = roots
        self._file: int | None = None

    def __enter__(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait()
        except OSError as error:
            if error.errno not in _NOT_LOCKABLE:
                raise
            with OpenFolder("", os.open(self._roots.state, FOLDER | os.O_NOFOLLOW)) as state:
                self._handle = self._file = open_beneath(
                    state, _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
            self._wait()

    def __exit__(self, *_: object) -> None:
        # Not left to `close`: a process that was forked meanwhile would keep the lock.
        fcntl.flock(self._handle, fcntl.LOCK_UN)
        if self._file is not None:
            os.close(self._file)

    def _wait(self) -> None:
        if not take_lock(self._handle, LOCK_SECONDS):
            if self._file is not None:
                os.close(self._file)
            raise FileError(f"`{self._location.display_path}` is locked by another process; try again later")
