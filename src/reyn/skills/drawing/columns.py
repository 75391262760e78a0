"""Assign columns: the position and width of each box, and where each line leaves and enters a layer.

A column between two layers belongs to one line only, so that lines never overlap.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from reyn.skills.drawing.graph import START, title_of
from reyn.skills.drawing.layers import Stop
from reyn.skills.drawing.spacing import nearest, port, spread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reyn.skills.drawing.graph import Edge
    from reyn.skills.drawing.layers import Layers

_MAX_LABEL = 24
_STRAIGHT = 100  # weight of a straight line against that of a centred box


class Columns:
    """Columns of all layers, assigned from the top; the margins for loops are on the far right."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self.leaves: dict[tuple[Edge, int], int] = {}  # the column in which an edge leaves a layer
        self.enters: dict[tuple[Edge, int], int] = {}  # the column in which it enters one
        self.sides: dict[str, int] = {}  # the column beside a node in which loops arrive
        self.extent: dict[str, tuple[int, int]] = {}
        self.labels: list[tuple[int, int, str]] = []  # layer, column and text
        for number in range(len(layers.rows)):
            self._place(number)
        self.margins = self._margins()

    def _place(self, number: int) -> None:
        row = self._layers.rows[number]
        taken = {column: edge for (edge, layer), column in self.leaves.items() if layer == number - 1}
        beside = {column for node, column in self.sides.items() if self._layers.layer[node] == number - 1}
        lefts = spread(map(self._preference, row), map(self._total_width, row))
        for stop, left in zip(row, lefts, strict=True):
            if stop.is_node:
                self._place_node(stop.source, left, taken, beside)
            else:
                edge = self._layers.edge_of(stop)
                is_free = taken.get(left, edge) == edge and left not in beside
                self.enters[edge, number] = self.leaves[edge, number] = left if is_free else left + 1
        self._label(number)

    def _preference(self, stop: Stop) -> tuple[float, int]:
        """Return the preferred left end of a stop and its weight; a line has a single column, so it weighs more."""
        if not stop.is_node:
            return self.leaves[self._layers.edge_of(stop), stop.layer - 1], _STRAIGHT
        above = [self.leaves[edge, stop.layer - 1] for edge in self._layers.arriving(stop.source)]
        return median(above or [0]) - self._width(stop) // 2, 1

    def _place_node(self, node: str, left: int, taken: Mapping[int, Edge], beside: set[int]) -> None:
        number, width = self._layers.layer[node], self._width(Stop(0, node, node))
        right = left + width - 1
        self.extent[node] = left, right
        inside = range(left, left + 1) if node == START else range(left + 1, right)
        self._enter(node, inside, taken, beside)
        leaving, spare = self._layers.leaving(node), self._layers.spare(node)
        for place, edge in enumerate(leaving, start=spare):
            self.leaves[edge, number] = port(inside, place, len(leaving) + spare)
        if self._layers.has_side(node):
            self.sides[node] = right + 2 if right + 2 not in taken and right + 2 not in beside else right + 3

    def _enter(self, node: str, inside: range, taken: Mapping[int, Edge], beside: set[int]) -> None:
        """Assign a column to each incoming edge: straight down if possible, in order, apart from other lines."""
        above = self._layers.layer[node] - 1
        arriving = sorted(self._layers.arriving(node), key=lambda edge: self.leaves[edge, above])
        used: set[int] = set()
        for place, edge in enumerate(arriving):
            source = self.leaves[edge, above]
            preferred = source if source in inside else port(inside, place, len(arriving))
            others = beside | used | {column for column, other in taken.items() if other != edge}
            # In order: to the right of earlier edges, with room for later ones.
            fit = range(max(used, default=inside[0] - 1) + 1, inside[-1] + 1 - 2 * (len(arriving) - 1 - place))
            column = nearest(preferred, inside, fit, others)
            used.add(column)
            self.enters[edge, above + 1] = column

    def _width(self, stop: Stop) -> int:
        if not stop.is_node or stop.source == START:
            return 1
        ports = max(
            3 * len(self._layers.arriving(stop.source)),
            2 * (len(self._layers.leaving(stop.source)) + self._layers.spare(stop.source)) + 1,
        )
        return max(len(title_of(stop.source)) + 4, ports + 2) | 1  # odd, so that it has a middle

    def _total_width(self, stop: Stop) -> int:
        """Return the width including what extends to the right: the label of the arrow and incoming loops."""
        width = self._width(stop)
        if not stop.is_node:
            return width
        if stop.source == START:
            return 1
        label = self._label_of(stop.source)
        return max(width + 3 * self._layers.has_side(stop.source), width // 2 + 2 + len(label))

    def _label_of(self, node: str) -> str:
        text = next((edge.artifact for edge in self._layers.incoming.get(node, ())), "")
        return text if len(text) <= _MAX_LABEL else text[: _MAX_LABEL - 1] + "…"

    def _label(self, number: int) -> None:
        """Place a label beside the arrows of each node if there is room; all its edges have the same artifact."""
        cells = {column for (_, layer), column in self.enters.items() if layer == number}
        cells |= {self.sides[node] for node in self._layers.roundabout(number)}
        for node in (stop.source for stop in self._layers.rows[number] if stop.is_node):
            text = self._label_of(node)
            ports = [self.enters[edge, number] for edge in self._layers.arriving(node)]
            if not text or not ports:
                continue
            for column in (max(ports) + 2, min(ports) - 1 - len(text)):
                if cells.isdisjoint(range(column - 1, column + len(text) + 1)):
                    cells |= set(range(column, column + len(text)))
                    self.labels.append((number, column, text))
                    break

    def _margins(self) -> dict[str, int]:
        """Return a column on the right for each target of loops from other nodes; shorter loops are further inside."""
        spans: dict[str, int] = {}
        for edge in self._layers.edges:
            if edge.is_loop and edge.source != edge.target:
                span = self._layers.layer[edge.source] - self._layers.layer[edge.target]
                spans[edge.target] = max(spans.get(edge.target, 0), span)
        ends = [right for _, right in self.extent.values()]
        ends += [*self.leaves.values(), *self.sides.values(), *(column + len(text) for _, column, text in self.labels)]
        ordered = sorted(spans, key=lambda node: (spans[node], -self._layers.layer[node]))
        return {node: max(ends) + 3 + 2 * place for place, node in enumerate(ordered)}
