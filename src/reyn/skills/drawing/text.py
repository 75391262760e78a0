"""Draw a layout with Unicode box-drawing characters; list the nodes of a graph that is too large for a terminal."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from reyn.skills.drawing.graph import ENTRY_MARK, kind_of, nodes
from reyn.skills.drawing.listing import to_listing
from reyn.skills.drawing.plan import Point
from reyn.skills.drawing.routing import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reyn.skills.drawing.plan import Box, Line, Plan
    from reyn.skills.values import Skill

MAX_NODES = 30
MAX_COLUMNS = 100

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_SOLID = dict(zip((3, 12, 5, 6, 9, 10, 7, 11, 13, 14, 15), "│─┘┐└┌┤├┴┬┼", strict=True))
_DASHED = _SOLID | dict(zip((3, 12, 5, 6, 9, 10), "╎╌╯╮╰╭", strict=True))
_BORDERS = {"phase": "┌─┐││└─┘┬", "skill": "╔═╗║║╚═╝╤", "end": "╭─╮││╰─╯┬"}


def to_text(skill: Skill) -> str:
    """Return a drawing of the graph, or a list of its nodes if the drawing would be too large."""
    count = len(nodes(skill))
    if count > MAX_NODES:
        return to_listing(skill, f"{count} nodes")
    plan = layout(skill)
    if plan.width > MAX_COLUMNS:
        return to_listing(skill, f"{plan.width} columns")
    return _draw(plan)


def _draw(plan: Plan) -> str:
    cells = dict(_strokes(plan.lines))
    for box in plan.boxes:
        cells |= dict(_border(box))
    cells |= dict(_write(plan.start, ENTRY_MARK))
    for line in plan.lines:
        start, (before, end) = line.points[0], line.points[-2:]
        if line.edge.source:
            cells[start] = _BORDERS[kind_of(line.edge.source)][-1]
        head = Point(end.row, end.column + 1) if before.row == end.row else Point(end.row - 1, end.column)
        cells[head] = "◀" if before.row == end.row else "▼"
    for label in plan.labels:
        cells |= dict(_write(label.at, label.text))
    rows = ("".join(cells.get(Point(row, c), " ") for c in range(plan.width)).rstrip() for row in range(plan.height))
    return "\n".join(rows).rstrip() + "\n"


def _write(at: Point, text: str) -> Iterator[tuple[Point, str]]:
    return ((Point(at.row, at.column + offset), char) for offset, char in enumerate(text))


def _border(box: Box) -> Iterator[tuple[Point, str]]:
    nw, n, ne, w, e, sw, s, se, _ = tuple(_BORDERS[kind_of(box.node)])
    inside = box.right - box.left - 1
    yield from _write(Point(box.top, box.left), nw + n * inside + ne)
    yield from _write(Point(box.middle, box.left), f"{w}{box.title:^{inside}}{e}")
    yield from _write(Point(box.bottom, box.left), sw + s * inside + se)


def _strokes(lines: Iterable[Line]) -> Iterator[tuple[Point, str]]:
    """Yield the cells of all lines; the directions of the lines in a cell determine its character."""
    masks: dict[Point, int] = {}
    solid: set[Point] = set()
    for line in lines:
        for one, two in pairwise(_cells(line.points)):
            out, back = (_DOWN, _UP) if one.row < two.row else (_UP, _DOWN)
            if one.row == two.row:
                out, back = (_RIGHT, _LEFT) if one.column < two.column else (_LEFT, _RIGHT)
            masks[one] = masks.get(one, 0) | out
            masks[two] = masks.get(two, 0) | back
        if not line.edge.is_loop:
            solid |= set(_cells(line.points))
    for cell, mask in masks.items():
        yield cell, (_SOLID if cell in solid else _DASHED).get(mask, " ")


def _cells(points: Sequence[Point]) -> list[Point]:
    cells = [points[0]]
    for one, two in pairwise(points):
        rows, columns = two.row - one.row, two.column - one.column
        length = max(abs(rows), abs(columns))
        cells += [Point(one.row + rows * n // length, one.column + columns * n // length) for n in range(1, length + 1)]
    return cells
