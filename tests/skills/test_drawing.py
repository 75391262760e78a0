"""Drawings of skills: every edge can be followed from its source to its target."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from reyn.cli.commands.graph import command
from reyn.skills import ArtifactType, Phase, Skill
from reyn.skills.drawing import MAX_COLUMNS, edges, nodes, to_mermaid, to_svg, to_text
from reyn.skills.drawing.listing import to_listing
from tests.support import load_skill, write_skill

UP, DOWN, LEFT, RIGHT = (-1, 0), (1, 0), (0, -1), (0, 1)
OPEN = {UP: "│╎└╰┘╯├┤┴┼", DOWN: "│╎┌╭┐╮├┤┬┼", LEFT: "─╌┐╮┘╯┤┬┴┼", RIGHT: "─╌┌╭└╰├┬┴┼"}
BOX = re.compile(r"[│║] *(?:◉ )?(@?\w+) *[│║]")


class Reader:
    """Traces the lines of a text drawing: straight over crossings, and along loops to their arrowhead."""

    def __init__(self, drawing: str) -> None:
        self.lines = drawing.splitlines()
        self.boxes: dict[tuple[int, int], str] = {}
        self.ports: list[tuple[str, int, int]] = []
        for row, line in enumerate(self.lines):
            for column in range(len(line)):
                found = BOX.match(line, column)
                if found and self.at(row - 1, column) in "┌╔╭" and self.at(row - 1, found.end() - 1) in "┐╗╮":
                    inside = range(column, found.end())
                    self.boxes |= {(r, c): found[1] for r in (row - 1, row, row + 1) for c in inside}
                    self.ports += [(found[1], row + 1, c) for c in inside if self.at(row + 1, c) in "┬╤"]

    def at(self, row: int, column: int) -> str:
        line = self.lines[row] if 0 <= row < len(self.lines) else ""
        return line[column] if 0 <= column < len(line) else " "

    def edges(self) -> list[tuple[str, str]]:
        return sorted((source, self.follow(row, column)) for source, row, column in self.ports)

    def entry(self) -> str:
        row, column = next((r, line.index("●")) for r, line in enumerate(self.lines) if "●" in line)
        return self.follow(row, column)

    def follow(self, row: int, column: int) -> str:
        way = DOWN
        while True:
            row, column = row + way[0], column + way[1]
            assert (row, column) not in self.boxes
            char = self.at(row, column)
            if char in "▼◀":
                assert way == (DOWN if char == "▼" else LEFT)
                return self.boxes[row + way[0], column + way[1]]
            way = self.turn(row, column, way)

    def turn(self, row: int, column: int, way: tuple[int, int]) -> tuple[int, int]:
        open_ways = {one for one, chars in OPEN.items() if self.at(row, column) in chars}
        open_ways.remove((-way[0], -way[1]))
        if len(open_ways) == 1:
            return open_ways.pop()
        if len(open_ways) == 2 and LEFT in open_ways and self.lines[row][:column].rstrip("╌").endswith("◀"):
            return LEFT
        return way if way in open_ways else UP


def make(graph: dict[str, list[str]], *, can_finish: tuple[str, ...] = (), **inputs: str) -> Skill:
    names = dict.fromkeys([*graph, *(name for names in graph.values() for name in names)])
    phases = {
        name: Phase(name, (ArtifactType(inputs.get(name, "note"), True),), "Do.", can_finish=name in can_finish)
        for name in names
        if name != "end" and not name.startswith("@")
    }
    taken = {name: tuple(targets) for name, targets in graph.items()}
    return Skill("s", next(iter(graph)), phases, taken, ArtifactType("report", True))


def pairs(skill: Skill) -> list[tuple[str, str]]:
    return sorted((edge.source, edge.target) for edge in edges(skill))


def listing_edges(text: str) -> list[tuple[str, str]]:
    """Return the edges in the listing of a graph that is too large to draw."""
    found, source = [], ""
    for line in text.splitlines()[3:]:
        if line.startswith(" "):
            found.append((source, re.sub(r"^ *.─. |◉ | \(.*", "", line)))
        else:
            source = line.strip("[]")
    return sorted(found)


def svg_paths(drawing: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(drawing).findall(".//{http://www.w3.org/2000/svg}path")


def svg_edges(drawing: str) -> list[tuple[str, str]]:
    titles = [path[0].text or "" for path in svg_paths(drawing)]
    return sorted((words[0], words[2]) for words in (title.replace(":", "").split() for title in titles))


def mermaid_edges(source: str) -> list[tuple[str, str]]:
    names = dict(re.findall(r'^ +(n\d+)[\[(]+"(.*?)"', source, re.MULTILINE))
    arrows = re.findall(r'^ +(n\d+) -\.?-?>(?:\|"[^"]*"\|)? (n\d+)$', source, re.MULTILINE)
    return sorted((names[one], names[two]) for one, two in arrows)


GRAPHS = {
    "line": {"a": ["b"], "b": ["c"], "c": ["end"]},
    "branch": {"a": ["b", "c", "d"], "b": [], "c": [], "d": []},
    "diamond": {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": ["end"]},
    "short cuts": {"a": ["b", "c", "d", "end"], "b": ["c", "end"], "c": ["d", "end"], "d": ["end"]},
    "loop": {"a": ["b"], "b": ["a", "c"], "c": ["end"]},
    "loops that meet": {"a": ["b"], "b": ["a", "c"], "c": ["a", "b", "end"]},
    "loop to itself": {"a": ["a", "end"]},
    "loop around a neighbour": {"a": ["b", "c"], "b": ["b", "d"], "c": ["c", "a", "d"], "d": ["b", "end"]},
    "sub-skills": {"a": ["@x", "b"], "@x": ["b"], "b": ["a", "@y"], "@y": []},
    "everything": {name: [*"abcd", "end"] for name in "abcd"},
    "two by two": {"s": ["a", "b"], "a": ["c", "d"], "b": ["c", "d"], "c": ["a"], "d": ["end"]},
    "not reached": {"a": ["end"], "b": ["a"], "c": ["c"]},
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
def test_every_format_has_every_edge_once(graph: dict[str, list[str]]):
    skill = make(graph)
    reader = Reader(to_text(skill))
    assert reader.edges() == svg_edges(to_svg(skill)) == mermaid_edges(to_mermaid(skill)) == pairs(skill)
    assert reader.entry() == skill.entry


def test_edges_are_the_authors_and_those_to_end():
    skill = make({"a": ["b", "b", "a"], "b": ["@x", "end"], "@x": []}, can_finish=("a",))
    assert pairs(skill) == [("@x", "end"), ("a", "a"), ("a", "b"), ("a", "end"), ("b", "@x"), ("b", "end")]
    assert {(edge.source, edge.target) for edge in edges(skill) if edge.is_loop} == {("a", "a")}


def test_a_text_drawing_matches_its_golden_copy():
    skill = make({"draft": ["review"], "review": ["draft", "@check"], "@check": ["end"]}, draft="guest")
    assert to_text(skill) == (
        "     ● entry\n"
        "     ▼ guest\n"
        " ┌───────┐\n"
        " │ draft │◀╌╌╌╌╌╮\n"
        " └───┬───┘      ╎\n"
        "     ▼ note     ╎\n"
        "┌─────────┐     ╎\n"
        "│ review  │     ╎\n"
        "└────┬──┬─┘     ╎\n"
        "     │  ╰╌╌╌╌╌╌╌╯\n"
        "     ▼\n"
        "╔═════════╗\n"
        "║ @check  ║\n"
        "╚════╤════╝\n"
        "     ▼ report\n"
        " ╭───────╮\n"
        " │ ◉ end │\n"
        " ╰───────╯\n"
    )


def test_mermaid_ids_are_not_keywords():
    assert to_mermaid(make({"graph": ["graph", "@sub"], "@sub": ["end"]})) == (
        "flowchart TD\n"
        '    start(["entry"])\n'
        '    n0["graph"]\n'
        '    n1[["@sub"]]\n'
        '    n2((("end")))\n'
        '    start -->|"note"| n0\n'
        '    n0 -.->|"note"| n0\n'
        "    n0 --> n1\n"
        '    n1 -->|"report"| n2\n'
    )


def test_special_characters_are_escaped():
    skill = make({"a": ["end"]}, a='<b> & "c" #1')
    assert '"<b> & #quot;c#quot; #35;1"' in to_mermaid(skill)
    assert '<b> & "c" #1' in "".join(ElementTree.fromstring(to_svg(skill)).itertext())


def test_svg_is_standalone_and_uses_the_current_colour():
    drawing = to_svg(make({"a": ["a", "@b"], "@b": ["end"]}))
    assert re.findall(r"https?://[^\"]*", drawing) == ["http://www.w3.org/2000/svg"]
    assert "script" not in drawing
    assert set(re.findall(r'(?:stroke|fill)="([^"]*)"', drawing)) == {"currentColor", "none"}
    assert [path.get("stroke-dasharray") is not None for path in svg_paths(drawing)] == [True, False, False]
    assert drawing.count("<rect") == 4  # a, @b with its double border, end


@pytest.mark.parametrize(
    "graph",
    [
        {f"p{n}": [f"p{n + 1}", f"p{max(n - 1, 0)}", "end"] for n in range(33)},
        {"a": ["x" * 60, "y" * 60], "x" * 60: ["end"], "y" * 60: ["a", "@z"]},
    ],
    ids=["too many", "too wide"],
)
def test_a_graph_that_is_too_large_for_a_terminal_is_listed(graph: dict[str, list[str]]):
    skill = make(graph)
    text = to_text(skill)
    assert "too large to draw" in text.splitlines()[0]
    assert listing_edges(text) == pairs(skill) == svg_edges(to_svg(skill))
    assert "└─↺" in text or "├─↺" in text


def test_a_graph_without_an_end_can_be_drawn():
    skill = make({"a": ["b"], "b": ["a"]})
    assert "end" not in nodes(skill)
    assert Reader(to_text(skill)).edges() == [("a", "b"), ("b", "a")]


@st.composite
def skills(draw: st.DrawFn) -> Skill:
    names = ["p0", *(f"{draw(st.sampled_from(['p', 'p', '@']))}{n}" for n in range(1, draw(st.integers(1, 12))))]
    targets = st.lists(st.sampled_from([*names, "end"]), max_size=draw(st.integers(1, 4)))
    return make({name: draw(targets) for name in names}, can_finish=tuple(draw(st.sets(st.sampled_from(names)))))


@given(skills())
def test_any_graph_can_be_traced_in_every_format(skill: Skill):
    text, drawing = to_text(skill), to_svg(skill)
    if "too large" in text:
        assert listing_edges(text) == pairs(skill)
    else:
        assert Reader(text).edges() == pairs(skill)
        assert Reader(text).entry() == skill.entry
        assert max(map(len, text.splitlines())) <= MAX_COLUMNS
    assert svg_edges(drawing) == mermaid_edges(to_mermaid(skill)) == pairs(skill)
    assert len(svg_paths(drawing)) == len(pairs(skill))


@given(skills())
def test_equal_skills_give_equal_drawings(skill: Skill):
    other = Skill(
        skill.name,
        skill.entry,
        dict(reversed(skill.phases.items())),
        dict(reversed(skill.graph.items())),
        skill.final_output,
    )
    assert other == skill
    for draw in (to_text, to_mermaid, to_svg):
        assert draw(other) == draw(skill)


def test_the_command_draws_in_the_requested_format(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["a", "b"], "b": ["end"]})

    def call(*words: str) -> str:
        result = CliRunner().invoke(command, ["s", *words], obj={"project": str(tmp_path)}, catch_exceptions=False)
        assert result.exit_code == 0
        return result.output

    assert Reader(call()).edges() == [("a", "a"), ("a", "b"), ("b", "end")]
    assert call("--format", "mermaid").startswith("flowchart TD\n")
    assert len(svg_paths(call("--format", "svg"))) == 3
    assert json.loads(call("--json")) == {
        "entry": "a",
        "nodes": [
            {"name": "a", "kind": "phase"},
            {"name": "b", "kind": "phase"},
            {"name": "end", "kind": "end"},
        ],
        "edges": [
            {"source": "a", "target": "a", "artifact": "note", "is_loop": True, "text": ""},
            {"source": "a", "target": "b", "artifact": "note", "is_loop": False, "text": ""},
            {"source": "b", "target": "end", "artifact": "note", "is_loop": False, "text": ""},
        ],
    }


def test_the_texts_of_edges_are_labels_in_mermaid_svg_and_lists(tmp_path: Path):
    folder = write_skill(tmp_path, "texts", {"a": {"b": 'is "good"', "end": "is bad"}, "b": ["end"]})
    skill = load_skill(folder)
    assert '-->|"note: is #quot;good#quot;"|' in to_mermaid(skill)
    assert "a → b: note: is " in to_svg(skill)
    assert "├─▶ b (note): is " in to_listing(skill, "many nodes")
    assert "is bad" not in to_text(skill)  # a drawing has no room for them
