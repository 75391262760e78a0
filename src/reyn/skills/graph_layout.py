"""Place the nodes and edges of a skill's graph: layers of nodes from the entry, and a row of labels between two.

An edge has a place of its own in each row that it passes, so that it crosses no node and no label. A loop is placed
as if it led down. Notebooks, web pages and `reyn graph` draw what is returned here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from reyn.cells import limited
from reyn.skills.drawing import Edge, edges, node_kind, node_lines, nodes

if TYPE_CHECKING:
    from reyn.skills.values import Skill

MAX_NODES, MAX_EDGES = 40, 120
_MAX_NAME, _MAX_LABEL, _MAX_LINE, _MAX_LINES = 26, 28, 60, 5
_MARGIN, _GAP, _BETWEEN = 18, 26, 24
_HEIGHT, _LINE, _LABEL = 34, 15, 18
_CHAR, _SMALL_CHAR = 7.8, 6.7
_COUNT = 44
"""The room at the right of a node for the number of its visits."""
_PASSING = 5
"""Half the width of an edge that passes a row."""
_SELF = 30
"""How far the loop of a node to itself leads out."""
_CORNER = 22
"""No edge begins or ends so close to a corner of a node."""
_SWEEPS = 8


class PlacedNode(NamedTuple):
    """A node: the middle of its upper side, its size, and the lines below its name."""

    name: str
    kind: str
    text: str
    lines: tuple[str, ...]
    x: float
    y: float
    width: float
    height: float


class PlacedEdge(NamedTuple):
    """An edge: its line and its tip as data of SVG paths, and where its label begins."""

    edge: Edge
    text: str
    curve: str
    tip: str
    x: float
    y: float


class GraphLayout(NamedTuple):
    """A graph with its places, in pixels."""

    width: float
    height: float
    nodes: list[PlacedNode]
    edges: list[PlacedEdge]


def lay_out(skill: Skill, max_nodes: int = MAX_NODES, max_edges: int = MAX_EDGES) -> GraphLayout | None:
    """Return the places of a graph; `None` if it has too many nodes or edges, by default to be read on a page."""
    if len(skill.graph) > max_nodes:
        return None
    names, arrows = nodes(skill), edges(skill)
    if len(names) > max_nodes or len(arrows) > max_edges:
        return None
    return _Plane(skill, names, arrows).layout()


class _NodePlace:
    """What has a place in a row: a node, the label of an edge, or an edge that passes."""

    def __init__(self, left: float, right: float) -> None:
        self.left, self.right = left, right
        self.x = 0.0
        self.order = 0.0
        self.above: list[_NodePlace] = []
        self.below: list[_NodePlace] = []


class _Plane:
    def __init__(self, skill: Skill, names: tuple[str, ...], arrows: tuple[Edge, ...]) -> None:
        self.skill, self.names, self.arrows = skill, names, arrows
        self.lines = {name: tuple(limited(line, _MAX_LINE) for line in node_lines(skill, name)) for name in names}
        self.layer = self._layers()
        self.rows: list[list[_NodePlace]] = [[] for _ in range(2 * max(self.layer.values()) + 1)]
        self.places = {name: self._node_place(name) for name in names}
        self.chains = {id(edge): self._chain(edge) for edge in arrows if edge.source != edge.target}
        self._order()
        self._settle()
        heights = [
            max(self._height(name) for name in names if 2 * self.layer[name] == row) if row % 2 == 0 else _LABEL
            for row in range(len(self.rows))
        ]
        self.tops = [_MARGIN + sum(heights[:row]) + _BETWEEN * row for row in range(len(heights))]
        self.bottoms = [top + height for top, height in zip(self.tops, heights, strict=True)]

    def _layers(self) -> dict[str, int]:
        """Return the length of the longest path to each node; without loops, the graph has no cycle."""
        layer = dict.fromkeys(self.names, 0)
        down = [edge for edge in self.arrows if not edge.is_loop and edge.source != edge.target]
        waits = {name: sum(edge.target == name for edge in down) for name in self.names}
        ready = [name for name in self.names if not waits[name]]
        while ready:
            name = ready.pop(0)
            for edge in down:
                if edge.source == name:
                    layer[edge.target] = max(layer[edge.target], layer[name] + 1)
                    waits[edge.target] -= 1
                    ready += [edge.target] * (not waits[edge.target])
        return layer

    # -- what has a place ---------------------------------------------------------------------------------

    def _node_place(self, name: str) -> _NodePlace:
        half = self._width(name) / 2
        own = [edge for edge in self.arrows if edge.source == edge.target == name]
        place = _NodePlace(half, half + max([_COUNT, *(_SELF + _label_width(edge) for edge in own)]))
        self.rows[2 * self.layer[name]].append(place)
        return place

    def _chain(self, edge: Edge) -> list[_NodePlace]:
        """Return the places of an edge from its upper node to its lower one."""
        upper, lower = sorted((edge.source, edge.target), key=lambda name: self.layer[name])
        first, last = 2 * self.layer[upper], 2 * self.layer[lower]
        chain = [self.places[upper]]
        for row in range(first + 1, last):
            has_label = row == (last - 1 if edge.is_loop else first + 1)
            place = _NodePlace(_PASSING, _label_width(edge) if has_label else _PASSING)
            self.rows[row].append(place)
            chain.append(place)
        chain.append(self.places[lower])
        for one, other in pairwise(chain):
            one.below.append(other)
            other.above.append(one)
        return chain

    def _width(self, name: str) -> float:
        lines = [len(line) * _SMALL_CHAR + 20 for line in self.lines[name][:_MAX_LINES]]
        return max(72.0, len(limited(name, _MAX_NAME)) * _CHAR + (48 if name == self.skill.entry else 28), *lines)

    def _height(self, name: str) -> float:
        return _HEIGHT + _LINE * min(_MAX_LINES, len(self.lines[name]))

    # -- where it is --------------------------------------------------------------------------------------

    def _order(self) -> None:
        """Order each row by what is above and below, so that few edges cross."""
        for row in self.rows:
            _number(row)
        for _ in range(_SWEEPS // 2):
            for rows, direction in ((self.rows, "above"), (self.rows[::-1], "below")):
                for row in rows:
                    row.sort(key=lambda one: _mean(getattr(one, direction), "order", one.order))
                    _number(row)

    def _settle(self) -> None:
        """Set the horizontal places: each at the mean of those above or below, as far as its row has room."""
        for _ in range(_SWEEPS):
            for rows, direction in ((self.rows, "above"), (self.rows[::-1], "below")):
                for row in rows:
                    _spread(row, [_mean(getattr(one, direction), "x", one.x) for one in row])
        left = min(place.x - place.left for row in self.rows for place in row)
        for row in self.rows:
            for place in row:
                place.x = round(place.x - left + _MARGIN, 1)

    def layout(self) -> GraphLayout:
        width = max(place.x + place.right for row in self.rows for place in row) + _MARGIN
        height = self.bottoms[-1] + _MARGIN
        return GraphLayout(round(width), height, [*map(self._node, self.names)], [*map(self._edge, self.arrows)])

    def _node(self, name: str) -> PlacedNode:
        lines = self.lines[name]
        lines = lines if len(lines) <= _MAX_LINES else (*lines[: _MAX_LINES - 1], f"… {len(lines)} lines")
        x, y = self.places[name].x, self.tops[2 * self.layer[name]]
        text, kind = limited(name, _MAX_NAME), node_kind(self.skill, name)
        return PlacedNode(name, kind, text, lines, x, y, self._width(name), self._height(name))

    def _edge(self, edge: Edge) -> PlacedEdge:
        if edge.source == edge.target:
            return self._loop(edge)
        chain, first = self.chains[id(edge)], 2 * min(self.layer[edge.source], self.layer[edge.target])
        labelled = len(chain) - 2 if edge.is_loop else 1
        begin, end = (
            _port(self.places[name], beside, self._width(name) / 2 - _CORNER)
            for name, beside in self._ends(edge, chain)
        )
        upper = edge.target if edge.is_loop else edge.source
        points = [(begin, self.tops[first] + self._height(upper)), (begin, self.bottoms[first])]
        for row, place in enumerate(chain[1:-1], start=first + 1):
            points += [(place.x, self.tops[row]), (place.x, self.bottoms[row])]
        points.append((end, self.tops[first + len(chain) - 1]))
        points = points[::-1] if edge.is_loop else points
        (x, y), side = points[-1], 8 if edge.is_loop else -8
        label = chain[labelled].x + _PASSING + 1, self.bottoms[first + labelled] - 5
        return PlacedEdge(edge, _label(edge), _curve(points), f"M{x:g} {y:g}l-4 {side}h8z", *label)

    def _ends(self, edge: Edge, chain: list[_NodePlace]) -> tuple[tuple[str, _NodePlace], tuple[str, _NodePlace]]:
        upper, lower = (edge.target, edge.source) if edge.is_loop else (edge.source, edge.target)
        return (upper, chain[1]), (lower, chain[-2])

    def _loop(self, edge: Edge) -> PlacedEdge:
        x, y = self.places[edge.source].x + self._width(edge.source) / 2, self.tops[2 * self.layer[edge.source]]
        curve = f"M{x:g} {y + 25:g}C{x + _SELF:g} {y + 30:g} {x + _SELF:g} {y + 4:g} {x:g} {y + 9:g}"
        return PlacedEdge(edge, _label(edge), curve, f"M{x:g} {y + 9:g}l8 -4v8z", x + _SELF - 2, y + 21)


def _label(edge: Edge) -> str:
    return limited(edge.label, _MAX_LABEL)


def _label_width(edge: Edge) -> float:
    return _PASSING + max(24.0, len(_label(edge)) * _SMALL_CHAR + 4)


def _number(row: list[_NodePlace]) -> None:
    for number, place in enumerate(row):
        place.order = number - (len(row) - 1) / 2


def _mean(places: list[_NodePlace], name: str, default: float) -> float:
    return sum(getattr(place, name) for place in places) / len(places) if places else default


def _spread(row: list[_NodePlace], wanted: list[float]) -> None:
    """Place a row near where its parts should be, without overlaps: between the places from the left and the right."""
    from_left, from_right = list(wanted), list(wanted)
    for at in range(1, len(row)):
        room = row[at - 1].right + _GAP + row[at].left
        from_left[at] = max(wanted[at], from_left[at - 1] + room)
    for at in range(len(row) - 2, -1, -1):
        room = row[at].right + _GAP + row[at + 1].left
        from_right[at] = min(wanted[at], from_right[at + 1] - room)
    for place, left, right in zip(row, from_left, from_right, strict=True):
        place.x = (left + right) / 2


def _port(node: _NodePlace, beside: _NodePlace, half: float) -> float:
    """Return where an edge leaves or enters a node: as close to its next place as the side is long."""
    return min(max(beside.x, node.x - half), node.x + half)


def _curve(points: list[tuple[float, float]]) -> str:
    (x, y), path = points[0], f"M{points[0][0]:g} {points[0][1]:g}"
    for x2, y2 in points[1:]:
        if (x, y) == (x2, y2):
            continue
        middle = (y + y2) / 2
        path += f"V{y2:g}" if x == x2 else f"C{x:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"
        x, y = x2, y2
    return path
