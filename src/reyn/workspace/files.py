"""Open, read and fingerprint files by descriptor.

Each folder is opened relative to its parent without following symlinks, so a symlink that appears after the permission
check has no effect. The state directory is recognised by device and inode: it cannot be entered under any name, and a
hard link to one of its files cannot be opened.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from reyn.folders import FILE, FOLDER, OpenFolder, make_folders, open_beneath
from reyn.journal import Blob
from reyn.journal.kinds import Change

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.workspace.paths import Location, Parts, Roots, Zone

_FOLDER = FOLDER | os.O_NOFOLLOW
_FILE = FILE | os.O_NOFOLLOW
_CHUNK = 1 << 20
TEMPORARY = ".reyn-tmp-"
"""Name prefix of temporary files."""

Identity = tuple[int, int]


class FileError(Exception):
    """A file operation failed. The message is shown to the model, so it contains no path of this machine."""


class ChangeUncertain(FileError):
    """A change failed after it may have taken effect, and the file does not show which."""


class FileImage(msgspec.Struct, frozen=True):
    """The content and permission bits of a file at one moment."""

    content: bytes
    mode: int


class FileChange(NamedTuple):
    """A change of a file, and the contents that it refers to."""

    change: Change
    blobs: tuple[Blob, ...]

    @classmethod
    def of(
        cls, location: Location, before: FileImage | None, after: bytes | None, made: tuple[str, ...] = ()
    ) -> FileChange | None:
        """Return the change that gives a file other content; `None` if it has that content.

        Args:
            location: The file.
            before: The file as it is; `None` if it does not exist.
            after: Its content afterwards; `None` to delete it.
            made: The folders to create for a new file.
        """
        path = location.display_path
        if before is None:
            if after is None:
                return None
            new = Blob.of(after)
            return cls(Change(path, None, new.hash, None, made), (new,))
        if after == before.content:
            return None
        old = Blob.of(before.content)
        if after is None:
            return cls(Change(path, old.hash, None, before.mode), (old,))
        new = Blob.of(after)
        return cls(Change(path, old.hash, new.hash, before.mode), (old, new))


class Fingerprint(msgspec.Struct, frozen=True):
    """The state of a file: `hash` of its content, and `stamp` to detect a later modification cheaply."""

    hash: str
    stamp: tuple[int, ...]


class Guard:
    """Keeps the state directory out of reach. Create one per op; it caches inode numbers."""

    def __init__(self, roots: Roots) -> None:
        self.roots = roots
        self._hidden: set[Identity] = set()
        for folder in roots.hidden_texts:
            try:
                status = os.stat(folder)  # noqa: PTH116 - half the cost of `Path.stat`
            except OSError:
                continue
            self._hidden.add((status.st_dev, status.st_ino))

    def check_folder(self, handle: int) -> None:
        """Raise `FileError` if an open folder is the state directory or another hidden folder."""
        status = os.fstat(handle)
        if (status.st_dev, status.st_ino) in self._hidden:
            raise FileError("the state directory is out of reach")

    def check_file(self, status: os.stat_result, location: Location) -> None:
        """Raise `FileError` unless an open file is a regular file outside the state directory."""
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a plain file"
            raise FileError(f"`{location.display_path}` is {kind}")
        if status.st_nlink > 1 and _identity(status) in self._records:
            raise FileError(f"`{location.display_path}` is a file of the state directory or a secret: out of reach")

    @cached_property
    def _records(self) -> frozenset[Identity]:
        """Device and inode of the files in the hidden folders, without those of the run's own workspace."""
        hidden = (self.roots.state, *self.roots.hidden)
        return frozenset(one for folder in hidden for one in _files_in(folder, skip=self.roots.workspace))


def read(location: Location, roots: Roots, limit_bytes: int, guard: Guard | None = None) -> FileImage | None:
    """Return a file's content and mode, or `None` if there is no file.

    Raises:
        FileError: The file is larger than `limit_bytes`, not a regular file, or cannot be read.
    """
    return look(location, guard or Guard(roots), limit_bytes)[0]


