"""What a model has to know about the skills of a project in order to choose one: name, purpose, input.

A skill is read again only if one of its files has changed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import ReynError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from reyn.skills.resolve import Library
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

    def __iter__(self) -> Iterator[SkillSummary]:
        """Yield every skill that can be loaded, by name."""
        for name, _, folder in sorted(self._library):
            summary = self._summary(name, folder)
            if summary is not None:
                yield summary

    def _summary(self, name: str, folder: Path) -> SkillSummary | None:
        stamp = _stamp(folder)
        known = self._known.get(name)
        if known is not None and stamp is not None and known[0] == stamp:
            return known[1]
        try:
            skill = self._load(name)
        except (ReynError, OSError):
            summary = None  # it cannot be run either; `reyn lint` says why
        else:
            if skill.is_conversation:  # it would wait for messages of its own
                self._known[name] = (stamp, None)
                return None
            inputs = tuple((one.name, one.schema) for one in skill.entry_inputs)
            summary = SkillSummary(name, skill.description, inputs, skill.search_hints)
        self._known[name] = (stamp, summary)
        return summary


def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...] | None:
    """Return what changes when a file of a skill does; `None` if there are too many files to look at."""
    found: list[tuple[str, int, int]] = []
    folders = [str(folder)]
    try:
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    state = entry.stat()
                    found.append((entry.path, state.st_mtime_ns, state.st_size))
                    if entry.is_dir():
                        folders.append(entry.path)
            if len(found) > _MAX_FILES:
                return None
    except OSError:
        return None
    return tuple(sorted(found))
