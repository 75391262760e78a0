"""Compare patterns of requests and rules with what an action will use: a file, a host, a program, a name.

A pattern that *grants* has to name the target. A pattern that *restricts* (`deny`, `ask`) covers the target however it
is spelled: by its resolved path, its canonical host or address, or the file that is executed.
"""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from reyn.documents.unicode_forms import to_normal_form
from reyn.permissions.hosts import PRIVATE, Host, host_pattern
from reyn.permissions.paths import (
    AccessMode,
    LinkedFiles,
    PathPattern,
    RestrictedPath,
    linked_identity,
    names_of,
    protected_name,
)
from reyn.workspace import Location, Roots
from reyn.workspace.paths import WORKSPACE, Zone, folded

if TYPE_CHECKING:
    from reyn.workspace.files import Identity


class AnyTarget(NamedTuple):
    """The target of an action that does not name one, such as a program with access to the network.

    It reaches every target, also private addresses: every pattern restricts it, and only the op kind itself grants it.
    """

    kind: str


def unnamed_target(capability: str, kind: str) -> AnyTarget | str:
    """Return the target of an op that names none: for `tool` it is the op itself."""
    return kind if capability == "tool" else AnyTarget(kind)


Target = Location | AnyTarget | str
"""The target of a capability: a file, or the argument of an op (a host, a command, the name of a tool)."""

SYSTEM_CALLS = "system:"
"""Begins the target of `exec` for a group of system calls, which no pattern of programs covers."""
_parsed = cache(PathPattern.parse)
_SHELL = "sh -c "
"""Begins a command with shell syntax, which may execute any program."""


def access_of(capability: str) -> AccessMode:
    return "write" if capability.endswith("write") else "read"


def is_file(capability: str) -> bool:
    return capability.startswith("file.")


def is_protected(capability: str, target: Target) -> bool:
    """Return whether only a pattern that spells it grants a target."""
    if isinstance(target, Location):
        return bool(protected_name(target.parts, access_of(capability)))
    if isinstance(target, AnyTarget):
        return capability == "web"
    return target.startswith(PRIVATE) or _is_group(capability, target)


def _is_group(capability: str, target: str) -> bool:
    return capability == "exec" and target.startswith(SYSTEM_CALLS)


def is_granted(pattern: str, capability: str, target: Target) -> bool:
    """Return whether a pattern of a request or an `allow` covers a target."""
    match target:
        case Location():
            return _parsed(pattern).covers(target, access_of(capability))
        case AnyTarget():
            return target.kind == pattern if capability == "web" else fnmatchcase(target.kind, pattern)
    match capability:
        case "web":
            host = _host(target)
            return host_pattern(pattern).grants(host) if host else fnmatchcase(target, pattern)
        case "exec" if _is_group(capability, target) != _is_group(capability, pattern):
            return False
        case "exec":
            return _grants_program(pattern, target)
        case "python":
            pattern = python_name(pattern)
        case "shell" if target.startswith(_SHELL) and not pattern.startswith(_SHELL.rstrip()):
            return False
        case "mcp" if "/" not in pattern:
            target = target.partition("/")[0]  # the name of a server stands for all of its tools
    return fnmatchcase(target, pattern)


@lru_cache(1_000)
def _host(text: str) -> Host | None:
    try:
        return Host.parse(text)
    except ValueError:
        return None


def python_name(text: str) -> str:
    """Return the one spelling of `module:function` of a skill, or of a pattern of them."""
    module, colon, function = text.rpartition(":")
    if not colon:
        return text
    return f"./{posixpath.normpath(f'/{module}').lstrip('/')}:{to_normal_form('NFKC', function)}"


def _grants_program(pattern: str, program: str) -> bool:
    """Return whether a pattern names a program: wildcards match within one name, `*` alone covers every path."""
    if pattern in ("*", program):
        return True
    path = _program_path(program)
    names = tuple(name for name in path.removeprefix(WORKSPACE).split("/") if name not in ("", "."))
    # Where a relative `..` leads depends on links, which a program can create.
    if is_program_path(pattern) != is_program_path(program) or ".." in names:
        return False
    try:
        granted = _parsed(_program_path(pattern))
    except ValueError:
        return False
    zone: Zone = "outside" if path.startswith("/") else "workspace" if path.startswith(WORKSPACE) else "project"
    return granted.covers(Location(zone, names, program), "read")


