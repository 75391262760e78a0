"""Path patterns of permission requests and rules: what they grant, and what they restrict.

`*`, `?` and `[…]` match within one name, `**` any number of folders; a pattern that ends in `/` covers everything
below it. In a request or an `allow`, no wildcard matches a protected name: a hidden file, or something that another
program executes or imports because of where it is. A pattern that grants one must spell it: `.github/*.yml`,
`tools/*.py`, `Makefile`. A pattern that denies or asks covers every name, and everything below what it matches.
"""

from __future__ import annotations

import os
import re
import stat
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.permissions.protected import EXECUTED_FAMILIES, EXECUTED_NAMES, EXECUTED_SUFFIXES
from reyn.workspace.paths import RECORDED_FOLDER, WORKSPACE, folded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.workspace import Location, Roots
    from reyn.workspace.files import Identity

AccessMode = Literal["read", "write"]

_OWN_NAMES = frozenset(("reyn", "reyn.yaml", "reyn.local.yaml"))
"""What Reyn itself reads, at the root of the project."""


def must_spell(name: str, index: int, access: AccessMode) -> bool:
    """Whether a name is protected: only a pattern that spells it out covers it. Reading protects hidden names only."""
    lower = name.casefold()
    if lower.startswith("."):
        return True
    if access == "read":
        return False
    return (
        (index == 0 and lower in _OWN_NAMES)
        or lower in EXECUTED_NAMES
        or os.path.splitext(lower)[1] in EXECUTED_SUFFIXES  # noqa: PTH122 - a name
        or EXECUTED_FAMILIES.fullmatch(lower) is not None
    )


def protected_name(parts: tuple[str, ...], access: AccessMode) -> str:
    """Return the first protected name of a path, or an empty string."""
    return next((name for index, name in enumerate(parts) if must_spell(name, index, access)), "")


class PathPattern(msgspec.Struct, frozen=True):
    """A pattern as it was written, with its parsed form."""

    text: str
    zone: Literal["project", "outside", "workspace"]
    segments: tuple[str, ...]
    is_recursive: bool

    @classmethod
    def parse(cls, text: str, scope: str = "") -> PathPattern:
        """Parse a pattern. `scope` is `just_path` or `recursive`; by default a trailing `/` means recursive.

        Raises:
            ValueError: the pattern is empty or contains `..`.
        """
        path = text
        zone: Literal["project", "outside", "workspace"] = "project"
        if text.startswith(WORKSPACE):
            zone, path = "workspace", text.removeprefix(WORKSPACE)
        elif text.startswith(("/", "~")):
            zone, path = "outside", os.path.expanduser(text)  # noqa: PTH111 - a pattern, not a path
        segments = tuple(part for part in path.split("/") if part not in ("", "."))
        if ".." in segments or "\0" in path or not path:
            raise ValueError(f"`{text}` is not a usable path pattern")
        is_recursive = scope == "recursive" or (not scope and (path.endswith("/") or not segments))
        return cls(text, zone, segments, is_recursive)

    def covers(self, location: Location, access: AccessMode) -> bool:
        """Return whether it grants a location: protected names only where the pattern spells them."""
        if location.zone != self.zone:
            return False
        end, positions = len(self.segments), {0}
        has_any = "**" in self.segments
        for index, name in enumerate(location.parts):
            after = set()
            for at in _with_empty(self.segments, positions) if has_any else positions:
                if at == end or self.segments[at] == "**":
                    # The author of an outside pattern has not reviewed names that the pattern does not spell.
                    if (at < end or self.is_recursive) and not must_spell(name, index, access):
                        after.add(at)
                elif _matches(self.segments[at], name, index, access):
                    after.add(at + 1)
            positions = after
        return end in (_with_empty(self.segments, positions) if has_any else positions)


def _with_empty(segments: tuple[str, ...], positions: set[int]) -> set[int]:
    """Return positions in a pattern, with those after a `**` that matches no folder."""
    for after in sorted(positions):
        while after < len(segments) and segments[after] == "**":
            after += 1
            positions.add(after)
    return positions


def exact_pattern(location: Location) -> str:
    """Return the pattern that grants one location and nothing else."""
    names = "/".join(_SPECIAL.sub(r"[\g<0>]", name) for name in location.parts)
    match location.zone:
        case "workspace":
            return f"{WORKSPACE}{names}"
        case "outside":
            return f"/{names}"
    return f"./{names}" if not names or names.startswith(("~", WORKSPACE)) else names


_SPECIAL = re.compile(r"[*?[]")


def _is_literal(segment: str) -> bool:
    return not any(sign in segment for sign in "*?[")


def _matches(segment: str, name: str, index: int, access: AccessMode) -> bool:
    if _is_literal(segment):
        return segment == name
    if not fnmatchcase(name, segment):
        return False
    if not must_spell(name, index, access):
        return True
    if name.startswith("."):
        return segment.startswith(".")
    suffix = os.path.splitext(name)[1]  # noqa: PTH122 - a name
    return suffix.casefold() in EXECUTED_SUFFIXES and segment.endswith(suffix)


_MAX_COMPARED = 20_000
"""The files of a restricted folder that are compared with a file that has several names."""


