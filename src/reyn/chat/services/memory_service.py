"""The memories of a project, for people: list, read, search, change and remove them.

Agents change memories with ops, which pass the permission gate and are recorded. A person at a terminal owns the files.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from reyn.documents import DocumentError, read_text
from reyn.errors import InputInvalid, MemoryNotFound
from reyn.folders import inside, names_in, remove_file, replace_beneath
from reyn.ops.memory_files import (
    MEMORY_FOLDER,
    SLUG,
    MemoryFile,
    format_memory,
    memory_path,
    read_memories,
    read_memory,
    search_memories,
)
from reyn.permissions.owners import SHARED
from reyn.skills.names import is_valid_name

if TYPE_CHECKING:
    from pathlib import Path


class MemoryService:
    """The memories of one project. A memory is named `NAME` if it is shared, `AGENT/NAME` otherwise."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def scopes(self) -> list[str]:
        """Return `shared` and the agents that have memories."""
        names = names_in(self._root, MEMORY_FOLDER)
        return [
            SHARED,
            *(name for name in names if is_valid_name(name) and (self._root / MEMORY_FOLDER / name).is_dir()),
        ]

    def all(self, scope: str | None = None) -> list[MemoryFile]:
        """Return the memories of a scope, or of all."""
        return list(read_memories(self._root, [scope] if scope else self.scopes()))

    def find(self, name: str) -> MemoryFile:
        """Return a memory.

        Raises:
            MemoryNotFound: There is none of this name.
        """
        scope, slug = split_name(name)
        memory = read_memory(self._root, slug, scope)
        if memory is None:
            raise MemoryNotFound(f"no memory `{name}`: no file `{memory_path(slug, scope)}`")
        return memory

    def search(self, query: str, limit: int = 10) -> list[tuple[MemoryFile, float]]:
        """Return the memories that match a query best, each with its score."""
        return search_memories(query, [one for one in self.all() if not one.error], limit)

    def path(self, name: str) -> str:
        """Return the file of a memory, relative to the project, whether it exists or not.

        Raises:
            InputInvalid: A link leads out of the project.
        """
        path = memory_path(*reversed(split_name(name)))
        if inside(self._root, self._root / path) is None:
            raise InputInvalid(
                f"`{path}` is a link, or below a link, that leads out of the project",
                hint="Remove the link yourself if you do not need it.",
            )
        return path

    def source(self, name: str) -> str:
        """Return the content of a memory's file, front matter included; empty if there is none.

        Raises:
            InputInvalid: What is there is no text file, or a link leads out of the project.
        """
        label = self.path(name)
        if not os.path.lexists(self._root / label):
            return ""
        try:
            return read_text(self._root / label, label, inside=self._root)
        except DocumentError as error:
            message = f"`{label}` cannot be edited: {error.finding.message}"
            raise InputInvalid(message, hint="Fix or remove the file first.") from error

    def template(self, name: str) -> str:
        """Return the content that a new memory starts with."""
        scope, slug = split_name(name)
        return format_memory(MemoryFile(slug, scope, "What this is about", "What to remember."))

    def remove(self, name: str) -> MemoryFile:
        """Remove a memory and return what it was.

        Raises:
            MemoryNotFound: There is none of this name.
        """
        memory = self.find(name)
        try:
            remove_file(self._root, self.path(name))
        except OSError as error:
            raise _unwritable(memory.path, error) from error
        return memory

    def write(self, name: str, content: str) -> MemoryFile:
        """Write the file of a memory, and return what it is then.

        Raises:
            InputInvalid: It cannot be written, or a folder on the way is a link.
        """
        path = self.path(name)
        try:
            replace_beneath(self._root, path, content.encode())
        except OSError as error:
            raise _unwritable(path, error) from error
        return self.find(name)


def _unwritable(path: str, error: OSError) -> InputInvalid:
    hint = "No folder on the way may be a link. Remove the link yourself if you do not need it."
    return InputInvalid(f"`{path}` cannot be changed: {error.strerror}", hint=hint)


def split_name(name: str) -> tuple[str, str]:
    """Return the scope and the name of a memory.

    Raises:
        InputInvalid: No memory can have this name.
    """
    scope, separator, slug = name.rpartition("/")
    if not re.fullmatch(SLUG, slug) or (separator and not is_valid_name(scope)):
        raise InputInvalid(
            f"`{name}` cannot be the name of a memory",
            hint="Use lower case letters, digits, `_` and `-`: `tea`, or `designer/tea` for a memory of one agent.",
        )
    return (scope or SHARED), slug