def look(location: Location, guard: Guard, limit_bytes: int) -> tuple[FileImage | None, tuple[str, ...]]:
    """Return a file's content and mode, and the display paths of the folders above it to create, outermost first.

    Raises:
        FileError: As `read`.
    """
    if not location.parts:
        raise FileError(f"`{location.display_path}` is a folder")
    above = location.parts[:-1]
    try:
        try:
            folder, missing = open_existing(location.zone, above, guard)
        except FileNotFoundError:  # the workspace itself
            return None, _paths_of(location, len(above))
        try:
            if missing:
                return None, _paths_of(location, missing)
            handle, status = _open_file(folder, location, guard)
        except FileNotFoundError:
            return None, ()
        finally:
            os.close(folder)
        try:
            # Reading one byte beyond the limit reveals a file that grew after `fstat`.
            content = b"" if status.st_size > limit_bytes else _read_all(handle, status.st_size, limit_bytes)
        finally:
            os.close(handle)
    except OSError as error:
        raise translated(error, location) from error
    if max(status.st_size, len(content)) > limit_bytes:
        raise FileError(f"`{location.display_path}` is larger than {limit_bytes} bytes")
    return FileImage(content, stat.S_IMODE(status.st_mode)), ()


def _paths_of(location: Location, missing: int) -> tuple[str, ...]:
    depth = len(location.parts)
    return tuple(location.upper(depth - number - 1).display_path for number in reversed(range(missing)))


def decode_text(content: bytes, location: Location) -> str:
    """Decode UTF-8; raise `FileError` for any other encoding or a NUL character."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise FileError(f"`{location.display_path}` is not UTF-8 text") from None
    if "\0" in text:
        raise FileError(f"`{location.display_path}` is not text: it holds NUL characters")
    return text


def fingerprint(folder: int, location: Location, guard: Guard) -> Fingerprint | None:
    """Return the fingerprint of a file in an open folder, or `None` if there is no file."""
    try:
        handle, status = _open_file(folder, location, guard)
    except FileNotFoundError:
        return None
    try:
        # No more than the file needs: Python allocates the whole buffer before it reads.
        first = os.read(handle, min(status.st_size + 1, _CHUNK))
        hashed = hashlib.sha256(first)
        # Most files are read at once. One that grows meanwhile is noticed by its stamp.
        if len(first) != status.st_size:
            while chunk := os.read(handle, _CHUNK):
                hashed.update(chunk)
    finally:
        os.close(handle)
    return Fingerprint(hashed.hexdigest(), stat_stamp(status))


def stat_stamp(status: os.stat_result) -> tuple[int, ...]:
    """Return the fields of `stat` that change when a file is modified or replaced."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def kind_of(location: Location, roots: Roots) -> Literal["file", "folder"] | None:
    """Return whether a location is a file or a folder, or `None` if nothing is there."""
    try:
        with FolderHandle(location.zone, location.parts, Guard(roots)):
            return "folder"
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return "file"
    except OSError as error:
        raise translated(error, location) from error


def open_existing(zone: Zone, parts: Parts, guard: Guard) -> tuple[int, int]:
    """Open the innermost folder of a path that exists. Returns its descriptor, and how many folders are missing."""
    handle = open_base(zone, guard.roots)
    try:
        guard.check_folder(handle)
        for depth, name in enumerate(parts):
            try:
                above, handle = handle, os.open(name, _FOLDER, dir_fd=handle)
            except FileNotFoundError:
                return handle, len(parts) - depth
            os.close(above)
            guard.check_folder(handle)
    except BaseException:
        os.close(handle)
        raise
    return handle, 0


def open_below(folder: int, name: str, guard: Guard) -> int:
    """Open a folder inside an open one, without following symlinks."""
    handle = os.open(name, _FOLDER, dir_fd=folder)
    try:
        guard.check_folder(handle)
    except BaseException:
        os.close(handle)
        raise
    return handle


