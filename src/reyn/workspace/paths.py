"""The text of a path becomes a place: which zone it lies in, and where there, after every link is followed.

A place says where something would be, not that it may be touched (`reyn.permissions`) nor that it is still there when
it is opened (`reyn.workspace.files`).
"""

from __future__ import annotations

import os
import stat
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

WORKSPACE = "workspace:"
KEPT = ".kept"

_LONGEST_PATH = 4_000
_LONGEST_NAME = 255

_UNUSUAL = frozenset(("", ".", ".."))

Zone = Literal["project", "workspace", "kept", "state", "outside"]
Parts = tuple[str, ...]


class PlaceInvalid(ValueError):
    """A text that cannot be a path."""


class Roots(msgspec.Struct, frozen=True):
    """The folders that zones are measured from: the project, its `.reyn`, and this run's own folder in there."""

    project: Path
    state: Path
    workspace: Path
    hidden: tuple[Path, ...] = ()
    """Other folders that are out of reach like the state directory, wherever they are."""


class Place(msgspec.Struct, frozen=True):
    zone: Zone
    parts: Parts
    """Relative to the zone's folder; `outside` has none, so its parts begin at `/`."""
    shown: str
    """The spelling that is shown and recorded. It leads back to this place, unless that is out of reach: then it is
    the text as it was given, for where that leads to is nobody's business."""

    @classmethod
    def at(cls, zone: Literal["project", "workspace", "kept"], parts: Parts) -> Place:
        path = "/".join(parts) or "."
        if zone == "project":
            return cls(zone, parts, f"./{path}" if path.startswith(WORKSPACE) else path)
        return cls(zone, parts, WORKSPACE + (f"{KEPT}/{path}" if zone == "kept" else path))

    def below(self, *names: str) -> Place:
        return self._moved(self.parts + names)

    def above(self) -> Place:
        return self._moved(self.parts[:-1])

    def _moved(self, parts: Parts) -> Place:
        assert self.zone != "state"
        assert self.zone != "outside"
        return Place.at(self.zone, parts)


class _Bases(NamedTuple):
    """The roots without links."""

    project: str
    state: str
    workspace: str
    hidden_folded: tuple[str, ...]


def locate(text: str, roots: Roots) -> Place:
    """Texts are relative to the project, absolute, or `workspace:<path>`; `~` is a name like any other."""
    _check(text)
    bases = _bases(roots)
    if text.startswith(WORKSPACE):
        inside = text.removeprefix(WORKSPACE).lstrip("/")
        return _in_workspace(_real(bases.workspace, inside), bases, text)
    return _in_project(_real(bases.project, text), bases, text)


def _check(text: str) -> None:
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise PlaceInvalid("the path is not valid Unicode") from None
    if not text:
        raise PlaceInvalid("the path is empty")
    if b"\0" in raw:
        raise PlaceInvalid("the path holds a NUL character")
    if len(raw) > _LONGEST_PATH:
        raise PlaceInvalid(f"the path is longer than {_LONGEST_PATH} bytes")
    if len(raw) > _LONGEST_NAME and any(len(name) > _LONGEST_NAME for name in raw.split(b"/")):
        raise PlaceInvalid(f"a name in the path is longer than {_LONGEST_NAME} bytes")


def _in_workspace(target: str, bases: _Bases, text: str) -> Place:
    inside = _below(target, bases.workspace)
    if inside is None:
        beyond = _in_project(target, bases, text)
        # `workspace:` that leads into the project is a way around, whatever it finds there.
        return beyond if beyond.zone == "state" else Place("outside", _parts(target), text)
    if inside[:1] == (KEPT,):
        return Place.at("kept", inside[1:])
    return Place.at("workspace", inside)


def _in_project(target: str, bases: _Bases, text: str) -> Place:
    folded = _folded(target)
    for base in bases.hidden_folded:
        hidden = _below(folded, base)
        if hidden is not None:
            return Place("state", hidden, text)
    inside = _below(target, bases.project)
    return Place("outside", _parts(target), text) if inside is None else Place.at("project", inside)


@lru_cache(maxsize=64)
def _bases(roots: Roots) -> _Bases:
    project, state, workspace = (os.path.realpath(path) for path in (roots.project, roots.state, roots.workspace))
    hidden = (state, *(os.path.realpath(path) for path in roots.hidden))
    return _Bases(project, state, workspace, tuple(_folded(path) for path in hidden))


def _real(base: str, text: str) -> str:
    """Where a text leads from a folder, all links followed. `realpath` asks again for every folder down to the base,
    which is most of the cost of an op; it is left to the texts that need it."""
    path = base.rstrip("/")
    if text.startswith("/") or not _UNUSUAL.isdisjoint(text.split("/")):
        return _followed(os.path.join(base, text))  # noqa: PTH118 (a `Path` would drop what matters)
    for name in text.split("/"):
        path = f"{path}/{name}"
        try:
            if stat.S_ISLNK(os.lstat(path).st_mode):
                return _followed(os.path.join(base, text))  # noqa: PTH118 - as above
        except OSError:
            break
    return f"{base.rstrip('/')}/{text}"


def _followed(path: str) -> str:
    real = os.path.realpath(path)
    try:
        real.encode()
    except UnicodeEncodeError:
        raise PlaceInvalid("the path leads to a name that is not UTF-8") from None
    return real


def _below(target: str, base: str) -> Parts | None:
    if target == base:
        return ()
    inside = base if base.endswith("/") else f"{base}/"
    return _parts(target[len(inside) :]) if target.startswith(inside) else None


def _parts(path: str) -> Parts:
    return tuple(path.lstrip("/").split("/")) if path.strip("/") else ()


def _folded(path: str) -> str:
    """A path as a file system sees it that minds neither case nor how a letter is composed. On one that does, this
    puts a little more out of reach than it must."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())
