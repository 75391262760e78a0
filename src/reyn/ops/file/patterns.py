"""A pattern of paths becomes the folder to start from and a test of what is below it.

`*`, `?` and `[…]` fit within one name, `**` any number of folders; none of them fits a name that begins with a dot,
unless the pattern spells the dot.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import takewhile

import msgspec

from reyn.ops.op import OpFailed
from reyn.workspace.paths import WORKSPACE

_ANY = "**"


class Pattern(msgspec.Struct, frozen=True):
    names: tuple[str, ...]

    @classmethod
    def of(cls, names: list[str]) -> Pattern:
        kept = tuple(name for name in names if name not in ("", "."))
        if ".." in kept:
            raise OpFailed("`..` cannot stand in a pattern after a wildcard, nor at its end")
        return cls(kept)

    def fits(self, path: tuple[str, ...]) -> bool:
        return len(self.names) in self._reached(path)

    def may_fit_below(self, path: tuple[str, ...]) -> bool:
        return any(position < len(self.names) for position in self._reached(path))

    def _reached(self, path: tuple[str, ...]) -> set[int]:
        """How much of the pattern can be used up by a path, in every way it can be done at once."""
        reached = self._skipping({0})
        for name in path:
            reached = self._skipping({after for position in reached for after in self._after(position, name)})
        return reached

    def _after(self, position: int, name: str) -> tuple[int, ...]:
        if position == len(self.names):
            return ()
        wanted = self.names[position]
        if name.startswith(".") and not wanted.startswith("."):
            return ()
        if wanted == _ANY:
            return (position, position + 1) if position + 1 == len(self.names) else (position,)
        return (position + 1,) if fnmatchcase(name, wanted) else ()

    def _skipping(self, positions: set[int]) -> set[int]:
        """`**` also fits nothing at all, except at the end: `a/**` is what is in `a`."""
        for position in sorted(positions):
            while position + 1 < len(self.names) and self.names[position] == _ANY:
                position += 1
                positions.add(position)
        return positions


def split(text: str) -> tuple[str, Pattern]:
    """The folder before the first wildcard, and the rest."""
    scheme = WORKSPACE if text.startswith(WORKSPACE) else ""
    names = text.removeprefix(scheme).split("/")
    plain = list(takewhile(is_plain, names[:-1]))
    folder = "/".join(plain) or ("/" if plain else "" if scheme else ".")
    return scheme + folder, Pattern.of(names[len(plain) :])


def anywhere(text: str) -> Pattern:
    """A pattern without a slash fits a name at any depth."""
    return Pattern.of(text.split("/") if "/" in text else [_ANY, text])


def is_plain(name: str) -> bool:
    return not any(sign in name for sign in "*?[")
