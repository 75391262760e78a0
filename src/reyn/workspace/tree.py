"""A folder becomes the files below it, in order. Links are passed over, and so is the state directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from reyn.workspace.changes import TEMPORARY
from reyn.workspace.files import FileFault, Guard, opened_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reyn.workspace.paths import Place, Roots


class Entry(NamedTuple):
    name: str
    is_folder: bool


def walk(
    place: Place, roots: Roots, enter: Callable[[Place], bool] | None = None, guard: Guard | None = None
) -> Iterator[Place]:
    """The files below a place, by name at every level. Folders that `enter` says no to are passed over."""
    guard = guard or Guard(roots)
    waiting = [(place, True)]
    while waiting:
        here, is_folder = waiting.pop()
        if not is_folder:
            yield here
        elif here is place or enter is None or enter(here):
            entries = reversed(entries_of(here, guard))
            waiting.extend((here.below(entry.name), entry.is_folder) for entry in entries)


def entries_of(place: Place, guard: Guard) -> list[Entry]:
    """The plain files and folders right below a place; none if it cannot be listed."""
    try:
        with opened_folder(place.zone, place.parts, guard) as folder, os.scandir(folder) as found:
            entries = [Entry(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found if _is_listed(entry)]
    except (OSError, FileFault):
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
