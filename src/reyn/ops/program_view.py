"""Compute which files a program sees: the verdict of the gate on every path below the folders that it was granted.

A path that the gate denies, or would ask a person about, is not shown. An approval covers the paths that the call
names and what is below them, nothing else of the same rule. The sandbox turns the result into mounts or Landlock rules.
Files that appear in a wholly shown folder after the program has started are shown.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from reyn.ops.budget import OpFailed
from reyn.ops.op import Env, approval_of
from reyn.permissions import refusal
from reyn.workspace import Location
from reyn.workspace.files import FileError, Guard, is_utf8

if TYPE_CHECKING:
    from reyn.sandbox import PartialFolder

MAX_ENTRIES = 50_000
"""The number of files and folders below the paths of a program, each of which the gate decides about."""
MAX_COMPARISONS = 5_000_000
"""The number of comparisons of these files with patterns of rules: with more than 100 patterns, fewer files fit."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ProgramView(NamedTuple):
    """The files that a program sees; the fields are those of `Access`."""

    read: tuple[str, ...]
    folders: tuple[PartialFolder, ...]
    write: tuple[str, ...]
    read_only: tuple[str, ...]
    hidden: tuple[str, ...]


def program_view(read: list[Location], write: list[Location], env: Env) -> ProgramView:
    """Return what a program sees of the paths that the gate has allowed, or a person has approved.

    Raises:
        OpFailed: There are too many files below the paths, or a path is out of reach.
    """
    walk = _Walk(env, read, write)
    whole: list[str] = []
    folders: dict[str, PartialFolder] = {}
    for location in (*read, *write):
        walk.check_root(location)
    for location in read:
        found = walk.visible(location)
        whole += () if found else (env.roots.path_of(location),)
        folders |= {folder.path: folder for folder in found}
    read_only: list[str] = []
    hidden: list[str] = []
    for location in write:
        for path, is_readable in walk.excluded_from_writing(location):
            (read_only if is_readable else hidden).append(path)
    writable = tuple(env.roots.path_of(location) for location in write)
    return ProgramView(tuple(whole), tuple(folders.values()), writable, tuple(read_only), tuple(hidden))


class _SeenEntry(NamedTuple):
    name: str
    location: Location
    is_folder: bool
    is_visible: bool


