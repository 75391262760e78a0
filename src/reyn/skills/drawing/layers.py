"""Assign nodes to layers, from the start mark down, and order each layer to reduce crossings.

An edge that passes through a layer has a stop in it, like a node.
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
    """A position in a layer: a node (`source` is `target`), or an edge that passes through."""

    layer: int
    source: str
    target: str

    @property
    def is_node(self) -> bool:
        return self.source == self.target


class Layers:
    """The stops of every layer from left to right, and the edges of every node."""

    def __init__(self, skill: Skill) -> None:
        self.edges = (entry_edge(skill), *edges(skill))
        self.layer = _layers_of(skill)
        self.routes = {edge: _stops(edge, self.layer) for edge in self.edges if not edge.is_loop}
        self.outgoing: dict[str, list[Edge]] = {}
        self.incoming: dict[str, list[Edge]] = {}
        for edge in self.edges:
            self.outgoing.setdefault(edge.source, []).append(edge)
            self.incoming.setdefault(edge.target, []).append(edge)
        stops = dict.fromkeys(stop for node in (START, *nodes(skill)) for stop in self._stops_from(node))
        rows: list[list[Stop]] = [[] for _ in range(max(self.layer.values()) + 1)]
        for stop in stops:
            rows[stop.layer].append(stop)
        self.rows = _order(rows, [link for route in self.routes.values() for link in pairwise(route)])
        self.place = _places(self.rows)

    def arriving(self, node: str) -> list[Edge]:
        return [edge for edge in self.incoming.get(node, ()) if not edge.is_loop]

    def leaving(self, node: str) -> list[Edge]:
        """Return outgoing edges from left to right; loops come last, and a self-loop after the others."""
        leaving = self.outgoing.get(node, [])
        on = sorted((edge for edge in leaving if not edge.is_loop), key=lambda edge: self.place[self.routes[edge][1]])
        return on + sorted((edge for edge in leaving if edge.is_loop), key=lambda edge: edge.target == node)

    def spare(self, node: str) -> int:
        """Return the number of unused ports on the left that balance loops on the right."""
        return min(2, sum(edge.is_loop for edge in self.outgoing.get(node, ())))

    def edge_of(self, stop: Stop) -> Edge:
        return next(edge for edge in self.outgoing[stop.source] if edge.target == stop.target)

    def has_side(self, node: str) -> bool:
        sources = [edge.source for edge in self.incoming.get(node, ()) if edge.is_loop]
        return node in sources or (bool(sources) and not self.is_last(node))

    def is_last(self, node: str) -> bool:
        """Return whether a node is the rightmost of its layer."""
        return [stop.source for stop in self.rows[self.layer[node]] if stop.is_node][-1] == node

    def roundabout(self, number: int) -> list[str]:
        """Return the nodes of a layer whose loops arrive from above, because other nodes block the margin."""
        here = [stop.source for stop in (self.rows[number] if number < len(self.rows) else ()) if stop.is_node]
        return [node for node in here[:-1] if any(e.is_loop and e.source != node for e in self.incoming.get(node, ()))]

    def _stops_from(self, node: str) -> Iterator[Stop]:
        yield Stop(self.layer[node], node, node)
        for edge in self.outgoing.get(node, ()):
            yield from self.routes.get(edge, ())[1:-1]


def _layers_of(skill: Skill) -> dict[str, int]:
    """Return the layer of each node: one below its lowest predecessor. Layer 0 has the start mark."""
    _, ordered, loops = walk(skill)
    layers = dict.fromkeys(ordered, 1) | {START: 0}
    for node in ordered:
        for target in targets_of(skill, node):
            if (node, target) not in loops:
                layers[target] = max(layers[target], layers[node] + 1)
    return layers


def _stops(edge: Edge, layers: Mapping[str, int]) -> list[Stop]:
    """Return the stops of an edge, layer by layer."""
    first, last = layers[edge.source], layers[edge.target]
    between = [Stop(layer, edge.source, edge.target) for layer in range(first + 1, last)]
    return [Stop(first, edge.source, edge.source), *between, Stop(last, edge.target, edge.target)]


def _order(rows: list[list[Stop]], links: list[tuple[Stop, Stop]]) -> list[list[Stop]]:
    """Return the author's order, or one with fewer crossings, found by the barycentre heuristic."""
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
            mean = {stop: fmean(place[near] for near in neighbours.get(stop, [stop])) for stop in row}
            row.sort(key=mean.__getitem__)
            place |= _places([row])
        count = _crossings(rows, links)
        if count < fewest:
            best, fewest = rows, count
    return best


def _places(rows: list[list[Stop]]) -> dict[Stop, int]:
    return {stop: place for row in rows for place, stop in enumerate(row)}


def _crossings(rows: list[list[Stop]], links: list[tuple[Stop, Stop]]) -> int:
    """Return the number of pairs of links that cross."""
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
