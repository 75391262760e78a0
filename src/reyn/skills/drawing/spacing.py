"""Place items in a row without overlap, each as close as possible to its preferred position.

Independent of graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_GAP = 3  # columns between neighbours: a line may move by one and still keep its distance


def spread(preferences: Iterable[tuple[float, int]], widths: Iterable[int]) -> list[int]:
    """Return left ends in order and without overlap, close to the preferred ones.

    Args:
        preferences: The preferred left end of each item, and its weight.
        widths: The width of each item.
    """
    blocks: list[_Block] = []
    for preference, width in zip(preferences, widths, strict=True):
        block = _Block([preference], [0], width + _GAP)
        while blocks and blocks[-1].left + blocks[-1].width > block.left:
            block = blocks.pop().merge(block)
        blocks.append(block)
    lefts: list[int] = []
    left = round(blocks[0].left)
    for block in blocks:
        left = max(round(block.left), left)  # rounding must not make two blocks overlap
        lefts += [left + offset for offset in block.offsets]
        left += block.width
    return lefts


def port(inside: range, place: int, count: int) -> int:
    """Return one of several evenly spaced columns of a box."""
    return inside[len(inside) * (2 * place + 1) // (2 * count)]


def nearest(preferred: int, inside: range, fit: range, others: set[int]) -> int:
    """Return the best free column of a box: in order, then apart from other lines, then close to the preferred one."""
    free = [column for column in inside if column not in others]
    return min(free, key=lambda c: (c not in fit, (c - 1 in others) + (c + 1 in others), abs(c - preferred), c))


class _Block(NamedTuple):
    """Adjacent items whose preferred positions overlap."""

    preferences: list[tuple[float, int]]  # the preferred left end of the block, and its weight, for each item
    offsets: list[int]
    width: int

    @property
    def left(self) -> float:
        return sum(left * weight for left, weight in self.preferences) / sum(weight for _, weight in self.preferences)

    def merge(self, other: _Block) -> _Block:
        preferences = [(left - self.width, weight) for left, weight in other.preferences]
        offsets = [offset + self.width for offset in other.offsets]
        return _Block(self.preferences + preferences, self.offsets + offsets, self.width + other.width)