def is_program_path(program: str) -> bool:
    """Return whether a program is called by a path, in the project or in `workspace:`, and not by a name."""
    return "/" in program or program.startswith(WORKSPACE)


def _program_path(text: str) -> str:
    """Return the path of a program without links and `..` in its folders; a name without a folder as it is."""
    folder, slash, name = text.rpartition("/")
    if not text.startswith("/") or any(sign in folder for sign in "*?["):
        return text
    return os.path.realpath(folder or "/").rstrip("/") + slash + name


class Restrictions:
    """Decides which patterns of `deny` and `ask` rules cover a target, in the folders of one run."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._paths: dict[str, RestrictedPath] = {}
        self._linked = LinkedFiles((roots.bases.state,))
        self._last: tuple[Location, list[tuple[str, ...]], Identity | None] | None = None

    def covers(self, pattern: str, capability: str, target: Target) -> bool:
        """Return whether a pattern covers a target, however either is spelled."""
        match target:
            case Location():
                return self._covers_file(pattern, target)
            case AnyTarget():
                return True
        match capability:
            case "web":
                host = _host(target)
                return host is None or host_pattern(pattern).restricts(host)
            case "exec":
                return self._covers_program(pattern, target)
            case "shell":
                name, _, arguments = target.partition(" ")
                commands = (target, f"{name.rpartition('/')[2]} {arguments}".strip())
                return target.startswith(_SHELL) or any(_is_like(" ".join(one.split()), pattern) for one in commands)
            case "python":
                names = (target, target.removeprefix("./"))
                return any(_is_like(name, one) for name in names for one in (pattern, python_name(pattern)))
            case "mcp" if "/" not in pattern:
                target = target.partition("/")[0]
        return _is_like(target, pattern)

    def is_evaded_by(self, pattern: str, link: str) -> bool:
        """Return whether a pattern covers a path through a symlink, and not where it leads."""
        return self.path(pattern).is_evaded_by(link)

    def path(self, pattern: str) -> RestrictedPath:
        """Return the files that a pattern stands for."""
        restricted = self._paths.get(pattern)
        if restricted is None:
            restricted = self._paths[pattern] = RestrictedPath(_parsed(pattern), self._roots)
        return restricted

    def _covers_file(self, pattern: str, location: Location) -> bool:
        restricted = self.path(pattern)
        last = self._last
        if last is None or last[0] is not location:  # the rules are tried one after another
            path = self._roots.path_of(location)
            last = self._last = (location, [names_of(one) for one in (path, *location.written)], linked_identity(path))
        _, paths, identity = last
        if any(map(restricted.covers, paths)):
            return True
        others = self._linked.names(identity, restricted.top) if identity and restricted.is_compared else ()
        return any(map(restricted.covers, others))

    def _covers_program(self, pattern: str, program: str) -> bool:
        files = self._files(program)
        paths = {*files, *map(os.path.realpath, files)}
        names = {program, *paths, *(name.rpartition("/")[2] for name in (program, *paths))}
        if any(_is_like(name, pattern) for name in names):
            return True
        with suppress(ValueError):  # a pattern such as `../tool` is only compared by its text and its file
            if is_program_path(pattern) and any(self.path(pattern).covers(names_of(path)) for path in paths):
                return True
        return not _identities(files).isdisjoint(_identities(self._files(pattern)))

    def _files(self, program: str) -> list[str]:
        """Return the files that may be executed if a program is called so."""
        from reyn.sandbox.process import search_path

        bases = self._roots.bases
        folders = (bases.project, bases.workspace, "/") if is_program_path(program) else search_path().split(":")
        return [os.path.join(folder, program.removeprefix(WORKSPACE)) for folder in folders]  # noqa: PTH118 - text


def _identities(paths: list[str]) -> set[Identity]:
    found = set()
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - text in
        except (OSError, ValueError):
            continue
        found.add((status.st_dev, status.st_ino))
    return found


def _is_like(text: str, pattern: str) -> bool:
    """Return whether a text matches a pattern, in any case: names may be files of a file system that folds it."""
    return fnmatchcase(folded(text), folded(pattern)) or folded(text) == folded(pattern)
