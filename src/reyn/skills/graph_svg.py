"""Draw the graph of a skill in layers as SVG for a notebook, with the path of a run, and list a large one.

It needs no program and no script. `drawing` has the nodes and edges; `to_svg` there uses Graphviz.
"""

from __future__ import annotations

import msgspec

from reyn.cells import ACCENT, MAX_LINES, Html, MimeBundle, bundle, element, limited, mimebundle, preformatted
from reyn.skills.drawing import Edge, edges, node_kind, nodes, to_text
from reyn.skills.values import END, Skill

_MAX_NODES, _MAX_EDGES, _MAX_LISTED = 40, 120, 5_000
_MAX_LABEL, _MAX_NUMBERS = 24, 3
_ROW, _HEIGHT, _GAP, _MARGIN, _CHAR = 74, 30, 28, 16, 7.5
_DOT = 8
"""The width of the place at which an edge passes a layer."""


class VisitedEdge(msgspec.Struct):
    """How often a run took an edge, and the numbers of the first visits after it."""

    count: int = 0
    numbers: list[int] = []

    @property
    def label(self) -> str:
        more = f" … {self.count}x" if self.count > len(self.numbers) else ""
        return f"{', '.join(map(str, self.numbers))}{more}"


class VisitedPath:
    """The path of a run through its graph, collected visit by visit. It grows with the graph, not with the run."""

    def __init__(self) -> None:
        self.visits = 0
        self.nodes: dict[str, int] = {}
        self.edges: dict[tuple[str, str], VisitedEdge] = {}
        self.last = ""

    def enter(self, node: str) -> None:
        """Add a visit of a node, or the end."""
        self.visits += node != END
        self.nodes[node] = self.nodes.get(node, 0) + 1
        if self.last:
            edge = self.edges.setdefault((self.last, node), VisitedEdge())
            edge.count += 1
            edge.numbers += [self.visits + (node == END)] if len(edge.numbers) < _MAX_NUMBERS else []
        self.last = node

    def leave(self) -> None:
        """Take no edge to the next node: the run goes back, or repeats a visit."""
        self.last = ""


def graph_html(skill: Skill, path: VisitedPath | None = None) -> Html:
    """Return the graph with a path; of a graph that is too large to draw, a list."""
    path = path or VisitedPath()
    if len(skill.graph) < _MAX_NODES:
        names, arrows = nodes(skill), edges(skill)
        if len(names) <= _MAX_NODES and len(arrows) <= _MAX_EDGES:
            return _Drawing(skill, names, arrows, path).svg()
    if not path.nodes:
        return preformatted("\n".join(_listing(skill, MAX_LINES)))
    listed = [f"{name}  {count:,}x" for name, count in list(path.nodes.items())[:MAX_LINES]]
    return preformatted("\n".join([f"{len(path.nodes):,} of {len(skill.graph):,} nodes visited:", *listed]))


def _listing(skill: Skill, most: int) -> list[str]:
    """Return the nodes with their edges, truncated; of a very large graph, the nodes alone."""
    if len(skill.graph) + sum(map(len, skill.graph.values())) <= _MAX_LISTED:
        lines = to_text(skill).splitlines()
    else:
        lines = [f"{name}  {len(targets):,} edges" for name, targets in skill.graph.items()]
    return [*lines[:most], f"… {len(skill.graph):,} nodes in all"] if len(lines) > most else lines


