"""Where the nodes and edges of a graph are drawn: nothing covers anything else, whatever the graph is."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from reyn.skills.graph_layout import MAX_NODES, GraphLayout, lay_out
from reyn.skills.values import ArtifactType, Phase, Skill
from tests.support import load_skill

_CHAR = 6.7  # of the small font in which labels are drawn


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def covers(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def has_at_its_side(self, x: float, y: float) -> bool:
        sides = (x - self.left, y - self.top, self.right - x, self.bottom - y)
        return min(map(abs, sides)) < 1


@st.composite
def skills(draw: st.DrawFn) -> Skill:
    names = [f"n{number}" * draw(st.integers(1, 4)) for number in range(draw(st.integers(1, 9)))]
    targets = st.lists(st.sampled_from([*names, "end"]), unique=True, max_size=3)
    graph = {name: tuple(draw(targets)) for name in names}
    texts = {name: {target: draw(st.sampled_from(["", "when it is done"])) for target in graph[name]} for name in names}
    note = ArtifactType("note", {})
    return Skill("drawn", names[0], {name: Phase(name, (note,), "") for name in names}, graph, note, edge_texts=texts)


def points(curve: str) -> list[tuple[float, float]]:
    """Return points along the data of a path."""
    found: list[tuple[float, float]] = []
    for kind, numbers in re.findall("([MVC])([^MVC]*)", curve):
        values = [float(one) for one in numbers.split()]
        begin = found[-1] if found else (0.0, 0.0)
        if kind == "M":
            found.append((values[0], values[1]))
        elif kind == "V":
            found += [(begin[0], begin[1] + (values[0] - begin[1]) * part / 8) for part in range(1, 9)]
        else:
            corners = [begin, (values[0], values[1]), (values[2], values[3]), (values[4], values[5])]
            for part in range(1, 17):
                t = part / 16
                weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
                found.append(
                    tuple(sum(w * corner[i] for w, corner in zip(weights, corners, strict=True)) for i in (0, 1))
                )  # type: ignore[arg-type]
    return found


def boxes(layout: GraphLayout) -> list[Box]:
    nodes = [Box(one.x - one.width / 2, one.y, one.x + one.width / 2, one.y + one.height) for one in layout.nodes]
    labels = [Box(one.x, one.y - 9, one.x + len(one.text) * _CHAR, one.y + 2) for one in layout.edges if one.text]
    return nodes + labels


@settings(max_examples=25)
@given(skills())
def test_nothing_covers_anything_else(skill: Skill):
    layout = lay_out(skill)
    assert layout is not None
    found = boxes(layout)
    assert not [pair for pair in combinations(found, 2) if pair[0].covers(pair[1])]
    for box in found:
        assert 0 <= box.left <= box.right <= layout.width
        assert 0 <= box.top <= box.bottom <= layout.height
    for edge in layout.edges:
        for x, y in points(edge.curve)[1:-1]:
            assert not [box for box in found if box.covers(Box(x, y, x, y)) and not box.has_at_its_side(x, y)], edge


@settings(max_examples=25)
@given(skills())
def test_an_edge_leads_from_its_source_to_its_target(skill: Skill):
    layout = lay_out(skill)
    assert layout is not None
    nodes = {
        one.name: Box(one.x - one.width / 2, one.y, one.x + one.width / 2, one.y + one.height) for one in layout.nodes
    }
    for one in layout.edges:
        ends = points(one.curve)
        for name, (x, y) in ((one.edge.source, ends[0]), (one.edge.target, ends[-1])):
            box = nodes[name]
            assert box.has_at_its_side(x, y)
            assert box.left - 1 < x < box.right + 1
            assert box.top - 1 < y < box.bottom + 1


def test_a_node_has_what_it_runs():
    layout = lay_out(load_skill(Path("examples/graphs/reyn/project/sections")))
    assert layout is not None
    [node] = [one for one in layout.nodes if one.name == "write_all"]
    assert (node.kind, node.lines) == ("fan_out", ("each data.topics ⇉ write (section), 4 at a time",))


def test_a_graph_that_cannot_be_read_as_a_drawing_has_no_layout():
    note = ArtifactType("note", {})
    names = [f"n{number}" for number in range(MAX_NODES + 1)]
    graph = {name: (names[at + 1],) if at < MAX_NODES else ("end",) for at, name in enumerate(names)}
    assert lay_out(Skill("large", "n0", {name: Phase(name, (note,), "") for name in names}, graph, note)) is None
