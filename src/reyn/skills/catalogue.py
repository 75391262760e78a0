"""What a model has to know about the skills of a project in order to choose one: name, purpose, input.

A skill is read again only if one of its files, or a shared one, has changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.documents.document import FolderTimes
from reyn.errors import ReynError
from reyn.skills.resolve import STANDARD, STDLIB, Library

if TYPE_CHECKING:
    from reyn.skills.values import Skill

_MAX_FILES = 500
"""A skill with more files is read every time."""


class SkillSummary(msgspec.Struct, frozen=True):
    """A skill as an entry of a list.

    Attributes:
        name: The name by which it is run.
        description: What it is for.
        inputs: Name and schema of each artifact type that it accepts.
        hints: Words by which it is found.
    """

    name: str
    description: str
    inputs: tuple[tuple[str, Any], ...]
    hints: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What a search looks at."""
        return f"{self.name.replace('_', ' ').replace('-', ' ')} {self.description} {' '.join(self.hints)}"


class Catalogue:
    """The skills of a library that can be loaded."""

    def __init__(self, library: Library, load: Callable[[str], Skill]) -> None:
        """Open a catalogue.

        Args:
            library: Finds the skills.
            load: Loads one by its name.
        """
        self._library = library
        self._load = load
        self._known: dict[str, tuple[object, SkillSummary | None]] = {}
        self._shared: object = None
        self._listed: tuple[FolderTimes, tuple[SkillSummary, ...]] | None = None

    def __iter__(self) -> Iterator[SkillSummary]:
        """Yield every skill that can be loaded, by name. One that has not changed is the same object as before."""
        return iter(self.listed())

    def listed(self, max_age: float = 0) -> tuple[SkillSummary, ...]:
        """Return every skill that can be loaded, by name. While none changes, it is the same value.

        Args:
            max_age: The seconds for which files that stay in place, and files in a skill's folders, count as unchanged.
        """
        if self._listed is not None and self._listed[0].is_current(max_age):
            return self._listed[1]
        folders = sorted(self._library.folders())
        shared_folders = [str(folder) for folder in self._library.shared if folder != STDLIB]
        # The standard library does not change while the process runs.
        own = [folder for _, shelf, folder in folders if shelf != STANDARD]
        times = FolderTimes.of([*self._library.shelves, *shared_folders, *own])
        shared = [_stamp(folder) for folder in shared_folders]
        if shared != self._shared:
            self._shared = shared
            self._known.clear()
        found = (
            self._summary(name, (folder,) if shelf == STANDARD else _stamp(folder)) for name, shelf, folder in folders
        )
        listed = tuple(summary for summary in found if summary is not None)
        if self._listed is not None and self._listed[1] == listed:
            listed = self._listed[1]
        self._listed = (times, listed)
        return listed

    def _summary(self, name: str, stamp: object) -> SkillSummary | None:
        known = self._known.get(name)
        if known is not None and stamp is not None and known[0] == stamp:
            return known[1]
        summary = None
        with suppress(ReynError, OSError):  # it cannot be run either; `reyn lint` says why
            skill = self._load(name)
            if not skill.opens_conversation:  # it would wait for messages of its own
                inputs = tuple((artifact_type.name, artifact_type.schema) for artifact_type in skill.entry_inputs)
                summary = SkillSummary(name, skill.description, inputs, skill.search_hints)
        self._known[name] = (stamp, summary)
        return summary


def _stamp(folder: str) -> tuple[object, ...] | None:
    """Return what changes when a file in a folder does; `None` if there are too many files to look at."""
    hints: list[object] = []
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_symlink():  # it may lead out of the skill, where a change is not looked for
                        return None
                    if entry.is_dir():
                        folders.append(entry.path)
                    else:  # whatever changes a file changes its ctime
                        state = entry.stat()
                        hints.append((entry.path, state.st_ctime_ns, state.st_size, state.st_ino))
        except FileNotFoundError:  # a folder that does not exist, or a file that disappeared meanwhile
            hints.append(None)
        except OSError:
            return None
        if len(hints) > _MAX_FILES:
            return None
    return tuple(hints)
