"""The layout of a drawing: boxes, lines and labels on a grid of character cells.

`routing` creates it, `text` and `svg` draw it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from reyn.skills.drawing.graph import Edge, title_of


class Point(NamedTuple):
    row: int
    column: int


class Box(msgspec.Struct, frozen=True):
    node: str
    left: int
    right: int
    top: int

    @property
    def middle(self) -> int:
        return self.top + 1

    @property
    def bottom(self) -> int:
        return self.top + 2

    @property
    def title(self) -> str:
        return title_of(self.node)


class Line(msgspec.Struct, frozen=True):
    """The line of an edge from border to border; the arrowhead is at its last point."""

    edge: Edge
    points: tuple[Point, ...]


class Label(msgspec.Struct, frozen=True):
    at: Point
    text: str


class Plan(msgspec.Struct, frozen=True):
    start: Point
    boxes: list[Box]
    lines: list[Line]
    labels: list[Label]
    width: int
    height: int


def shift_left(plan: Plan, columns: int) -> Plan:
    """Return the plan moved to the left by a number of columns."""

    def move(point: Point) -> Point:
        return Point(point.row, point.column - columns)

    return Plan(
        move(plan.start),
        [Box(box.node, box.left - columns, box.right - columns, box.top) for box in plan.boxes],
        [Line(line.edge, tuple(map(move, line.points))) for line in plan.lines],
        [Label(move(label.at), label.text) for label in plan.labels],
        plan.width - columns,
        plan.height,
    )
