"""Wishes become places: things of given widths stand in a row, each as near as can be to where it would like to be.

Knows nothing of graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_GAP = 3  # columns between neighbours: a line may give way by one and still stand free


def spread(wanted: Iterable[tuple[float, int]], widths: Iterable[int]) -> list[int]:
    """Left ends as near as can be to the wanted ones, in order and without overlap."""
    blocks: list[_Block] = []
    for want, width in zip(wanted, widths, strict=True):
        block = _Block([want], [0], width + _GAP)
        while blocks and blocks[-1].left + blocks[-1].width > block.left:
            block = blocks.pop().joined(block)
        blocks.append(block)
    lefts: list[int] = []
    least = round(blocks[0].left)
    for block in blocks:
        least = max(round(block.left), least)  # rounding must not push two blocks into each other
        lefts += [least + offset for offset in block.offsets]
        least += block.width
    return lefts


def port(inside: range, place: int, count: int) -> int:
    """One of several columns that divide a box evenly."""
    return inside[len(inside) * (2 * place + 1) // (2 * count)]


def nearest(wish: int, inside: range, fit: range, others: set[int]) -> int:
    """The free column of a box that serves best: in order, then apart from other lines, then near the wish."""
    free = [column for column in inside if column not in others]
    return min(free, key=lambda c: (c not in fit, (c - 1 in others) + (c + 1 in others), abs(c - wish), c))


class _Block(NamedTuple):
    """Neighbours that lie side by side, because each is where another would like to be."""

    wants: list[tuple[float, int]]  # where each member would have the block begin, and how much it matters
    offsets: list[int]
    width: int

    @property
    def left(self) -> float:
        return sum(want * weight for want, weight in self.wants) / sum(weight for _, weight in self.wants)

    def joined(self, other: _Block) -> _Block:
        wants = [(want - self.width, weight) for want, weight in other.wants]
        offsets = [offset + self.width for offset in other.offsets]
        return _Block(self.wants + wants, self.offsets + offsets, self.width + other.width)
