"""Apply and revert recorded changes of single files, atomically and idempotently.

A `Change` refers to contents by hash, so the journal can record it before it is applied. It takes effect only if the
file still is what it was when the change was planned; applying it a second time, after a crash, has no effect.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from reyn.journal import digest
from reyn.journal.kinds import Change
from reyn.workspace.files import FileError, Fingerprint, FolderHandle, Guard, TranslateOSErrors, fingerprint, stat_stamp
from reyn.workspace.paths import Location, PathInvalid, Roots, locate

if TYPE_CHECKING:
    from collections.abc import Callable

TEMPORARY = ".reyn-tmp-"
"""Name prefix of temporary files."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Outcome = Literal["done", "already", "conflict"]


def apply_change(
    change: Change, roots: Roots, content: Callable[[str], bytes], token: str, location: Location | None = None
) -> Outcome:
    """Apply a change of a file.

    Args:
        change: The change.
        roots: The folders of the project and the run.
        content: Returns recorded content by its hash.
        token: Identifies this change; the same when it is applied again after a crash.
        location: The resolved path, if the caller has it already.

    Returns:
        `done`, `already` if the file was as after the change, or `conflict` if the file is neither as before nor as
        after the change; a file in conflict is not touched.

    Raises:
        FileError: The path leads elsewhere than when it was recorded, or the file cannot be written.
    """
    location = _resolve_recorded(change.path, roots, location)
    with TranslateOSErrors(location):
        guard = Guard(roots)
        if change.before is None and change.after is not None:
            _make_folders(location, change, guard)
        try:
            with FolderHandle(location.zone, location.parts[:-1], guard) as folder:
                return _apply(_Target(folder, location, guard), change, content, token)
        except FileNotFoundError:
            return "already" if change.after is None else "conflict"


def revert(change: Change, roots: Roots, content: Callable[[str], bytes], token: str) -> Outcome:
    """Apply a change backwards, and remove the folders that it created if they are empty."""
    inverse = Change(change.path, change.after, change.before, change.mode)
    outcome = apply_change(inverse, roots, content, token)
    if outcome != "conflict":
        for path in reversed(change.made):
            _remove_empty(path, roots)
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


class _Target(NamedTuple):
    """A file to change, with the open descriptor of its folder."""

    folder: int
    location: Location
    guard: Guard

    @property
    def name(self) -> str:
        return self.location.parts[-1]


def _apply(target: _Target, change: Change, content: Callable[[str], bytes], token: str) -> Outcome:
    temporary = f"{TEMPORARY}{digest(token.encode())[:16]}"
    _unlink(target.folder, temporary)
    found = fingerprint(*target)
    now = found.hash if found else None
    if now == change.after:
        # The process that applied it may have crashed before the fsync.
        os.fsync(target.folder)
        return "already"
    if now != change.before:
        return "conflict"
    if change.after is None:
        return _delete(target, found)
    return _replace(target, found, temporary, content(change.after), change.mode)


def _replace(
    target: _Target, expected: Fingerprint | None, temporary: str, content: bytes, mode: int | None
) -> Outcome:
    try:
        _write(target.folder, temporary, content, mode)
        if _is_modified(target, expected):
            _unlink(target.folder, temporary)
            return "conflict"
        os.rename(temporary, target.name, src_dir_fd=target.folder, dst_dir_fd=target.folder)
    except OSError:
        _unlink(target.folder, temporary)
        raise
    os.fsync(target.folder)
    return "done"


def _delete(target: _Target, expected: Fingerprint | None) -> Outcome:
    if _is_modified(target, expected):
        return "conflict"
    os.unlink(target.name, dir_fd=target.folder)
    os.fsync(target.folder)
    return "done"


def _is_modified(target: _Target, expected: Fingerprint | None) -> bool:
    """Whether the file changed since its fingerprint was taken."""
    try:
        status = os.stat(target.name, dir_fd=target.folder, follow_symlinks=False)
    except FileNotFoundError:
        return expected is not None
    return expected is None or stat_stamp(status) != expected.stamp


def _make_folders(location: Location, change: Change, guard: Guard) -> None:
    """Create the parent folders of a file and make them durable.

    Folders in `change.made` may exist already: a crash came after `mkdir` and before the fsync.
    """
    if not change.made and _is_folder(location.above(), guard):
        return
    if location.zone == "workspace" and not guard.roots.workspace.is_dir():
        _make_workspace(guard.roots)
    folders = location.parts[:-1]
    for depth, name in enumerate(folders):
        with FolderHandle(location.zone, folders[:depth], guard) as above:
            if _make_folder(above, name) or depth >= len(folders) - len(change.made):
                os.fsync(above)


def _is_folder(location: Location, guard: Guard) -> bool:
    try:
        with FolderHandle(location.zone, location.parts, guard):
            return True
    except FileNotFoundError:
        return False


def _make_folder(above: int, name: str) -> bool:
    try:
        os.mkdir(name, dir_fd=above)
    except FileExistsError:
        return False
    return True


def _make_workspace(roots: Roots) -> None:
    roots.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    roots.workspace.mkdir(parents=True, exist_ok=True)
    for folder in (roots.workspace.parent, roots.workspace.parent.parent):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def _remove_empty(path: str, roots: Roots) -> None:
    try:
        location = _resolve_recorded(path, roots)
        with FolderHandle(location.zone, location.parts[:-1], Guard(roots)) as above:
            os.rmdir(location.parts[-1], dir_fd=above)
            os.fsync(above)
    except (OSError, FileError):
        return
