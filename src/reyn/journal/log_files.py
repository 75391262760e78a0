"""The files beside the database: `journal.db-wal`, the log of SQLite, and `journal.db-shm`, the index of the log.

Commits are only in the log until a checkpoint copies them into the database. SQLite finds files by their paths and
opens a database without its log as of an earlier commit, with no error. Here a loss is found: during a run by the
identity and size of each file, at opening by the index, which a process that was killed leaves behind.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from reyn.errors import StoreDamaged, StoreUnavailable

if TYPE_CHECKING:
    from reyn.folders import OpenFolder

_HEADER = Struct("=12xBxHI12x8s56xI")
"""Of the index: is it initialized, size of a page, frames of the log, salt of the log, frames that were copied."""
_LOG_HEADER = Struct("16x8s8x")
"""Of the log: its salt."""
_FRAME = 24
"""The header of a frame, which a page follows."""


class _LogIndex(NamedTuple):
    is_initialized: int
    page_size: int
    frames: int
    salt: bytes
    copied: int


class JournalFiles:
    """The files that an open journal consists of.

    Args:
        paths: The paths of the database, its log and the index of the log.
        copy_log: Copies the log into the database, and returns whether everything was copied.

    Attributes:
        identities: Device and inode of each file.
        log_size: The size of the log at the last commit. It never becomes smaller.
    """

    def __init__(self, paths: tuple[str, str, str], copy_log: Callable[[], bool]) -> None:
        self.paths = paths
        self._copy_log = copy_log
        self.identities: tuple[int, ...] = tuple(number for path in paths for number in _identity(path))
        self.log_size = 0
        if _GONE in self._own():  # connections of this process that were abandoned share an index that has no path
            raise StoreUnavailable(
                f"files of the journal `{paths[0]}` were deleted while this process used them",
                hint="Nothing that was committed is lost. Continue in a new process.",
            )

    def error(self, *, may_copy: bool = True) -> StoreUnavailable:
        """Return the error about files that are not those that were opened, or about a log that became shorter.

        Args:
            may_copy: The log may be copied into the database, in place of the transaction in progress.
        """
        files = zip(self.paths, self._own(), strict=True)
        gone = next((path for path, identity in files if _identity(path) != identity), None)
        if gone is None:
            return StoreUnavailable(
                f"the journal `{self.paths[1]}` was truncated while it was in use",
                hint="Nothing more is recorded. Put the file back, then resume the run.",
            )
        message = f"the journal `{gone}` was deleted, moved or replaced while it was in use"
        return StoreUnavailable(message, hint=self._rescue(may_copy=may_copy))

    def _own(self) -> list[tuple[int, ...]]:
        return [self.identities[at : at + 2] for at in (0, 2, 4)]

    def cause_of(self, error: BaseException, *, may_copy: bool) -> BaseException:
        """Return the error about files that were replaced or truncated, if that may be why SQLite cannot use them."""
        if not isinstance(error, sqlite3.DatabaseError):
            return error
        try:
            is_whole = self.are_current() and os.stat(self.paths[1]).st_size >= self.log_size  # noqa: PTH116
        except FileNotFoundError:
            is_whole = False
        return error if is_whole else self.error(may_copy=may_copy)

    def are_current(self) -> bool:
        """Return whether each file is still the one that was opened."""
        return [_identity(path) for path in self.paths] == self._own()

    def _rescue(self, *, may_copy: bool) -> str:
        """Copy the log into the database, if it may be and only the log is gone. Returns what to do."""
        (database, log, index), own = map(_identity, self.paths), self._own()
        if database == own[0]:
            is_alone = index in (_GONE, own[2])  # no other process has opened the database since
            if log == own[1] or (log == _GONE and is_alone and may_copy and self._copy_log()):
                return (
                    "Nothing more is recorded, and nothing that was committed is lost. Resume the run in a new process."
                )
        return "Nothing more is recorded. Put the state directory back, then resume the run."


_GONE = (0, 0)


def _identity(path: str) -> tuple[int, int]:
    """Return device and inode of a file; zeros if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return _GONE
    return status.st_dev, status.st_ino


_open_here: Counter[tuple[int, int]] = Counter()
"""The databases that this process has open, by device and inode.

A process that closes a file loses its locks on it, also those of SQLite. So the index is read only while no connection
of this process has it open.
"""
_open_lock = threading.Lock()


def enter(database: tuple[int, int], folder: OpenFolder, names: tuple[str, str, str]) -> None:
    """Note that this process opens a database; check first that its log has the commits that the index lists.

    Raises:
        StoreDamaged: The log is gone, too short or another one, and the database lacks its commits.
    """
    with _open_lock:
        if not _open_here[database]:
            _check_log(folder, names)
        _open_here[database] += 1


def leave(database: tuple[int, int]) -> None:
    """Note that this process has closed a database."""
    with _open_lock:
        _open_here[database] -= 1


def _check_log(folder: OpenFolder, names: tuple[str, str, str]) -> None:
    _, log, index = names
    before, _ = _beginning(folder, index, _HEADER.size)
    if len(before) < _HEADER.size:
        return
    found = _LogIndex._make(_HEADER.unpack(before))
    if not found.is_initialized or found.copied >= found.frames:
        return
    head, size = _beginning(folder, log, _LOG_HEADER.size)
    page = 65_536 if found.page_size == 1 else found.page_size
    if not size:
        problem = "is missing"
    elif size < _LOG_HEADER.size + found.frames * (_FRAME + page):
        problem = "is shorter than it was"
    elif _LOG_HEADER.unpack(head) != (found.salt,):
        problem = "is another one than it was"
    else:
        return
    if _beginning(folder, index, _HEADER.size)[0] == before:  # otherwise another process has begun the log anew
        raise StoreDamaged(
            f"`{folder.path}/{log}` {problem}, so commits of the journal are lost",
            hint=f"Put `{log}` back. To continue from an earlier commit instead, delete `{index}` beside it; ops that "
            "were recorded after it may be executed again.",
        )


def _beginning(folder: OpenFolder, name: str, length: int) -> tuple[bytes, int]:
    """Return the beginning and the size of a file; both are empty if there is none."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder.handle)
    except FileNotFoundError:
        return b"", 0
    try:
        return os.pread(handle, length, 0), os.fstat(handle).st_size
    finally:
        os.close(handle)
