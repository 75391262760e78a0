"""Resolve paths: follow symlinks and determine the zone that a path lies in.

A `Location` grants nothing (`reyn.permissions` does) and need not exist. `reyn.workspace.files` opens it without
following symlinks again, so it cannot change its meaning in between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from reyn.documents.unicode_forms import to_normal_form

WORKSPACE = "workspace:"
RECORDED_FOLDER = ".full"
RECORDED = f"{WORKSPACE}{RECORDED_FOLDER}/"
"""Path prefix under which a run reads what it has recorded. The folder is virtual, and read-only."""

_MAX_PATH_BYTES = 4_000
_MAX_NAME_BYTES = 255
MAX_DEPTH = 100
"""The number of names in a path. Every op opens and checks each of them."""
_MAX_LOCATED = 1_000
_MAX_LINKS = 40
"""The symlinks in a path that the kernel follows."""
_MAX_SHORT = 100
"""A path of so many ASCII characters is within every limit."""

_SPECIAL_NAMES = frozenset(("", ".", ".."))

Zone = Literal["project", "workspace", "recorded", "state", "outside"]
Parts = tuple[str, ...]


class PathInvalid(ValueError):
    """A string that cannot be a path. The message is shown to the model."""


class Roots(msgspec.Struct, frozen=True, dict=True):
    """The folders that define the zones: the project, its state directory, and the run's workspace.

    Ops use them as text: hashing and converting a `Path` costs more than the rest of finding a file.
    """

    project: Path
    state: Path
    workspace: Path
    hidden: tuple[Path, ...] = ()
    """Further folders to treat like the state directory, inside or outside the project."""
    origin: Roots | None = None
    """The folders of the real project, if this one is temporary. No sandbox shows either."""

    @cached_property
    def project_text(self) -> str:
        return os.fspath(self.project)

    @cached_property
    def workspace_base(self) -> tuple[str, str]:
        """The project, and the path of the workspace in it, where nothing may be a link."""
        above = self.project if self.workspace.is_relative_to(self.project) else self.workspace.parent
        return os.fspath(above), self.workspace.relative_to(above).as_posix()

    @cached_property
    def hidden_texts(self) -> tuple[str, ...]:
        """The state directory and the other hidden folders."""
        return tuple(os.fspath(path) for path in (self.state, *self.hidden))

    @cached_property
    def located(self) -> dict[tuple[str, str, Parts], Location]:
        """Recent locations, by the path and where its symlinks led: an op finds its file more than once."""
        return {}

    @cached_property
    def bases(self) -> _Bases:
        """The folders with symlinks resolved, once."""
        project, state = (os.path.realpath(path) for path in (self.project, self.state))
        above, inner = self.workspace_base
        workspace = f"{os.path.realpath(above).rstrip('/')}/{inner}"
        hidden = (state, *(os.path.realpath(path) for path in self.hidden))
        return _Bases(project, state, workspace, tuple(folded(path) for path in hidden))

    def path_of(self, location: Location) -> str:
        """Return the absolute path of a location; that of recorded content does not exist."""
        workspace = self.bases.workspace
        bases = {"project": self.bases.project, "workspace": workspace, "recorded": f"{workspace}/{RECORDED_FOLDER}"}
        base = bases.get(location.zone, "")
        return "/".join((base.rstrip("/"), *location.parts)) or "/"


class Location(msgspec.Struct, frozen=True):
    """A resolved path.

    Attributes:
        zone: Where the path leads.
        parts: The components below the zone's root folder; from `/` in the zone `outside`.
        display_path: The path to show and record. It resolves to this location again. In the zones `state` and
            `outside` it is the original string, so that it does not reveal where symlinks lead.
        written: If there are symlinks in it, the absolute path before each of them was followed. A rule that restricts
            one of these paths restricts the location.
    """

    zone: Zone
    parts: Parts
    display_path: str
    written: Parts = ()

    @classmethod
    def at(cls, zone: Literal["project", "workspace", "recorded"], parts: Parts) -> Location:
        """Return the location of `parts` in a zone."""
        path = "/".join(parts) or "."
        if zone == "project":
            return cls(zone, parts, f"./{path}" if path.startswith(WORKSPACE) else path)
        return cls(zone, parts, (RECORDED if zone == "recorded" else WORKSPACE) + path)

    def below(self, *names: str) -> Location:
        """Return the location of a path below this one."""
        below = self._with_parts(self.parts + names)
        if not self.written:
            return below
        return msgspec.structs.replace(below, written=tuple("/".join((path, *names)) for path in self.written))

    def above(self) -> Location:
        """Return the parent folder."""
        return self._with_parts(self.parts[:-1])

    def upper(self, depth: int) -> Location:
        """Return the location of the first `depth` components."""
        return self._with_parts(self.parts[:depth])

    def _with_parts(self, parts: Parts) -> Location:
        assert self.zone != "state"
        assert self.zone != "outside"
        return Location.at(self.zone, parts)


class _Bases(NamedTuple):
    """The roots with symlinks resolved."""

    project: str
    state: str
    workspace: str
    hidden_normalized: tuple[str, ...]


def locate(text: str, roots: Roots) -> Location:
    """Resolve a path: relative to the project, absolute, or `workspace:<path>`. `~` is not expanded.

    Raises:
        PathInvalid: The string cannot be a path.
    """
    _check(text)
    bases = roots.bases
    is_own = text.startswith(WORKSPACE)
    if is_own:
        inside = text.removeprefix(WORKSPACE).lstrip("/")
        target, written = _real(bases.workspace, inside)
    else:
        target, written = _real(bases.project, text)
    known = roots.located
    location = known.get((text, target, written))
    if location is None:
        location = (_in_workspace if is_own else _in_project)(target, bases, text)
        if len(location.parts) > MAX_DEPTH:
            raise PathInvalid(f"the path leads more than {MAX_DEPTH} folders deep")
        if written:
            location = msgspec.structs.replace(location, written=written)
        if len(known) >= _MAX_LOCATED:
            known.clear()
        known[text, target, written] = location
    return location


def _check(text: str) -> None:
    if not text:
        raise PathInvalid("the path is empty")
    if "\0" in text:
        raise PathInvalid("the path holds a NUL character")
    if len(text) <= _MAX_SHORT and text.isascii():
        return
    if text.count("/") > MAX_DEPTH:
        raise PathInvalid(f"the path has more than {MAX_DEPTH} folders")
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise PathInvalid("the path is not valid Unicode") from None
    if len(raw) > _MAX_PATH_BYTES:
        raise PathInvalid(f"the path is longer than {_MAX_PATH_BYTES} bytes")
    if len(raw) > _MAX_NAME_BYTES and any(len(name) > _MAX_NAME_BYTES for name in raw.split(b"/")):
        raise PathInvalid(f"a name in the path is longer than {_MAX_NAME_BYTES} bytes")


def _in_workspace(target: str, bases: _Bases, text: str) -> Location:
    inside = _relative(target, bases.workspace)
    if inside is None:
        outside = _in_project(target, bases, text)
        # A `workspace:` path that leaves the workspace by a symlink is denied, even if it leads into the project.
        return outside if outside.zone == "state" else Location("outside", _parts(target), text)
    if inside[:1] == (RECORDED_FOLDER,):
        return Location.at("recorded", inside[1:])
    return Location.at("workspace", inside)


def _in_project(target: str, bases: _Bases, text: str) -> Location:
    normalized = folded(target)
    for base in bases.hidden_normalized:
        hidden = _relative(normalized, base)
        if hidden is not None:
            return Location("state", hidden, text)
    inside = _relative(target, bases.project)
    return Location("outside", _parts(target), text) if inside is None else Location.at("project", inside)


def _real(base: str, text: str) -> tuple[str, Parts]:
    """Resolve a path relative to a folder, following all symlinks. Return it and the paths that were written.

    `realpath` calls `lstat` for every component from `/`, which dominates the cost of an op. Use it only for paths with
    symlinks or special components.
    """
    path = base.rstrip("/")
    names = text.split("/")
    if not _SPECIAL_NAMES.isdisjoint(names):  # an absolute path begins with an empty name
        return _resolve_links(os.path.join(base, text))  # noqa: PTH118 (`Path` would normalise `..`)
    for name in names:
        path = f"{path}/{name}"
        try:
            if stat.S_ISLNK(os.lstat(path).st_mode):
                return _resolve_links(os.path.join(base, text))  # noqa: PTH118 - as above
        except OSError:
            break
    return f"{base.rstrip('/')}/{text}", ()


def _resolve_links(path: str) -> tuple[str, Parts]:
    real = os.path.realpath(path)
    try:
        real.encode()
    except UnicodeEncodeError:
        raise PathInvalid("the path leads to a name that is not UTF-8") from None
    return real, () if real == os.path.normpath(path) else tuple(_written(path))


def _written(path: str) -> Iterator[str]:
    """Yield an absolute path before each symlink in it is followed, without `..`."""
    done, rest, left = "", path.split("/")[::-1], _MAX_LINKS
    while rest and left:
        name = rest.pop()
        if name == "..":
            done = done.rpartition("/")[0]
        if name in _SPECIAL_NAMES:
            continue
        here = f"{done}/{name}"
        try:
            target = os.readlink(here)  # noqa: PTH115 - text in, text out
        except OSError:
            done = here
            continue
        yield os.path.normpath("/".join((here, *reversed(rest))))
        left -= 1
        done = "" if target.startswith("/") else done
        rest += target.split("/")[::-1]


def _relative(target: str, base: str) -> Parts | None:
    if target == base:
        return ()
    inside = base if base.endswith("/") else f"{base}/"
    return _parts(target[len(inside) :]) if target.startswith(inside) else None


def _parts(path: str) -> Parts:
    return tuple(path.lstrip("/").split("/")) if path.strip("/") else ()


def folded(path: str) -> str:
    """Fold case and Unicode composition, as case-insensitive file systems do.

    On a case-sensitive file system this hides slightly more than necessary, which is safe.
    """
    if path.isascii():
        return path.lower()
    return to_normal_form("NFD", to_normal_form("NFD", path).casefold())


def may_have_entries(folder: Location) -> bool:
    """Return whether every name in a folder makes a path within the limits."""
    return len(folder.parts) < MAX_DEPTH and len(folder.display_path.encode()) + _MAX_NAME_BYTES < _MAX_PATH_BYTES


def is_recorded_path(text: str) -> bool:
    """Whether a text can be the `display_path` of a file or folder that an op changes; looks at no file system."""
    try:
        _check(text)
    except PathInvalid:
        return False
    # `./workspace:x` is a project file whose name looks like a workspace path.
    prefix = "./" if text.startswith(f"./{WORKSPACE}") else WORKSPACE
    return _SPECIAL_NAMES.isdisjoint(text.removeprefix(prefix).split("/"))
