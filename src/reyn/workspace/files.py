"""A place becomes the file that is there, reached by descriptors alone.

Every folder on the way is opened from the one above it and no link is followed, so a link that is put in after a place
was judged leads nowhere. The state directory is known by what it is, not by what it is called: it cannot be walked
into, and a file that is another name of one of its records cannot be opened.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reyn.workspace.paths import Parts, Place, Roots, Zone

_BASE = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _BASE | os.O_NOFOLLOW
# A fifo without a writer must not hold us up.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1 << 20

Identity = tuple[int, int]


class FileFault(Exception):
    """A file that cannot be had; the message is for a model, and names the place as it is shown."""


class Image(msgspec.Struct, frozen=True):
    """A file as it was found."""

    content: bytes
    mode: int


class Seen(msgspec.Struct, frozen=True):
    """What tells one state of a file from another, and whether it was touched since."""

    hash: str
    stamp: tuple[int, ...]


class Guard:
    """Keeps the state directory out of reach. One guard serves one op, which may open many files."""

    def __init__(self, roots: Roots) -> None:
        self.roots = roots

    @cached_property
    def _hidden(self) -> frozenset[Identity]:
        found = set()
        for folder in (self.roots.state, *self.roots.hidden):
            with suppress(OSError):
                found.add(_identity(os.stat(folder)))  # noqa: PTH116 - half the cost of `Path.stat`
        return frozenset(found)

    def check_folder(self, handle: int) -> None:
        if _identity(os.fstat(handle)) in self._hidden:
            raise FileFault("the state directory is out of reach")

    def check_file(self, status: os.stat_result, place: Place) -> None:
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a plain file"
            raise FileFault(f"`{place.shown}` is {what}")
        if status.st_nlink > 1 and _identity(status) in self._records:
            raise FileFault(f"`{place.shown}` is a file of the state directory, which is out of reach")

    @cached_property
    def _records(self) -> frozenset[Identity]:
        """The files of the state directory, without those of the run itself."""
        return frozenset(_files_in(self.roots.state, passed_over=self.roots.workspace))


def read(place: Place, roots: Roots, limit_bytes: int, guard: Guard | None = None) -> Image | None:
    """The file at a place, or `None` if there is none."""
    guard = guard or Guard(roots)
    if not place.parts:
        raise FileFault(f"`{place.shown}` is a folder")
    with faults_told(place):
        try:
            with opened_folder(place.zone, place.parts[:-1], guard) as folder:
                handle, status = _open_file(folder, place, guard)
        except FileNotFoundError:
            return None
        try:
            # One byte more than may be tells that there is more.
            content = b"" if status.st_size > limit_bytes else b"".join(_chunks(handle, limit_bytes + 1))
        finally:
            os.close(handle)
    if max(status.st_size, len(content)) > limit_bytes:
        raise FileFault(f"`{place.shown}` is larger than {limit_bytes} bytes")
    return Image(content, stat.S_IMODE(status.st_mode))


def text_of(content: bytes, place: Place) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise FileFault(f"`{place.shown}` is not UTF-8 text") from None
    if "\0" in text:
        raise FileFault(f"`{place.shown}` is not text: it holds NUL characters")
    return text


def look(folder: int, place: Place, guard: Guard) -> Seen | None:
    """Which content a file of an opened folder has, whatever its size; `None` if there is none."""
    try:
        handle, status = _open_file(folder, place, guard)
    except FileNotFoundError:
        return None
    hashed = hashlib.sha256()
    try:
        for chunk in _chunks(handle):
            hashed.update(chunk)
    finally:
        os.close(handle)
    return Seen(hashed.hexdigest(), stamp_of(status))


def stamp_of(status: os.stat_result) -> tuple[int, ...]:
    return (*_identity(status), status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def kind_of(place: Place, roots: Roots) -> Literal["file", "folder"] | None:
    with faults_told(place):
        try:
            with opened_folder(place.zone, place.parts, Guard(roots)):
                return "folder"
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            return "file"


def missing_folders(place: Place, roots: Roots) -> tuple[str, ...]:
    """The folders, as they are shown, that have to be made for a file to be there, outermost first."""
    guard = Guard(roots)
    missing: list[str] = []
    above = place.above()
    while above.parts:
        with faults_told(place):
            try:
                with opened_folder(above.zone, above.parts, guard):
                    break
            except FileNotFoundError:
                missing.append(above.shown)
        above = above.above()
    return tuple(reversed(missing))


def open_folder(zone: Zone, parts: Parts, guard: Guard) -> int:
    """Open a folder, one part after the other, without following links. Returns its descriptor."""
    handle = os.open(base_of(zone, guard.roots), _BASE)
    try:
        guard.check_folder(handle)
        for name in parts:
            above, handle = handle, os.open(name, _FOLDER, dir_fd=handle)
            os.close(above)
            guard.check_folder(handle)
    except BaseException:
        os.close(handle)
        raise
    return handle


class opened_folder:  # noqa: N801 - a context manager; a class, because every op enters several
    """The descriptor of a folder, closed at the end of the block."""

    def __init__(self, zone: Zone, parts: Parts, guard: Guard) -> None:
        self._handle = open_folder(zone, parts, guard)

    def __enter__(self) -> int:
        return self._handle

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def base_of(zone: Zone, roots: Roots) -> Path:
    match zone:
        case "project":
            return roots.project
        case "workspace":
            return roots.workspace
    raise FileFault("it is out of reach")


class faults_told:  # noqa: N801 - a context manager; a class, because every op enters several
    """Raises system errors as `FileFault`, without the paths of this machine."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                why = "a part of it is a link, or a file where a folder should be"
            else:
                why = os.strerror(error.errno or errno.EIO)
            raise FileFault(f"`{self._place.shown}`: {why}") from error


def _open_file(folder: int, place: Place, guard: Guard) -> tuple[int, os.stat_result]:
    handle = os.open(place.parts[-1], _FILE, dir_fd=folder)
    try:
        status = os.fstat(handle)
        guard.check_file(status, place)
    except BaseException:
        os.close(handle)
        raise
    return handle, status


def _chunks(handle: int, most: int | None = None) -> Iterator[bytes]:
    left = most
    while chunk := os.read(handle, _CHUNK if left is None else min(left, _CHUNK)):
        yield chunk
        left = None if left is None else left - len(chunk)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _files_in(folder: Path, *, passed_over: Path) -> Iterator[Identity]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if os.path.join(root, name) != os.fspath(passed_over)]  # noqa: PTH118 - fast
        for name in files:
            try:
                yield _identity(os.lstat(os.path.join(root, name)))  # noqa: PTH118 - fast
            except OSError:
                continue
