"""List the files below a folder in a fixed order. Symlinks and the state directory are skipped."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from reyn.workspace.changes import TEMPORARY
from reyn.workspace.files import FileError, FolderHandle, Guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reyn.workspace.paths import Location, Roots


class Entry(NamedTuple):
    """A regular file or a folder."""

    name: str
    is_folder: bool


def walk(
    location: Location, roots: Roots, enter: Callable[[Location], bool] | None = None, guard: Guard | None = None
) -> Iterator[Location]:
    """Yield the files below a folder depth-first, sorted by name. Skip folders for which `enter` returns false."""
    guard = guard or Guard(roots)
    pending = [(location, True)]
    while pending:
        here, is_folder = pending.pop()
        if not is_folder:
            yield here
        elif here is location or enter is None or enter(here):
            entries = reversed(entries_of(here, guard))
            pending.extend((here.below(entry.name), entry.is_folder) for entry in entries)


def entries_of(location: Location, guard: Guard) -> list[Entry]:
    """Return the regular files and folders in a folder, sorted by name; none if it cannot be listed."""
    try:
        with FolderHandle(location.zone, location.parts, guard) as folder, os.scandir(folder) as scan:
            entries = [Entry(entry.name, entry.is_dir(follow_symlinks=False)) for entry in scan if _is_listed(entry)]
    except (OSError, FileError):
        return []
    return sorted(entries)


def _is_listed(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(TEMPORARY) or not (
        entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
    ):
        return False
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        return False
    return True