class _Drawing:
    """A graph in layers: each node below all that lead to it, loops at the right."""

    def __init__(self, skill: Skill, names: tuple[str, ...], arrows: tuple[Edge, ...], path: VisitedPath) -> None:
        self.skill, self.names, self.arrows, self.path = skill, names, arrows, path
        self.down = [edge for edge in arrows if not edge.is_loop]
        self.layer = self._layers()
        self.labels = {name: limited(name, _MAX_LABEL) for name in names}
        self.x: dict[object, float] = {}
        self.width = self._place()

    def _layers(self) -> dict[str, int]:
        """Return the length of the longest path to each node; without loops, the graph has no cycle."""
        layer = dict.fromkeys(self.names, 0)
        waits = {name: sum(edge.target == name for edge in self.down) for name in self.names}
        ready = [name for name in self.names if not waits[name]]
        while ready:
            name = ready.pop(0)
            for edge in self.down:
                if edge.source == name:
                    layer[edge.target] = max(layer[edge.target], layer[name] + 1)
                    waits[edge.target] -= 1
                    ready += [edge.target] * (not waits[edge.target])
        return layer

    def _stops(self, edge: Edge) -> list[tuple[object, int]]:
        """Return the layers that an edge passes, each with a place of its own, between source and target."""
        first, last = self.layer[edge.source], self.layer[edge.target]
        return [((edge, level), level) for level in range(first + 1, last)]

    def _place(self) -> float:
        """Set the horizontal places, each below the mean of those above it; return the width."""
        above: dict[object, list[object]] = {name: [] for name in self.names}
        rows: list[list[object]] = [[] for _ in range(max(self.layer.values()) + 1)]
        for name in self.names:
            rows[self.layer[name]].append(name)
        for edge in self.down:
            before: object = edge.source
            for place, level in self._stops(edge):
                rows[level].append(place)
                above[place], before = [before], place
            above[edge.target].append(before)
        widths = [sum(map(self._width, row)) + _GAP * (len(row) - 1) for row in rows]
        for row, width in zip(rows, widths, strict=True):
            row.sort(key=lambda one: sum(self.x[other] for other in above[one]) / max(1, len(above[one])))
            left = _MARGIN + (max(widths) - width) / 2
            for one in row:
                self.x[one] = left + self._width(one) / 2
                left += self._width(one) + _GAP
        return max(widths) + 2 * _MARGIN

    def _width(self, one: object) -> float:
        return max(48.0, len(self.labels[one]) * _CHAR + 20) if isinstance(one, str) else _DOT

    def _y(self, layer: int) -> float:
        return _MARGIN + layer * _ROW

    def svg(self) -> Html:
        loops = [edge for edge in self.arrows if edge.is_loop]
        taken = self.path.edges
        parts = [self._edge(edge) for edge in sorted(self.down, key=lambda one: (one.source, one.target) in taken)]
        parts += [self._loop(edge, number) for number, edge in enumerate(loops, start=1)]
        width = self.width + (70 if loops else 40) + 10 * len(loops)
        height = self._y(max(self.layer.values())) + _HEIGHT + _MARGIN
        names = [self._node(name) for name in self.names]
        style = "font: 12px sans-serif; max-width: none; color: inherit"
        size = {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
        return element("svg", *parts, *names, role="img", style=style, **size)

    def _node(self, name: str) -> Html:
        x, y, width = self.x[name], self._y(self.layer[name]), self._width(name)
        count, kind = self.path.nodes.get(name, 0), node_kind(self.skill, name)
        line = {"stroke": ACCENT if count else "currentColor", "stroke_width": 2 if count else 1}
        fill = {"fill": ACCENT if count else "none", "fill_opacity": 0.12}
        corner = {"rx": _HEIGHT / 2 if kind in ("end", "rules") else 4}
        dashes = {"stroke_dasharray": "6 2"} if kind in ("skill", "fan_out") else {}
        place = {"x": f"{x - width / 2:g}", "y": f"{y:g}", "width": f"{width:g}", "height": _HEIGHT}
        title = element("title", f"{name} ({kind})" + (f": {count:,}x" if count else ""))
        marks = [_text(x + width / 2 - 2, y - 3, f"{count:,}x", "end")] if count > 1 else []
        marks += [_text(x - width / 2 - 4, y + 19, "▶", "end")] if name == self.skill.entry else []
        box = element("rect", **place, **fill, **line, **corner, **dashes)
        return element("g", title, box, _text(x, y + 19, self.labels[name], "middle"), *marks)

    def _edge(self, edge: Edge) -> Html:
        places = [(edge.source, self.layer[edge.source]), *self._stops(edge), (edge.target, self.layer[edge.target])]
        points = [(self.x[place], self._y(layer) + (0 if place == edge.target else _HEIGHT)) for place, layer in places]
        curve = f"M{points[0][0]:g} {points[0][1]:g}"
        for (x1, y1), (x2, y2), (place, _) in zip(points, points[1:], places[1:], strict=False):
            top = y2 if place == edge.target else y2 - _HEIGHT
            middle = (y1 + top) / 2
            curve += f"C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {top:g}" + (f"V{y2:g}" if top != y2 else "")
        x, y = points[-1]
        tip = f"M{x:g} {y:g}l-4 -8h8z"
        (x1, y1), (x2, y2) = points[:2]
        return self._line(edge, curve, tip, ((x1 + x2) / 2 + 5, (y1 + min(y2, y1 + _ROW - _HEIGHT)) / 2 + 4))

    def _loop(self, edge: Edge, number: int) -> Html:
        side = self.width + 10 * number
        ends = [
            (self.x[name] + self._width(name) / 2, self._y(self.layer[name])) for name in (edge.source, edge.target)
        ]
        (x1, y1), (x2, y2) = (ends[0][0], ends[0][1] + 22), (ends[1][0], ends[1][1] + 9)
        curve = f"M{x1:g} {y1:g}C{side:g} {y1:g} {side:g} {y2:g} {x2:g} {y2:g}"
        return self._line(edge, curve, f"M{x2:g} {y2:g}l8 -4v8z", (side - (side - max(x1, x2)) / 4, (y1 + y2) / 2 + 4))

    def _line(self, edge: Edge, curve: str, tip: str, at: tuple[float, float]) -> Html:
        taken = self.path.edges.get((edge.source, edge.target))
        colour, width = (ACCENT, 2.5) if taken else ("currentColor", 1)
        dashes = {"stroke_dasharray": "4 3"} if edge.is_loop else {}
        line = element("path", d=curve, fill="none", stroke=colour, stroke_width=width, **dashes)
        label = [_text(*at, taken.label, "start")] if taken else []
        title = element("title", limited(f"{edge.source} → {edge.target}: {edge.label}", 120))
        return element("g", title, line, element("path", d=tip, fill=colour), *label)


def _text(x: float, y: float, text: str, anchor: str) -> Html:
    return element("text", text, x=f"{x:g}", y=f"{y:g}", text_anchor=anchor, fill="currentColor")


@mimebundle.register(Skill)
def _(skill: Skill) -> MimeBundle:
    about = f": {skill.description}" if skill.description else ""
    text = "\n".join([f"skill {skill.name}{about}", *_listing(skill, 2 * MAX_LINES)])
    head = element("div", "skill ", element("b", skill.name), about)
    result = element("div", f"result: {skill.result.name}")
    return bundle(text, head, graph_html(skill), result)
