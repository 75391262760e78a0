"""What a drawing is made of, on a grid of character cells: boxes, lines and labels, each at its place.

Values only: `routing` makes them, `text` and `svg` draw them.
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
    """An edge from border to border; the head of the arrow is where it ends."""

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


def shifted(plan: Plan, least: int) -> Plan:
    """The same plan, with its left end at column 0."""

    def move(point: Point) -> Point:
        return Point(point.row, point.column - least)

    return Plan(
        move(plan.start),
        [Box(box.node, box.left - least, box.right - least, box.top) for box in plan.boxes],
        [Line(line.edge, tuple(map(move, line.points))) for line in plan.lines],
        [Label(move(label.at), label.text) for label in plan.labels],
        plan.width - least,
        plan.height,
    )
