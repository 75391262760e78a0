"""Match paths against glob patterns.

`*`, `?` and `[…]` match within one name, `**` matches any number of folders. No wildcard matches a name that begins
with a dot, unless the pattern spells the dot.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import cached_property
from itertools import takewhile

import msgspec

from reyn.ops.budget import OpFailed
from reyn.workspace.paths import MAX_DEPTH, WORKSPACE

_ANY = "**"


class Pattern(msgspec.Struct, frozen=True, dict=True):
    """A glob pattern, split into names."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, names: list[str]) -> Pattern:
        significant = tuple(name for name in names if name not in ("", "."))
        if ".." in significant:
            raise OpFailed("`..` cannot stand in a pattern after a wildcard, nor at its end")
        if len(significant) > MAX_DEPTH:
            raise OpFailed(f"the pattern has more than {MAX_DEPTH} names")
        return cls(significant)

    @cached_property
    def _expressions(self) -> tuple[re.Pattern[str], ...]:
        """The names as expressions. `fnmatch` would keep thousands of those that a model made up."""
        return tuple(re.compile(translate(name)) for name in self.names)

    def matches(self, path: tuple[str, ...]) -> bool:
        return len(self.names) in self._reached(path)

    def may_match_below(self, path: tuple[str, ...]) -> bool:
        return any(position < len(self.names) for position in self._reached(path))

    def _reached(self, path: tuple[str, ...]) -> set[int]:
        """Return every position of the pattern that a path can advance to (an NFA simulation)."""
        reached = self._skip_any({0})
        for name in path:
            reached = self._skip_any({after for position in reached for after in self._after(position, name)})
        return reached

    def _after(self, position: int, name: str) -> tuple[int, ...]:
        if position == len(self.names):
            return ()
        expected = self.names[position]
        if name.startswith(".") and not expected.startswith("."):
            return ()
        if expected == _ANY:
            return (position, position + 1) if position + 1 == len(self.names) else (position,)
        return (position + 1,) if self._expressions[position].match(name) else ()

    def _skip_any(self, positions: set[int]) -> set[int]:
        """Add the positions after each `**`, which also matches no folder. At the end, `a/**` means files in `a`."""
        for position in sorted(positions):
            while position + 1 < len(self.names) and self.names[position] == _ANY:
                position += 1
                positions.add(position)
        return positions


def split(text: str) -> tuple[str, Pattern]:
    """Split a pattern into the folder before the first wildcard and the rest."""
    scheme = WORKSPACE if text.startswith(WORKSPACE) else ""
    names = text.removeprefix(scheme).split("/")
    plain = list(takewhile(is_plain, names[:-1]))
    folder = "/".join(plain) or ("/" if plain else "" if scheme else ".")
    return scheme + folder, Pattern.of(names[len(plain) :])


def anywhere(text: str) -> Pattern:
    """Return a pattern that matches at any depth if it has no slash."""
    return Pattern.of(text.split("/") if "/" in text else [_ANY, text])


def is_plain(name: str) -> bool:
    """Return whether a name has no wildcards."""
    return not any(wildcard in name for wildcard in "*?[")