class RestrictedPath:
    """A path pattern that denies or asks, as the files that it stands for.

    It is compared with the path as it was written and after each symlink was followed, wherever the pattern begins: its
    own symlinks are resolved, too. It covers everything below what it matches, names of any case, and other names (hard
    links) of the files that it covers.
    """

    def __init__(self, pattern: PathPattern, roots: Roots) -> None:
        base = {"project": roots.bases.project, "workspace": roots.bases.workspace}.get(pattern.zone, "/")
        wild = next((at for at, one in enumerate(pattern.segments) if not _is_literal(one)), len(pattern.segments))
        top = os.path.join(base, *pattern.segments[:wild])  # noqa: PTH118 - text in, text out
        is_recorded = pattern.zone == "workspace" and pattern.segments[:1] == (RECORDED_FOLDER,)
        # Recorded content is no folder on disk, so that a link in its place changes nothing.
        self._top = top if is_recorded else os.path.realpath(top)
        self._folder = names_of(self._top)
        self._is_outside = pattern.zone == "outside"
        self._segments = tuple(map(folded, pattern.segments[wild:]))

    def covers(self, names: tuple[str, ...]) -> bool:
        """Return whether it covers an absolute path, as the names that `names_of` returns."""
        return len(self._segments) in self._positions(names)

    def is_evaded_by(self, link: str) -> bool:
        """Return whether it covers the path of a symlink, or a path through it, and not where that path leads."""
        target = os.path.realpath(link)
        reached = self._positions(names_of(target))
        end = len(self._segments)
        missing = self._positions(names_of(link)) - reached
        return end not in reached and (bool(missing) if os.path.isdir(target) else end in missing)  # noqa: PTH112 - text in

    def _positions(self, names: tuple[str, ...]) -> set[int]:
        """Return how much of the pattern the names match: positions in it, the last one if it covers them."""
        depth = len(self._folder)
        if names[:depth] != self._folder:
            return set()
        at = _with_empty(self._segments, {0})
        for name in names[depth:]:
            if len(self._segments) in at:
                break
            at = _with_empty(
                self._segments,
                {
                    one if self._segments[one] == "**" else one + 1
                    for one in at
                    if self._segments[one] in ("**", name) or fnmatchcase(name, self._segments[one])
                },
            )
        return at

    def inside(self, folder: str) -> Iterator[str]:
        """Yield the uppermost paths below a folder of the system that it covers; none if it covers the folder itself.

        Patterns of the project with wildcards are not about the installation of Python in it.
        """
        if self.covers(names_of(folder)) or (self._segments and not self._is_outside):
            return
        waiting = [folder] if self._may_cover_below(names_of(folder)) else []
        while waiting:
            for path, is_folder in _listed(waiting.pop()):
                names = names_of(path)
                if self.covers(names):
                    yield path
                elif is_folder and self._may_cover_below(names):
                    waiting.append(path)

    def _may_cover_below(self, names: tuple[str, ...]) -> bool:
        depth = len(self._folder)
        if names[:depth] != self._folder[: len(names)]:
            return False
        return len(names) < depth + len(self._segments) or "**" in self._segments

    @cached_property
    def identities(self) -> frozenset[Identity]:
        """Device and inode of the files that it covers and that have several names."""
        return frozenset(self._linked())

    def _linked(self) -> Iterator[Identity]:
        compared = 0
        for folder, _, names in os.walk(self._top) if os.path.isdir(self._top) else [(self._top, (), ("",))]:  # noqa: PTH112 - text in
            for name in names:
                compared += 1
                if compared > _MAX_COMPARED:
                    return
                path = f"{folder}/{name}" if name else folder
                identity = linked_identity(path)
                if identity is not None and self.covers(names_of(path)):
                    yield identity


def _listed(folder: str) -> list[tuple[str, bool]]:
    """Return the paths in a folder and whether they are folders, without links; none if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return [
                (f"{folder.rstrip('/')}/{entry.name}", entry.is_dir(follow_symlinks=False))
                for entry in entries
                if not entry.is_symlink()
            ]
    except OSError:
        return []


def linked_identity(path: str) -> Identity | None:
    """Return device and inode of a file with several names; `None` for any other."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if status.st_nlink > 1 and stat.S_ISREG(status.st_mode) else None


def names_of(path: str) -> tuple[str, ...]:
    """Return the names of a path, in the form in which they are compared."""
    return tuple(name for name in folded(path).split("/") if name)


def parse_patterns(value: Any) -> tuple[PathPattern, ...]:
    """Parse the paths of a request: a path, or a list of paths and of `{path, scope}`.

    Raises:
        ValueError: says what is wrong.
    """
    entries = value if isinstance(value, list) else [value]
    matches = []
    for entry in entries:
        match entry:
            case str():
                matches.append(PathPattern.parse(entry))
            case {"path": str(path), **rest} if rest.keys() <= {"scope", "reason"}:
                scope = rest.get("scope", "")
                if scope not in ("", "just_path", "recursive"):
                    raise ValueError(f"`scope: {scope}` is neither `just_path` nor `recursive`")
                matches.append(PathPattern.parse(path, scope))
            case _:
                raise ValueError(f"{entry!r} is neither a path nor `{{path, scope}}`")
    return tuple(matches)
