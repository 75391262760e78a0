"""Drawings of skills: every format has every edge."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from reyn.cli.commands.authoring import graph_command
from reyn.errors import GraphTooLarge
from reyn.skills import ArtifactType, Phase, Skill
from reyn.skills.drawing import edges, nodes, to_mermaid, to_text
from reyn.skills.graph_svg import to_svg
from tests.support import load_skill, write_skill


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


def listed_edges(text: str) -> list[tuple[str, str]]:
    """Return the edges in a listing."""
    found, source = [], ""
    for line in text.splitlines()[1:]:
        if line.startswith(" "):
            found.append((source, re.sub(r"^ *.─. |◉ | \(.*", "", line)))
        else:
            source = line
    return sorted(found)


SVG = "{http://www.w3.org/2000/svg}"


def svg_edges(source: str) -> list[tuple[str, str]]:
    titles = (group.findtext(f"{SVG}title", "") for group in ElementTree.fromstring(source).iter(f"{SVG}g"))
    arrows = (title.partition(": ")[0].partition(" → ") for title in titles)
    return sorted((one, two) for one, arrow, two in arrows if arrow)


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
    text = to_text(skill)
    assert listed_edges(text) == svg_edges(to_svg(skill)) == mermaid_edges(to_mermaid(skill)) == pairs(skill)
    assert text.startswith(f"● entry ─▶ {skill.entry} (note)\n")


def test_edges_are_the_authors_and_those_to_end():
    skill = make({"a": ["b", "b", "a"], "b": ["@x", "end"], "@x": []}, can_finish=("a",))
    assert pairs(skill) == [("@x", "end"), ("a", "a"), ("a", "b"), ("a", "end"), ("b", "@x"), ("b", "end")]
    assert {(edge.source, edge.target) for edge in edges(skill) if edge.is_loop} == {("a", "a")}


def test_a_listing_matches_its_golden_copy():
    skill = make({"draft": ["review"], "review": ["draft", "@check"], "@check": ["end"]}, draft="guest")
    assert to_text(skill) == (
        "● entry ─▶ draft (guest)\n"
        "draft\n"
        "  └─▶ review (note)\n"
        "review\n"
        "  ├─↺ draft (guest)\n"
        "  └─▶ @check\n"
        "@check\n"
        "  └─▶ ◉ end (report)\n"
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
    skill = make({"a": ["b"], "b": ["end"]}, b='<b> & "c" #1')
    assert '"#lt;b#gt; #amp; #quot;c#quot; #35;1"' in to_mermaid(skill)
    assert "&lt;b&gt; &amp; &quot;c&quot; #1</text>" in to_svg(skill)


STATEMENTS = (
    '"]\n    click n0 href "javascript:alert(1)"\n',
    '\n%%{init: {"securityLevel": "loose"}}%%\n',
    "</b><img src=http://127.0.0.1/x onerror=alert(1)>",
    "x\r\nn0 --> n9\u2028n1 --> n9",
    '`**x**` <br/> &lt;script&gt; #lt;b#gt; " URL="javascript:alert(1)',
    'x" image="/etc/passwd" label="\\',
)


@pytest.mark.parametrize("text", STATEMENTS)
def test_no_text_of_a_skill_is_a_statement_or_markup_of_a_drawing(text: str):
    """Pages show Mermaid as HTML, and SVG can have scripts and links. A text is a label, whatever it has."""
    plain, skill = (make({"a": ["b", "end"], "b": ["end"]}, a=one) for one in ("note", text))
    shapes = [re.sub(r'"[^"]*"', "", to_mermaid(one)) for one in (plain, skill)]
    assert shapes[0] == shapes[1]
    elements = [[shape.tag for shape in ElementTree.fromstring(to_svg(one)).iter()] for one in (plain, skill)]
    assert elements[0] == elements[1]
    drawn = to_mermaid(skill).replace("<br/>", "")
    assert not {"<", "`", "&"} & {*drawn.replace("-->", "")}


def test_svg_shows_loops_and_other_skills_dashed():
    drawing = ElementTree.fromstring(to_svg(make({"a": ["a", "@b"], "@b": ["end"]})))
    dashed = {
        group.findtext(f"{SVG}title", "").partition(":")[0]
        for group in drawing.iter(f"{SVG}g")
        if any("stroke-dasharray" in shape.attrib for shape in group)
    }
    assert dashed == {"a → a", "@b (skill)"}


def test_a_graph_that_is_too_large_for_svg_is_an_error_that_names_other_formats():
    line = {f"n{number}": [f"n{number + 1}"] for number in range(500)} | {"n500": ["end"]}
    with pytest.raises(GraphTooLarge, match="at most 150 nodes and 400 edges") as refused:
        to_svg(make(line))
    assert "Mermaid" in (refused.value.hint or "")
    assert len(to_svg(make({f"n{number}": [f"n{number + 1}", "n0"] for number in range(100)} | {"n100": []}))) > 50_000


def test_a_graph_without_an_end_can_be_drawn():
    skill = make({"a": ["b"], "b": ["a"]})
    assert "end" not in nodes(skill)
    assert listed_edges(to_text(skill)) == [("a", "b"), ("b", "a")]


@st.composite
def skills(draw: st.DrawFn) -> Skill:
    names = ["p0", *(f"{draw(st.sampled_from(['p', 'p', '@']))}{n}" for n in range(1, draw(st.integers(1, 12))))]
    targets = st.lists(st.sampled_from([*names, "end"]), max_size=draw(st.integers(1, 4)))
    return make({name: draw(targets) for name in names}, can_finish=tuple(draw(st.sets(st.sampled_from(names)))))


@given(skills())
def test_any_graph_can_be_traced_in_every_format(skill: Skill):
    assert listed_edges(to_text(skill)) == svg_edges(to_svg(skill)) == mermaid_edges(to_mermaid(skill)) == pairs(skill)


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
        result = CliRunner().invoke(
            graph_command, ["s", *words], obj={"project": str(tmp_path)}, catch_exceptions=False
        )
        assert result.exit_code == 0
        return result.output

    assert listed_edges(call()) == [("a", "a"), ("a", "b"), ("b", "end")]
    assert call("--format", "mermaid").startswith("flowchart TD\n")
    assert json.loads(call("--json")) == {
        "entry": "a",
        "nodes": [
            {"name": "a", "kind": "phase"},
            {"name": "b", "kind": "phase"},
            {"name": "end", "kind": "end"},
        ],
        "edges": [
            {"source": "a", "target": "a", "artifact": "note", "is_loop": True, "text": "", "when": ""},
            {"source": "a", "target": "b", "artifact": "note", "is_loop": False, "text": "", "when": ""},
            {"source": "b", "target": "end", "artifact": "note", "is_loop": False, "text": "", "when": ""},
        ],
    }


def test_the_texts_of_edges_are_labels_in_every_format(tmp_path: Path):
    folder = write_skill(tmp_path, "texts", {"a": {"b": 'is "good"', "end": "is bad"}, "b": ["end"]})
    skill = load_skill(folder)
    assert '-->|"note: is #quot;good#quot;"|' in to_mermaid(skill)
    assert "a → b: note: is &quot;good&quot;</title>" in to_svg(skill)
    assert '├─▶ b (note): is "good"\n' in to_text(skill)


def test_a_fan_out_names_its_branches_in_every_format(tmp_path: Path):
    both = "{all: {one: {do: write, output: note}, two: '@other'}, need: any, as: pair}"
    write_skill(tmp_path, "other", {"other": ["end"]})
    folder = write_skill(
        tmp_path,
        "fan",
        {"split": ["last"], "last": ["end"]},
        inputs={"last": "pair"},
        skill_keys=f"nodes: {{split: {both}}}\n",
    )
    (folder / "phases/write.md").write_text("---\ntype: phase\nname: write\ninput: note\n---\nWrite.\n")
    skill = load_skill(folder)
    assert [*nodes(skill)] == ["split", "last", "end"]
    assert "split\n  │ one ⇉ write (note)\n  │ two ⇉ @other, need any\n  └─▶ last (pair)\n" in to_text(skill)
    assert '[/"split<br/>one ⇉ write (note)<br/>two ⇉ @other, need any"\\]' in to_mermaid(skill)
    assert all(f">{line}</text>" in to_svg(skill) for line in ("split", "one ⇉ write (note)", "two ⇉ @other, need any"))


def test_the_state_what_ops_fill_and_failures_of_branches_are_drawn_in_every_format(tmp_path: Path):
    folder = write_skill(
        tmp_path,
        "fan",
        {"split": ["last"], "last": ["end"]},
        inputs={"last": "pair"},
        ops={"last": "file"},
        phase_keys={"last": "must: [file.write]\n"},
        skill_keys=(
            "nodes: {split: {all: {one: {do: write, output: note}}, on_item_error: collect, as: pair},"
            " last: {fill: {text: ops.file.write.path}}}\n"
            "state: {notes: {append: note, max: 3}, pair: {latest: pair}}\n"
        ),
    )
    (folder / "phases/write.md").write_text("---\ntype: phase\nname: write\ninput: note\n---\nWrite.\n")
    skill = load_skill(folder)
    state = ["state notes: append note, max 3", "state pair: latest pair"]
    text, mermaid, svg = to_text(skill), to_mermaid(skill), to_svg(skill)
    assert text.startswith(f"● entry ─▶ split (note)\n  │ {state[0]}\n  │ {state[1]}\nsplit\n")
    assert "  │ one ⇉ write (note), collect failures\n" in text
    assert "last\n  │ fill text from ops.file.write.path\n" in text
    assert f'start(["entry<br/>{state[0]}<br/>{state[1]}"])' in mermaid
    assert all(f">{line}</text>" in svg for line in state)
    assert all("fill text from ops.file.write.path" in drawn for drawn in (mermaid, svg))
