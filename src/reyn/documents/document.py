"""Read text files within a size limit, keep the position of every value of a parsed file, and notice changed files."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from reyn.errors import Finding
from reyn.errors.codes import LINK_OUTSIDE, UNREADABLE
from reyn.folders import FILE, OpenFolder, open_beneath, open_inside

KeyPath = tuple[str | int, ...]
"""The path of a value in a document: `("graph", "review", 0)`."""
Severity = Literal["error", "warning", "info"]


class Position(NamedTuple):
    """A position in a file, counted from 1."""

    line: int
    column: int


class DocumentError(Exception):
    """A file cannot be read or parsed; `finding` has the position and the reason."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class Split(NamedTuple):
    """A value that a comma split: its key, its position, the part that is left and the one that became a key."""

    key: str
    at: Position
    left: str
    rest: str


class Document(msgspec.Struct, frozen=True):
    """A parsed file, or a part of one.

    Attributes:
        file: The file name for findings.
        value: The parsed value.
        marks: The position of every key and list item, by its path from the root of the file.
        body: The text below the front matter, verbatim.
        body_line: The line on which the body starts.
        prefix: The path of `value` in the file; paths passed to methods are relative to it.
        splits: Where a comma in `{…}` split an unquoted value, so that the rest became a key without a value.
    """

    file: str
    value: Any
    marks: dict[KeyPath, Position]
    body: str = ""
    body_line: int = 1
    prefix: KeyPath = ()
    splits: tuple[Split, ...] = ()

    def at(self, *path: str | int) -> Position:
        """Return the position of a value, or of its nearest ancestor that has one."""
        full = (*self.prefix, *path)
        while full and full not in self.marks:
            full = full[:-1]
        return self.marks.get(full, Position(1, 1))

    def part(self, *path: str | int) -> Document:
        """Return a part of the document as a document with the same positions."""
        value = self.value
        for step in path:
            value = value[step]
        return Document(self.file, value, self.marks, prefix=(*self.prefix, *path))

    def finding(
        self, code: str, message: str, *path: str | int, fix: str = "", severity: Severity = "error"
    ) -> Finding:
        """Return a finding at the position of a value."""
        mark = self.at(*path)
        return Finding(self.file, mark.line, mark.column, code, message, fix, severity)


# -- files -----------------------------------------------------------------------------------------------------

_MAX_BYTES = 1_000_000


def read_error(error: OSError | ValueError) -> str:
    """Return why a file cannot be read or written, without an error number."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return getattr(error, "strerror", None) or str(error)


def read_text(
    path: Path,
    label: str,
    *,
    inside: Path | OpenFolder | None = None,
    below: str = "",
    beneath: int | None = None,
) -> str:
    """Return the text of a UTF-8 file, with LF line ends and without a byte-order mark.

    Args:
        path: The file.
        label: The file name for findings.
        inside: A folder that links must not lead out of; without it they may lead anywhere.
        below: A folder in it that links must not lead out of.
        beneath: The descriptor of an open folder, to which `path` is relative; no link is followed.

    Raises:
        DocumentError: the file is not a regular file, too large, not UTF-8, or a link leads out of the folder.
    """
    raw = read_raw(path, label, inside=inside, below=below, beneath=beneath)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DocumentError(
            Finding(label, line, 1, UNREADABLE, "the file is not UTF-8 text", "save it as UTF-8")
        ) from error
    return text.replace("\r\n", "\n")


def read_raw(
    path: Path,
    label: str,
    *,
    inside: Path | OpenFolder | None = None,
    below: str = "",
    beneath: int | None = None,
    max_bytes: int = _MAX_BYTES,
) -> bytes:
    """Return the content of a file.

    Raises:
        DocumentError: the file is not a regular file, too large, or a link leads out of the folder.
    """
    try:
        if beneath is not None:
            handle = _open_beneath(beneath, path, label)
        else:
            handle = os.open(path, FILE) if inside is None else _open_inside(path, inside, below, label)
        with FileIO(handle) as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise DocumentError(Finding(label, 1, 1, UNREADABLE, "not a regular file"))
            raw = file.readall() if found.st_size <= max_bytes else file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        raise DocumentError(Finding(label, 1, 1, UNREADABLE, f"cannot read the file: {read_error(error)}")) from error
    if len(raw) > max_bytes:
        raise DocumentError(Finding(label, 1, 1, UNREADABLE, f"the file is larger than {max_bytes} bytes"))
    return raw


def _open_beneath(folder: int, path: Path, label: str) -> int:
    try:
        return open_beneath(folder, str(path), FILE)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        message = f"`{label}` is a link, or below a link; it is not read"
        raise DocumentError(Finding(label, 1, 1, LINK_OUTSIDE, message, "replace the link by a copy")) from error


def _open_inside(path: Path, folder: Path | OpenFolder, below: str, label: str) -> int:
    """Open a file below a folder. Links are resolved first and not followed again, so they cannot change meanwhile."""
    handle = open_inside(folder, path, FILE, below=below)
    if handle is None:
        name = below or (Path(folder.path).name if isinstance(folder, OpenFolder) else folder.name)
        message = f"`{label}` is a link, or below a link, that leads out of `{name}`; it is not read"
        raise DocumentError(Finding(label, 1, 1, LINK_OUTSIDE, message, "replace the link by a copy"))
    return handle


class FolderTimes(NamedTuple):
    """When some folders changed. Creating, removing or replacing a file changes the time of its folder.

    Writing into a file that stays in place does not. Programs write that way, people with some editors.

    Attributes:
        taken_at: When they were looked at, in seconds of a clock that never goes back.
        times: The time of each folder, in nanoseconds; 0 if it does not exist.
    """

    taken_at: float
    times: dict[str, int]

    @classmethod
    def of(cls, folders: Iterable[str]) -> FolderTimes:
        """Look at folders. Do this before their files are read."""
        return cls(time.monotonic(), {folder: _time_of(folder) for folder in folders})

    def is_current(self, max_age: float) -> bool:
        """Return whether the folders are as they were, and it is not longer ago than so many seconds."""
        if time.monotonic() - self.taken_at >= max_age:
            return False
        return all(_time_of(folder) == changed for folder, changed in self.times.items())


def _time_of(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - called for every skill in every turn of a conversation
    except OSError:
        return 0
