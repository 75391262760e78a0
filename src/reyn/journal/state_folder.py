"""The state folder of a project, `.reyn`: the only place that opens it.

It is opened by descriptor, and refused if it is a symbolic link, belongs to another user, or came with a clone. What is
in it is opened beneath the descriptor; SQLite alone opens files by path, so they are checked before and after.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from reyn.errors import StateFolderUnsafe, StoreUnavailable
from reyn.folders import FILE, FOLDER, OpenFolder
from reyn.journal.git_index import is_tracked
from reyn.journal.port import DATABASE, STATE

if TYPE_CHECKING:
    from pathlib import Path

WORKSPACES = "workspace"
"""The folder of the workspaces in the state folder."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_untracked: set[tuple[int, int]] = set()
"""Folders that this process has looked for in the index of git."""


def open_state(folder: Path, *, create: bool = False) -> OpenFolder | None:
    """Open a state folder.

    Args:
        folder: The folder, `.reyn` in a project.
        create: Whether to create it if it is missing, and to remove the access of other users.

    Returns:
        The folder; `None` if there is none.

    Raises:
        StateFolderUnsafe: It is a link or not a folder, belongs to another user, or git tracks it.
        StoreUnavailable: It cannot be opened or created.
    """
    try:
        opened = _open(folder, create=create)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"the state folder `{folder}` cannot be opened: {error.strerror}") from error
    status = os.fstat(opened.handle)
    check_owner(status, opened.path)
    _check_untracked(folder, status)
    if create and status.st_mode & _OTHERS:
        os.fchmod(opened.handle, stat.S_IMODE(status.st_mode) & ~_OTHERS)
    return opened


def _open(folder: Path, *, create: bool) -> OpenFolder:
    path = os.fspath(folder)
    if create:
        folder.parent.mkdir(parents=True, exist_ok=True)
    with OpenFolder("", os.open(folder.parent, FOLDER)) as above:
        if create:
            with suppress(FileExistsError):
                os.mkdir(folder.name, 0o700, dir_fd=above)
        try:
            return OpenFolder(path, os.open(folder.name, FOLDER | os.O_NOFOLLOW, dir_fd=above))
        except NotADirectoryError as error:
            mode = os.stat(folder.name, dir_fd=above, follow_symlinks=False).st_mode
            what = "is a symbolic link" if stat.S_ISLNK(mode) else "is not a folder"
            raise StateFolderUnsafe(f"`{path}` {what}", hint="Move it away, or make it a folder of its own.") from error


def check_owner(status: os.stat_result, path: str) -> None:
    """Raise `StateFolderUnsafe` if a file or a folder belongs to another user."""
    if status.st_uid != os.geteuid():
        raise StateFolderUnsafe(
            f"`{path}` belongs to another user", hint="Run Reyn as the user who owns it, or move it away."
        )


def _check_untracked(folder: Path, status: os.stat_result) -> None:
    """Refuse a folder of the name `.reyn` that came with a clone. A journal elsewhere may be tracked on purpose."""
    identity = (status.st_dev, status.st_ino)
    if folder.name != STATE or identity in _untracked:
        return
    try:
        tracked = is_tracked(os.fspath(folder))
    except OSError as error:
        raise StateFolderUnsafe(
            f"it is unknown whether git tracks `{folder}`: {error}", hint="Repair the index: git reset"
        ) from error
    if tracked:
        raise StateFolderUnsafe(
            f"git tracks `{folder}`: it came with a clone, or would go along with one",
            hint=f"If it is yours, run: git rm -r --cached {STATE}, and add `{STATE}/` to .gitignore. "
            "If not, delete it.",
        )
    _untracked.add(identity)


def has_journal(folder: Path) -> bool:
    """Return whether a state folder has a journal that is not empty. Creates nothing.

    Raises:
        StateFolderUnsafe: The folder or the file is not safe to use.
    """
    opened = open_state(folder)
    if opened is None:
        return False
    with opened as handle:
        status = file_status(handle, DATABASE, opened.path)
    return status is not None and status.st_size > 0


def file_status(folder: int, name: str, path: str) -> os.stat_result | None:
    """Return the status of a file in an open state folder; `None` if there is none.

    Raises:
        StateFolderUnsafe: It is a link, not a regular file, a hard link, or belongs to another user.
    """
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    place = f"{path}/{name}"
    hint = "Move it away; it may have been planted."
    if not stat.S_ISREG(status.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        raise StateFolderUnsafe(f"`{place}` is {what}", hint=hint)
    if status.st_nlink > 1:
        hint = "Replace it by a copy of its own; the other name may be a file outside the project."
        raise StateFolderUnsafe(f"`{place}` has another name on this disk (a hard link)", hint=hint)
    check_owner(status, place)
    return status


def private_file(folder: int, name: str, path: str) -> bool:
    """Check a file in an open state folder, and remove the access of other users. Returns whether it exists."""
    status = file_status(folder, name, path)
    if status is not None and status.st_mode & _OTHERS:
        with OpenFolder("", os.open(name, FILE | os.O_NOFOLLOW, dir_fd=folder)) as file:
            found = os.fstat(file)
            if (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino):
                os.fchmod(file, stat.S_IMODE(found.st_mode) & ~_OTHERS)
    return status is not None


def open_private(folder: int, name: str, path: str) -> int:
    """Open a file of the user in an open state folder for reading and writing; a new one has mode 0600."""
    private_file(folder, name, path)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=folder)