class _Walk:
    """Looks at every entry below the paths of one program."""

    def __init__(self, env: Env, read: list[Location], write: list[Location]) -> None:
        self._env = env
        asked = [(one, env.gate.show(one)) for one in read] + [(one, env.gate.write(one)) for one in write]
        self._approved = [(env.roots.path_of(one), rule) for one, verdict in asked if (rule := approval_of(verdict))]
        """The paths that a person has approved, each with the rules that asked."""
        self._guard = Guard(env.roots)
        patterns = sum(len(rule.patterns) for rule in env.gate.policy.rules if rule.effect != "allow")
        self._most = self._left = min(MAX_ENTRIES, MAX_COMPARISONS // max(patterns, 1))

    def _approval(self, location: Location) -> str:
        """Return the rules for which a person has approved a path: for itself, or for one above it."""
        path = f"{self._env.roots.path_of(location)}/"
        return " and ".join(rule for named, rule in self._approved if path.startswith(f"{named.rstrip('/')}/"))

    def check_root(self, root: Location) -> None:
        """Refuse a path itself if it is no folder or plain file, or another name of a file that is out of reach."""
        try:
            self._check(root, os.lstat(self._env.roots.path_of(root)))
        except (OSError, FileError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise OpFailed(f"`{root.display_path}` cannot be shown to a program: {reason}") from error

    def visible(self, root: Location) -> list[PartialFolder]:
        """Return the folders that are seen in part, upper ones first; none if the root is seen whole."""
        from reyn.sandbox import PartialFolder

        contents = dict(self._below(root, lambda entry: entry.is_folder and entry.is_visible))
        partial: dict[str, PartialFolder] = {}
        for path, entries in reversed(contents.items()):  # what is in a folder comes after it
            hidden = tuple(entry.name for entry in entries if not entry.is_visible)
            inner = [entry.name for entry in entries if f"{path}/{entry.name}" in partial]
            if hidden or inner:
                names = tuple(entry.name for entry in entries if entry.name not in (*hidden, *inner))
                partial[path] = PartialFolder(path, names, hidden)
        return list(reversed(partial.values()))

    def excluded_from_writing(self, root: Location) -> Iterator[tuple[str, bool]]:
        """Yield the existing paths below a writable folder that a rule excludes, and whether they can be read.

        Names that only the defaults protect belong to the run: a program may have created them.
        """
        contents = self._below(root, lambda entry: entry.is_folder and entry.is_visible and self._may_write(entry))
        for path, entries in contents:
            for entry in entries:
                if not entry.is_visible or not self._may_write(entry):
                    yield f"{path}/{entry.name}", entry.is_visible

    def _may_write(self, entry: _SeenEntry) -> bool:
        refused = refusal(self._env.gate.write(entry.location), approved=self._approval(entry.location))
        return refused is None or refused.rule.startswith("default: ")

    def _below(self, root: Location, enter: Callable[[_SeenEntry], bool]) -> Iterator[tuple[str, list[_SeenEntry]]]:
        """Yield every folder from a root on, with its entries; nothing if the root is a file."""
        waiting = [root]
        while waiting:
            folder = waiting.pop()
            path = self._env.roots.path_of(folder)
            try:
                entries = self._entries(folder, path)
            except NotADirectoryError:
                return
            yield path.rstrip("/"), entries
            waiting += [entry.location for entry in entries if enter(entry)]

    def _entries(self, folder: Location, path: str) -> list[_SeenEntry]:
        handle = os.open(path, _FOLDER)
        try:
            with os.scandir(handle) as scan:
                found = [self._entry(folder, path, entry) for entry in scan]
        finally:
            os.close(handle)
        self._left -= len(found)
        if self._left < 0:
            raise OpFailed(f"the paths of the program have more than {self._most} files; name smaller folders")
        return found

    def _entry(self, folder: Location, path: str, entry: os.DirEntry[str]) -> _SeenEntry:
        location = self._location(folder, f"{path.rstrip('/')}/{entry.name}", entry.name)
        is_folder = entry.is_dir(follow_symlinks=False)
        return _SeenEntry(entry.name, location, is_folder, self._is_visible(location, entry))

    def _location(self, above: Location, path: str, name: str) -> Location:
        """Return the location of an entry. The project may be in a folder outside of it that was granted."""
        if above.zone != "outside":
            return above.below(name)
        if path == self._env.roots.bases.project:
            return Location.at("project", ())
        written = tuple(f"{one}/{name}" for one in above.written)
        return Location("outside", (*above.parts, name), f"{above.display_path.rstrip('/')}/{name}", written)

    def _is_visible(self, location: Location, entry: os.DirEntry[str]) -> bool:
        """Ask the gate about an entry by its own name.

        A link is shown as it is, and leads to what is shown, unless a rule restricts paths through it.
        """
        if not is_utf8(entry.name) or refusal(self._env.gate.show(location), approved=self._approval(location)):
            return False
        if entry.is_symlink():
            return not self._env.gate.is_evaded_by(self._env.roots.path_of(location))
        try:
            self._check(location, entry.stat(follow_symlinks=False))
        except (OSError, FileError):
            return False
        return True

    def _check(self, location: Location, status: os.stat_result) -> None:
        if not stat.S_ISDIR(status.st_mode):
            self._guard.check_file(status, location)  # also denies pipes and sockets
            return
        handle = os.open(self._env.roots.path_of(location), _FOLDER)
        try:
            self._guard.check_folder(handle)
        finally:
            os.close(handle)
