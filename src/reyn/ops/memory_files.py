"""Memories in files: Markdown with front matter under `reyn/memory/`, shared or of one agent.

`reyn/memory/NAME.md` is shared by all agents, `reyn/memory/AGENT/NAME.md` belongs to one. A file that cannot be read is
listed with the reason and stays as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml

from reyn.documents import DocumentError, parse_front_matter, read_text
from reyn.documents.document import FolderTimes
from reyn.folders import FOLDER, OpenFolder, open_beneath
from reyn.permissions.owners import SHARED, memory_scope
from reyn.ranking import Ranking

MEMORY_FOLDER = "reyn/memory"
SLUG = r"^[a-z0-9][a-z0-9_-]{0,63}$"
"""The names of memories."""
MAX_MEMORY_DESCRIPTION = 200
MAX_MEMORIES = 2_000
"""Memories of one scope that are looked at."""
_SLUG = re.compile(SLUG)
_MAX_FOLDERS = 1_000
_Stamp = tuple[str, int, int, int]


class _Listing(NamedTuple):
    """The memories in a folder. A file is read again if it has changed."""

    folder: FolderTimes
    stamps: list[_Stamp]
    memories: tuple[MemoryFile, ...]
    known: dict[_Stamp, MemoryFile]


_listings: dict[str, _Listing] = {}
"""The folders that this process has listed."""


class MemoryFile(msgspec.Struct, frozen=True):
    """One memory.

    Attributes:
        name: Its name, unique in its scope.
        scope: `shared`, or the agent that it belongs to.
        description: What it is about, in one line.
        text: What is remembered.
        source: The run and call that wrote it; empty if a person did.
        error: Why the file cannot be read; empty if it can.
    """

    name: str
    scope: str
    description: str = ""
    text: str = ""
    source: str = ""
    error: str = ""

    @property
    def path(self) -> str:
        """The file, relative to the project."""
        return memory_path(self.name, self.scope)


def memory_path(name: str, scope: str) -> str:
    """Return the file of a memory, relative to the project."""
    return f"{MEMORY_FOLDER}/{name}.md" if scope == SHARED else f"{MEMORY_FOLDER}/{scope}/{name}.md"


def memory_scope_of(path: str, name: str) -> str | None:
    """Return the scope of the memory in a file, relative to the project; `None` if it is not the memory `name`."""
    *_, file = parts = tuple(path.split("/"))
    return memory_scope(parts) if file == f"{name}.md" else None


def format_memory(memory: MemoryFile) -> str:
    """Return the content of a memory's file."""
    front = {"name": memory.name, "description": memory.description}
    if memory.source:
        front["source"] = memory.source
    head = yaml.safe_dump(front, allow_unicode=True, sort_keys=False, width=10_000)
    return f"---\n{head}---\n{memory.text.strip()}\n"


def read_memory(root: Path, name: str, scope: str) -> MemoryFile | None:
    """Return a memory; `None` if there is none of this name."""
    if not _SLUG.fullmatch(name):
        return None
    path = root / memory_path(name, scope)
    if not path.is_file() and not path.is_symlink():
        return None
    with OpenFolder("", os.open(root, FOLDER)) as project:
        return _read(project, name, scope)


def read_memories(root: Path, scopes: Sequence[str], max_age: float = 0) -> tuple[MemoryFile, ...]:
    """Return the memories of some scopes, the latest first in each. While no file changes, it is the same value.

    Args:
        root: The project.
        scopes: The scopes.
        max_age: The seconds for which files that stay in place count as unchanged.
    """
    found = [_memories_of(root, scope, max_age) for scope in scopes]
    present = [memories for memories in found if memories]
    return present[0] if len(present) == 1 else tuple(chain.from_iterable(present))


def _memories_of(root: Path, scope: str, max_age: float) -> tuple[MemoryFile, ...]:
    folder = f"{root}/{MEMORY_FOLDER}" if scope == SHARED else f"{root}/{MEMORY_FOLDER}/{scope}"
    before = _listings.get(folder)
    if before is not None and before.folder.is_current(max_age):
        return before.memories
    times = FolderTimes.of([folder])
    stamps = _stamps(root, folder)
    if before is not None and before.stamps == stamps:
        _listings[folder] = before._replace(folder=times)
        return before.memories
    known = before.known if before is not None else {}
    named = [(stamp[0].removesuffix(".md"), stamp) for stamp in stamps]
    latest = sorted((-_modified(f"{folder}/{stamp[0]}"), name, stamp) for name, stamp in named if _SLUG.fullmatch(name))
    with OpenFolder("", os.open(root, FOLDER)) as project:
        found = {stamp: known.get(stamp) or _read(project, name, scope) for _, name, stamp in latest[:MAX_MEMORIES]}
    if len(_listings) >= _MAX_FOLDERS:
        _listings.clear()
    _listings[folder] = _Listing(times, stamps, tuple(found.values()), found)
    return _listings[folder].memories


def _modified(path: str) -> int:
    try:
        return Path(path).lstat().st_mtime_ns
    except OSError:  # it was removed meanwhile
        return 0


def _stamps(root: Path, folder: str) -> list[_Stamp]:
    """Return what changes when a Markdown file in a folder does; nothing if the folder is, or is below, a link."""
    with (
        suppress(OSError),
        OpenFolder("", os.open(root, FOLDER)) as project,
        OpenFolder(folder, open_beneath(project, folder[len(str(root)) + 1 :])) as handle,
        os.scandir(handle) as entries,
    ):
        return [_stamp(entry) for entry in entries if entry.name.endswith(".md")]
    return []


def _stamp(entry: os.DirEntry[str]) -> _Stamp:
    state = entry.stat(follow_symlinks=False)
    return entry.name, state.st_ctime_ns, state.st_size, state.st_ino


def _read(project: int, name: str, scope: str) -> MemoryFile:
    """Read a memory beneath the open folder of the project. No link is followed: the gate decides about this path."""
    label = memory_path(name, scope)
    try:
        document = parse_front_matter(read_text(Path(label), label, beneath=project), label)
    except DocumentError as error:
        return MemoryFile(name, scope, error=error.finding.message)
    front = document.value if isinstance(document.value, dict) else {}
    description, source = front.get("description", ""), front.get("source", "")
    if not isinstance(description, str) or not isinstance(source, str):
        return MemoryFile(name, scope, text=document.body.strip(), error="`description` and `source` must be text")
    first = document.body.strip().partition("\n")[0]
    return MemoryFile(name, scope, (description or first)[:MAX_MEMORY_DESCRIPTION], document.body.strip(), source)


MEMORY_RANKING: Ranking[MemoryFile] = Ranking(lambda one: f"{one.name.replace('-', ' ')} {one.description} {one.text}")
"""Ranks the memories of a project."""


def search_memories(query: str, memories: Sequence[MemoryFile], limit: int) -> list[tuple[MemoryFile, float]]:
    """Return the memories that match a query best, each with its score."""
    return [(memories[number], score) for number, score in MEMORY_RANKING.best_matches(query, memories, limit)]
