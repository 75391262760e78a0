"""A graph becomes layers, from the start mark downwards, each in an order that makes few lines cross.

An edge that passes a layer has a place in it, as a node has. Knows nothing of columns, rows or widths.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from reyn.skills.drawing.graph import START, Edge, edges, entry_edge, nodes, targets_of, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reyn.skills.values import Skill

_SWEEPS = 4


class Stop(NamedTuple):
    """A place in a layer: of a node (`source` is `target`), or of an edge that passes the layer."""

    layer: int
    source: str
    target: str

    @property
    def is_node(self) -> bool:
        return self.source == self.target


class Layers:
    """The stops of every layer from left to right, and what arrives at a node and leaves it."""

    def __init__(self, skill: Skill) -> None:
        self.edges = (entry_edge(skill), *edges(skill))
        self.layer = _layers_of(skill)
        self.ways = {edge: _stops(edge, self.layer) for edge in self.edges if not edge.is_loop}
        self.outgoing: dict[str, list[Edge]] = {}
        self.incoming: dict[str, list[Edge]] = {}
        for edge in self.edges:
            self.outgoing.setdefault(edge.source, []).append(edge)
            self.incoming.setdefault(edge.target, []).append(edge)
        met = dict.fromkeys(stop for node in (START, *nodes(skill)) for stop in self._stops_from(node))
        rows: list[list[Stop]] = [[] for _ in range(max(self.layer.values()) + 1)]
        for stop in met:
            rows[stop.layer].append(stop)
        self.rows = _order(rows, [link for way in self.ways.values() for link in pairwise(way)])
        self.place = _places(self.rows)

    def arriving(self, node: str) -> list[Edge]:
        return [edge for edge in self.incoming.get(node, ()) if not edge.is_loop]

    def leaving(self, node: str) -> list[Edge]:
        """From left to right as they go on; loops turn off on the right, the one to itself last."""
        leaving = self.outgoing.get(node, [])
        on = sorted((edge for edge in leaving if not edge.is_loop), key=lambda edge: self.place[self.ways[edge][1]])
        return on + sorted((edge for edge in leaving if edge.is_loop), key=lambda edge: edge.target == node)

    def spare(self, node: str) -> int:
        """Ports left free on the left for loops on the right, so that what leads on leaves from the middle."""
        return min(2, sum(edge.is_loop for edge in self.outgoing.get(node, ())))

    def edge_of(self, stop: Stop) -> Edge:
        return next(edge for edge in self.outgoing[stop.source] if edge.target == stop.target)

    def has_side(self, node: str) -> bool:
        sources = [edge.source for edge in self.incoming.get(node, ()) if edge.is_loop]
        return node in sources or (bool(sources) and not self.is_last(node))

    def is_last(self, node: str) -> bool:
        """Whether no other node stands between it and the margin."""
        return [stop.source for stop in self.rows[self.layer[node]] if stop.is_node][-1] == node

    def roundabout(self, number: int) -> list[str]:
        """The nodes of a layer whose loops come from above, because other nodes stand between them and the margin."""
        here = [stop.source for stop in (self.rows[number] if number < len(self.rows) else ()) if stop.is_node]
        return [node for node in here[:-1] if any(e.is_loop and e.source != node for e in self.incoming.get(node, ()))]

    def _stops_from(self, node: str) -> Iterator[Stop]:
        yield Stop(self.layer[node], node, node)
        for edge in self.outgoing.get(node, ()):
            yield from self.ways.get(edge, ())[1:-1]


def _layers_of(skill: Skill) -> dict[str, int]:
    """Each node one layer below the lowest node that leads to it; layer 0 is the start mark's."""
    _, ordered, loops = walk(skill)
    layers = dict.fromkeys(ordered, 1) | {START: 0}
    for node in ordered:
        for target in targets_of(skill, node):
            if (node, target) not in loops:
                layers[target] = max(layers[target], layers[node] + 1)
    return layers


def _stops(edge: Edge, layers: Mapping[str, int]) -> list[Stop]:
    """The way of an edge that leads on, layer by layer."""
    first, last = layers[edge.source], layers[edge.target]
    between = [Stop(layer, edge.source, edge.target) for layer in range(first + 1, last)]
    return [Stop(first, edge.source, edge.source), *between, Stop(last, edge.target, edge.target)]


def _order(rows: list[list[Stop]], links: list[tuple[Stop, Stop]]) -> list[list[Stop]]:
    """The author's order, or one with fewer crossings: each stop moves to the mean of its neighbours."""
    above: dict[Stop, list[Stop]] = {}
    below: dict[Stop, list[Stop]] = {}
    for upper, lower in links:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    best, fewest = rows, _crossings(rows, links)
    for sweep in range(_SWEEPS):
        neighbours = below if sweep % 2 else above
        rows = [list(row) for row in rows]
        place = _places(rows)
        for row in reversed(rows) if sweep % 2 else rows:
            wish = {stop: fmean(place[near] for near in neighbours.get(stop, [stop])) for stop in row}
            row.sort(key=wish.__getitem__)
            place |= _places([row])
        count = _crossings(rows, links)
        if count < fewest:
            best, fewest = rows, count
    return best


def _places(rows: list[list[Stop]]) -> dict[Stop, int]:
    return {stop: place for row in rows for place, stop in enumerate(row)}


def _crossings(rows: list[list[Stop]], links: list[tuple[Stop, Stop]]) -> int:
    """How many pairs of links between the same two layers stand in opposite orders above and below."""
    place = _places(rows)
    by_layer: dict[int, list[tuple[int, int]]] = {}
    for upper, lower in links:
        by_layer.setdefault(upper.layer, []).append((place[upper], place[lower]))
    count = 0
    for pairs in by_layer.values():
        seen: list[int] = []
        for _, lower_place in sorted(pairs):
            count += len(seen) - bisect_right(seen, lower_place)
            insort(seen, lower_place)
    return count
