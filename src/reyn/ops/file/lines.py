"""Lines of a text, without a list of them: a file of line ends would take fifty times its size.

Only LF ends a line, unlike in `str.splitlines`.
"""

from __future__ import annotations

from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Line(NamedTuple):
    """A line: its number from 0, where it begins, and its text with its end."""

    number: int
    start: int
    text: str


def count_lines(text: str) -> int:
    return text.count("\n") + (0 if not text or text.endswith("\n") else 1)


def select_lines(text: str, first: int, count: int | None) -> str:
    """Return `count` lines from `first` on, with their ends."""
    if not first and count is None:
        return text
    lines = StringIO(text, newline="\n")
    for _ in islice(lines, first):
        pass
    return lines.read() if count is None else "".join(islice(lines, count))


def iterate_lines(text: str) -> Iterator[Line]:
    start = 0
    for number, line in enumerate(StringIO(text, newline="\n")):
        yield Line(number, start, line)
        start += len(line)


def lines_before(text: str, start: int, count: int) -> list[str]:
    """Return up to `count` lines before the one that begins at `start`, with their ends."""
    lines: list[str] = []
    while start > 0 and len(lines) < count:
        above = text.rfind("\n", 0, start - 1) + 1
        lines.append(text[above:start])
        start = above
    return lines[::-1]


def lines_after(text: str, end: int, count: int) -> list[str]:
    """Return up to `count` lines from the position `end` on, with their ends."""
    lines: list[str] = []
    while end < len(text) and len(lines) < count:
        below = text.find("\n", end) + 1 or len(text)
        lines.append(text[end:below])
        end = below
    return lines
