"""Route lines: assign rows to the horizontal segments between layers, and build the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reyn.skills.drawing.columns import Columns
from reyn.skills.drawing.graph import ENTRY_MARK, START
from reyn.skills.drawing.layers import Layers
from reyn.skills.drawing.plan import Box, Label, Line, Plan, Point, shift_left

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reyn.skills.drawing.graph import Edge
    from reyn.skills.values import Skill


def layout(skill: Skill) -> Plan:
    """Return the layout of a skill's graph."""
    layers = Layers(skill)
    return _Routing(layers, Columns(layers)).plan()


class _Segment(NamedTuple):
    """A horizontal piece of a line between two layers, from one column to another."""

    key: tuple[str, str]
    start: int
    stop: int


class _Routing:
    """Assigns rows to segments, then builds the lines."""

    def __init__(self, layers: Layers, columns: Columns) -> None:
        self._layers = layers
        self._columns = columns
        self.tracks = [self._route(number) for number in range(len(layers.rows))]
        self.tops = self._tops()

    def plan(self) -> Plan:
        boxes = {
            n: Box(n, left, right, self.tops[self._layers.layer[n]])
            for n, (left, right) in self._columns.extent.items()
            if n
        }
        lines = [Line(e, tuple(self._back(e, boxes) if e.is_loop else self._on(e, boxes))) for e in self._layers.edges]
        labels = [Label(Point(self.tops[number] - 1, column), text) for number, column, text in self._columns.labels]
        columns = [point.column for line in lines for point in line.points]
        columns += [column for box in boxes.values() for column in (box.left, box.right)]
        columns += [end for label in labels for end in (label.at.column, label.at.column + len(label.text) - 1)]
        start = Point(0, self._columns.extent[START][0])
        columns += [start.column + len(ENTRY_MARK) - 1]
        return shift_left(
            Plan(start, list(boxes.values()), lines, labels, max(columns) + 1, self.tops[-1]), min(columns)
        )

    def _segments(self, number: int) -> Iterator[_Segment]:
        """Yield the segments below a layer."""
        for edge in self._layers.edges:
            key = edge.source, edge.target
            if not edge.is_loop:
                start, stop = self._columns.leaves.get((edge, number)), self._columns.enters.get((edge, number + 1))
                if start is not None and stop is not None and start != stop:
                    yield _Segment(key, start, stop)
            elif self._layers.layer[edge.source] == number:
                aside = self._columns.sides if edge.source == edge.target else self._columns.margins
                yield _Segment(key, self._columns.leaves[edge, number], aside[edge.target])
        for node in self._layers.roundabout(number + 1):
            yield _Segment((node, node), self._columns.margins[node], self._columns.sides[node])

    def _route(self, number: int) -> dict[tuple[str, str], int]:
        """Return a row for each segment, ordered so that lines in the same direction do not cross."""
        segments = sorted(
            self._segments(number), key=lambda one: (0, -one.start) if one.start < one.stop else (1, one.start)
        )
        rows: list[tuple[_Segment, int]] = []
        for segment in segments:
            low, high = min(segment.start, segment.stop) - 1, max(segment.start, segment.stop) + 1
            near = [row for other, row in rows if low <= max(other[1:]) and min(other[1:]) <= high]
            rows.append((segment, max(near, default=0) + 1))
        return {segment.key: row for segment, row in rows}

    def _tops(self) -> list[int]:
        """Return the first row of each layer, and the row after the last: a mark is one row high, a box three."""
        tops = [0]
        for number, tracks in enumerate(self.tracks):
            heads = 1 if number + 1 < len(self.tracks) else 0
            tops.append(tops[-1] + (3 if number else 1) + max(tracks.values(), default=0) + heads)
        return tops

    def _track(self, number: int, key: tuple[str, str]) -> int:
        return self.tops[number] + (2 if number else 0) + self.tracks[number][key]

    def _on(self, edge: Edge, boxes: Mapping[str, Box]) -> Iterator[Point]:
        first, last = self._layers.layer[edge.source], self._layers.layer[edge.target]
        yield Point(boxes[edge.source].bottom if edge.source else 0, self._columns.leaves[edge, first])
        for number in range(first, last):
            start, stop = self._columns.leaves[edge, number], self._columns.enters[edge, number + 1]
            if start != stop:
                row = self._track(number, (edge.source, edge.target))
                yield Point(row, start)
                yield Point(row, stop)
        yield Point(boxes[edge.target].top, self._columns.enters[edge, last])

    def _back(self, edge: Edge, boxes: Mapping[str, Box]) -> Iterator[Point]:
        source, target = boxes[edge.source], boxes[edge.target]
        number = self._layers.layer[edge.source]
        row, column = self._track(number, (edge.source, edge.target)), self._columns.leaves[edge, number]
        yield Point(source.bottom, column)
        yield Point(row, column)
        aside = self._columns.sides.get(edge.target, 0)
        if edge.source != edge.target:
            margin = self._columns.margins[edge.target]
            yield Point(row, margin)
            if self._layers.is_last(edge.target):
                aside = margin
            else:
                above = self._track(self._layers.layer[edge.target] - 1, (edge.target, edge.target))
                yield Point(above, margin)
                yield Point(above, aside)
        else:
            yield Point(row, aside)
        yield Point(target.middle, aside)
        yield Point(target.middle, target.right)
