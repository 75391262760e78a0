"""Find the files that a program changed in folders of a workspace: look before, look again afterwards, compare.

Contents before are read ahead, because a program changes files without asking. Large files are compared by size and
time, and reported without their contents.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

from reyn.workspace.files import TEMPORARY, FileChange, FileError, FileImage, FolderHandle, Guard, is_utf8, read
from reyn.workspace.paths import Location, Roots, may_have_entries

MAX_OBSERVED = 50_000
"""The number of files and folders that are looked at."""
MAX_CHARS = 5_000_000
"""The size of all their paths."""


class Observed(NamedTuple):
    """What a program changed.

    Attributes:
        changes: The changes of files, deletions first.
        unrecorded: Files that changed and whose contents are not known: too large, too many, not regular files, or
            folders that are too deep to look into.
    """

    changes: tuple[FileChange, ...]
    unrecorded: tuple[str, ...]


class _TooManyFiles(Exception):
    """The folders hold more files than can be looked at."""


class _Entry(NamedTuple):
    location: Location
    stamp: tuple[int, ...]
    is_regular: bool


class Observation:
    """The files below some folders of a workspace before a program runs.

    Args:
        locations: Folders or files of the workspace.
        roots: The folders of the run.
        file_bytes: The maximum size of a file whose content is recorded.
        total_bytes: The maximum size of all contents that are read ahead, and of those that are read afterwards.
    """

    def __init__(self, locations: Iterable[Location], roots: Roots, *, file_bytes: int, total_bytes: int) -> None:
        self._locations = tuple(locations)
        self._roots = roots
        self._file_bytes, self._total_bytes = file_bytes, total_bytes
        self._folders: set[str] = set()
        self._before = self._entries(self._folders)
        self._images: dict[str, FileImage] = {}
        for path, entry in (self._before or {}).items():
            total_bytes -= entry.stamp[1] if entry.is_regular else 0
            if total_bytes < 0:
                break
            if (image := self._image(entry)) is not None:
                self._images[path] = image

    def changes(self) -> Observed | None:
        """Return what has changed since; `None` if there are more files than can be looked at."""
        after = self._entries(set())
        if self._before is None or after is None:
            return None
        changed: list[FileChange] = []
        unrecorded: list[str] = []
        left = self._total_bytes
        for path in sorted(self._before.keys() | after.keys(), key=lambda path: (path in after, path)):
            old, new = self._before.get(path), after.get(path)
            if old is not None and new is not None and old.stamp == new.stamp:
                continue
            before = self._images.get(path)
            image = self._image(new) if new is not None and new.stamp[1] <= left else None
            left -= 0 if image is None else len(image.content)
            if (old is None) != (before is None) or (new is None) != (image is None):
                unrecorded.append(path)
                continue
            location = (new or self._before[path]).location
            made = () if old is not None else self._made(location)
            if change := FileChange.of(location, before, None if image is None else image.content, made):
                changed.append(change)
        return Observed(tuple(changed), tuple(unrecorded))

    def _made(self, location: Location) -> tuple[str, ...]:
        """Return the folders above a new file that did not exist before and no other file needs, outermost first."""
        above = (location.upper(depth).display_path for depth in range(1, len(location.parts)))
        made = tuple(path for path in above if path not in self._folders)
        self._folders.update(made)
        return made

    def _image(self, entry: _Entry) -> FileImage | None:
        if not entry.is_regular or entry.stamp[1] > self._file_bytes:
            return None
        try:
            return read(entry.location, self._roots, self._file_bytes)
        except FileError:
            return None

    def _entries(self, folders: set[str]) -> dict[str, _Entry] | None:
        try:
            return {entry.location.display_path: entry for entry in self._scan(folders)}
        except _TooManyFiles:
            return None

    def _scan(self, folders: set[str]) -> Iterator[_Entry]:
        """Yield everything below the locations that is not a folder, and collect the folders."""
        waiting: list[Location] = []
        seen, chars, guard = 0, 0, Guard(self._roots)
        for location in self._locations:
            folders.update(location.upper(depth).display_path for depth in range(len(location.parts) + 1))
            try:
                if not location.parts or stat.S_ISDIR((status := _status(location, guard)).st_mode):
                    waiting.append(location)
                else:
                    yield _entry(location, status)
            except (OSError, FileError):
                continue
        while waiting:
            above = waiting.pop()
            try:
                with FolderHandle(above.zone, above.parts, guard) as folder, os.scandir(folder) as scan:
                    entries = sorted(((one.name, one.stat(follow_symlinks=False)) for one in scan), key=itemgetter(0))
            except (OSError, FileError):
                continue
            folders.add(above.display_path)
            seen += len(entries)
            chars += sum(len(above.display_path) + len(name) for name, _ in entries)
            if seen > MAX_OBSERVED or chars > MAX_CHARS:
                raise _TooManyFiles
            for name, status in entries:
                if is_utf8(name) and not name.startswith(TEMPORARY):
                    location = above.below(name)
                    if stat.S_ISDIR(status.st_mode) and may_have_entries(location):
                        waiting.append(location)
                    else:
                        yield _entry(location, status)


def _status(location: Location, guard: Guard) -> os.stat_result:
    with FolderHandle(location.zone, location.parts[:-1], guard) as above:
        return os.stat(location.parts[-1], dir_fd=above, follow_symlinks=False)


def _entry(location: Location, status: os.stat_result) -> _Entry:
    stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode)
    return _Entry(location, stamp, stat.S_ISREG(status.st_mode))