class FolderHandle:
    """Context manager for the descriptor of a folder, opened component by component without following symlinks.

    A class, not a generator: every op enters several, and `@contextmanager` costs more.

    Raises:
        FileNotFoundError: There is no such folder.
    """

    def __init__(self, zone: Zone, parts: Parts, guard: Guard) -> None:
        self._handle, missing = open_existing(zone, parts, guard)
        if missing:
            os.close(self._handle)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def __enter__(self) -> int:
        return self._handle

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def open_base(zone: Zone, roots: Roots, *, create: bool = False) -> int:
    """Open the root folder of a zone that has files. No part of the workspace's path in the project may be a link.

    Args:
        zone: The zone.
        roots: The folders of the run.
        create: Whether to create the workspace, durably, if it is missing.
    """
    if zone == "project":
        return os.open(roots.project_text, FOLDER)
    if zone != "workspace":
        raise FileError("it is out of reach")
    base, path = roots.workspace_base
    above = os.open(base, FOLDER)
    try:
        try:
            return open_beneath(above, path)
        except FileNotFoundError:
            if not create:
                raise
        handle = make_folders(above, path, 0o700)
        for inner in [f"{path}/".rsplit("/", depth)[0] for depth in (2, 3)]:
            with OpenFolder("", open_beneath(above, inner) if inner else os.dup(above)) as folder:
                os.fsync(folder)
        return handle
    finally:
        os.close(above)


def translated(error: OSError, location: Location) -> FileError:
    """Return the error as a `FileError`, without paths of this machine."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        reason = "a part of it is a link, or a file where a folder should be"
    else:
        reason = os.strerror(error.errno or errno.EIO)
    return FileError(f"`{location.display_path}`: {reason}")


def _open_file(folder: int, location: Location, guard: Guard) -> tuple[int, os.stat_result]:
    handle = os.open(location.parts[-1], _FILE, dir_fd=folder)
    try:
        status = os.fstat(handle)
        guard.check_file(status, location)
    except BaseException:
        os.close(handle)
        raise
    return handle, status


def _read_all(handle: int, size: int, limit_bytes: int) -> bytes:
    """Read a file to its end, or one byte more than the limit. `size` is the size that `fstat` reported."""
    content = os.read(handle, min(size, limit_bytes) + 1)
    if len(content) == size:
        return content
    parts = [content]
    left = limit_bytes + 1 - len(content)
    while left > 0 and (chunk := os.read(handle, min(left, _CHUNK))):
        parts.append(chunk)
        left -= len(chunk)
    return b"".join(parts)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _files_in(folder: Path, *, skip: Path) -> Iterator[Identity]:
    for root, folders, files in os.walk(folder) if not folder.is_symlink() else ():
        folders[:] = [name for name in folders if os.path.join(root, name) != os.fspath(skip)]  # noqa: PTH118 - fast
        for name in files:
            try:
                yield _identity(os.lstat(os.path.join(root, name)))  # noqa: PTH118 - fast
            except OSError:
                continue


# -- folders --------------------------------------------------------------------------------------------------


class FolderEntry(NamedTuple):
    """A regular file or a folder."""

    name: str
    is_folder: bool


def walk(
    location: Location, entries_at: Callable[[Location], Sequence[FolderEntry]], enter: Callable[[Location], bool]
) -> Iterator[Location]:
    """Yield the files below a folder depth-first, sorted by name. Skip folders for which `enter` returns false."""
    pending = [(location, True)]
    while pending:
        here, is_folder = pending.pop()
        if not is_folder:
            yield here
        elif here is location or enter(here):
            pending.extend((here.below(entry.name), entry.is_folder) for entry in reversed(entries_at(here)))


def entries_of(location: Location, guard: Guard) -> list[FolderEntry]:
    """Return the regular files and folders in a folder, sorted by name; none if it cannot be listed."""
    try:
        with FolderHandle(location.zone, location.parts, guard) as folder, os.scandir(folder) as scan:
            entries = [entry for entry in scan if _is_listed(entry)]
            return sorted([FolderEntry(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries])
    except (OSError, FileError):
        return []


def _is_listed(entry: os.DirEntry[str]) -> bool:
    name = entry.name
    if name.startswith(TEMPORARY) or not (name.isascii() or is_utf8(name)):
        return False
    return entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)


def is_utf8(name: str) -> bool:
    """Return whether a name can be recorded."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
