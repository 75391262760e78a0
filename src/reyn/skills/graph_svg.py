"""Draw the graph of a skill as SVG: a file, or a part of a notebook with the path of a run; list a large one there.

It needs no program and no script. `graph_layout` places nodes and edges.
"""

from __future__ import annotations

from copy import copy

import msgspec

from reyn.cells import ACCENT, MAX_LINES, Html, MimeBundle, bundle, element, limited, mimebundle, preformatted
from reyn.errors import GraphTooLarge
from reyn.skills.drawing import state_lines, to_text
from reyn.skills.graph_layout import GraphLayout, PlacedEdge, PlacedNode, lay_out
from reyn.skills.values import END, Skill

_MAX_LISTED, _MAX_NUMBERS, _MAX_STATE = 5_000, 3, 60
_FONT = "font: 13px monospace"
_SMALL_CHAR = 6.7
_SMALL = 11
_MAX_FILE_NODES, _MAX_FILE_EDGES = 150, 400
"""A file can be larger than a page."""


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

    def copy(self) -> VisitedPath:
        """Return a path that goes on from the same place."""
        other = copy(self)
        other.nodes = dict(self.nodes)
        other.edges = {key: VisitedEdge(edge.count, [*edge.numbers]) for key, edge in self.edges.items()}
        return other


def to_svg(skill: Skill) -> str:
    """Return the graph as an SVG file.

    Raises:
        GraphTooLarge: It has too many nodes or edges.
    """
    layout = lay_out(skill, _MAX_FILE_NODES, _MAX_FILE_EDGES)
    if layout is None:
        raise GraphTooLarge(f"a drawing has at most {_MAX_FILE_NODES} nodes and {_MAX_FILE_EDGES} edges")
    page = {"xmlns": "http://www.w3.org/2000/svg", "style": f"{_FONT}; color: black; background: white"}
    return f"{_drawing(layout, skill, VisitedPath(), page)}\n"


def graph_html(skill: Skill, path: VisitedPath | None = None) -> Html:
    """Return the graph with a path; of a graph that is too large to draw, a list."""
    path = path or VisitedPath()
    if (layout := lay_out(skill)) is not None:
        return _drawing(layout, skill, path, {"style": f"{_FONT}; max-width: none; color: inherit"})
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


def _drawing(layout: GraphLayout, skill: Skill, path: VisitedPath, attributes: dict[str, str]) -> Html:
    """Draw nodes and edges, and the state below them."""
    ordered = sorted(layout.edges, key=lambda one: (one.edge.source, one.edge.target) in path.edges)
    parts = [_edge(one, path) for one in ordered] + [_node(one, skill.entry, path) for one in layout.nodes]
    state = [limited(line, _MAX_STATE) for line in state_lines(skill)]
    parts += [_text(5, layout.height + 15 * row, line, "start", _SMALL) for row, line in enumerate(state)]
    width = max([layout.width, *(10 + _SMALL_CHAR * len(line) for line in state)])
    height = layout.height + 15 * len(state)
    size = {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
    return element("svg", *parts, role="img", **attributes, **size)


def _node(node: PlacedNode, entry: str, path: VisitedPath) -> Html:
    x, y, half, count = node.x, node.y, node.width / 2, path.nodes.get(node.name, 0)
    line = {"stroke": ACCENT if count else "currentColor", "stroke_width": 2 if count else 1}
    fill = {"fill": ACCENT if count else "none", "fill_opacity": 0.12}
    corner = {"rx": 17 if node.kind in ("end", "rules") else 5}
    dashes = {"stroke_dasharray": "6 2"} if node.kind in ("skill", "fan_out") else {}
    place = {"x": f"{x - half:g}", "y": f"{y:g}", "width": f"{node.width:g}", "height": f"{node.height:g}"}
    title = element("title", f"{node.name} ({node.kind})" + (f": {count:,}x" if count else ""))
    marks = [_text(x + half + 5, y + node.height - 3, f"{count:,}x", "start", _SMALL)] if count > 1 else []
    marks += [_text(x - half + 5, y + 21, "▶", "start", _SMALL)] if node.name == entry else []
    marks += [_text(x, y + 37 + 15 * row, line, "middle", _SMALL) for row, line in enumerate(node.lines)]
    return element("g", title, element("rect", **place, **fill, **line, **corner, **dashes), _name(node), *marks)


def _name(node: PlacedNode) -> Html:
    return _text(node.x, node.y + 22, node.text, "middle")


def _edge(one: PlacedEdge, path: VisitedPath) -> Html:
    edge = one.edge
    taken = path.edges.get((edge.source, edge.target))
    colour, width = (ACCENT, 2.5) if taken else ("currentColor", 1)
    dashes = {"stroke_dasharray": "4 3"} if edge.is_loop else {}
    line = element("path", d=one.curve, fill="none", stroke=colour, stroke_width=width, **dashes)
    label = taken.label if taken else "" if path.nodes else one.text
    title = element("title", limited(f"{edge.source} → {edge.target}: {edge.label}", 120))
    tip = element("path", d=one.tip, fill=colour)
    return element("g", title, line, tip, *([_text(one.x, one.y, label, "start", _SMALL)] if label else []))


def _text(x: float, y: float, text: str, anchor: str, size: int | None = None) -> Html:
    font = {} if size is None else {"font_size": size}
    return element("text", text, x=f"{x:g}", y=f"{y:g}", text_anchor=anchor, fill="currentColor", **font)


@mimebundle.register(Skill)
def _(skill: Skill) -> MimeBundle:
    about = f": {skill.description}" if skill.description else ""
    text = "\n".join([f"skill {skill.name}{about}", *_listing(skill, 2 * MAX_LINES)])
    head = element("div", "skill ", element("b", skill.name), about)
    result = element("div", f"result: {skill.result.name}")
    return bundle(text, head, graph_html(skill), result)
