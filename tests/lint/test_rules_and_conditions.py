"""Findings about rules of nodes and conditions on edges, each at its place."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from reyn.lint import lint_skill
from tests.kernel.test_rule_nodes import EDGES
from tests.rules import write_rules
from tests.support import write_skill

ELSE = "    - {else: pay}\n"


def findings(folder: Path) -> list[str]:
    found = lint_skill(folder)
    return [f"{one.line}:{one.column} {one.code} {one.message}" for one in found if one.file == "skill.md"]


def test_a_skill_with_rules_has_no_findings(tmp_path: Path):
    assert lint_skill(write_rules(tmp_path)) == []


@pytest.mark.parametrize(
    ("rule", "finding"),
    [
        ('{when: "data.amont > 1.0", to: pay}', "8:8 RYN181 column 6: `data` has no field `amont`"),
        ('{when: "data.amount >", to: pay}', "8:8 RYN181 column 14: the expression ends too early"),
        ('{when: "data.limit > 1.0", to: pay}', "8:8 RYN182 column 6: `data.limit` may be missing"),
        (
            "{when: \"data.amount == 'x'\", to: pay}",
            "8:8 RYN181 column 13: `==` compares a number with a text, which are never equal",
        ),
        ('{when: "data.amount", to: pay}', "8:8 RYN181 column 1: the condition is a number"),
        ('{when: "visits.revue > 1", to: pay}', "8:8 RYN181 column 8: `visits` has no field `revue`"),
        ('{when: "data.amount < 0.0", to: pay}', "8:8 RYN183 `data.amount < 0.0` is never true here"),
        ("{when: \"data.kind == 'rent'\", to: pay}", "8:8 RYN183 `data.kind == 'rent'` is never true here"),
        ('{when: "data.amount >= 0.0", to: pay}', "8:8 RYN183 `data.amount >= 0.0` is always true here"),
        (
            '{when: "data.amount > 1.0", to: end}',
            "8:35 RYN133 the rule sends `claim`, but the run finishes with `note`",
        ),
        (
            '{when: "data.amount > 1.0", to: end, artifact: {type: note, data: {}}}',
            "8:67 RYN181 the field `text` is missing",
        ),
        (
            '{when: "data.amount > 1.0", to: end, artifact: {type: note, data: {text: "${data.amount}"}}}',
            "8:74 RYN181 the value is a number, but the schema needs a text",
        ),
        (
            '{when: "data.amount > 1.0", to: end, artifact: {type: nte, data: {}}}',
            "8:55 RYN117 unknown artifact `nte`: no file `artifacts/nte.yaml`",
        ),
        ('{when: "data.amount > 1.0", to: pai}', "8:35 RYN116 unknown phase `pai`: no file `phases/pai.md`"),
        ('{when: "data.amount > 1.0"}', "8:7 RYN113 missing key `to`"),
        ('{when: "data.amount > 1.0", to: pay, then: x}', "8:44 RYN112 unknown key `then`"),
        ("{else: pay}", "8:8 RYN180 no rule after `else` is ever tried"),
        ("pay", "8:7 RYN180 'pay' is not a rule"),
    ],
)
def test_a_finding_names_its_place_and_the_column(tmp_path: Path, rule: str, finding: str):
    assert finding in findings(write_rules(tmp_path, f"    - {rule}\n{ELSE}", graph="  pay: [end]\n"))


def test_rules_need_an_else(tmp_path: Path):
    folder = write_rules(tmp_path, '    - {when: "data.amount > 1.0", to: pay}\n', graph="  pay: [end]\n")
    assert "7:3 RYN180 the rules of `decide` have no `else`" in findings(folder)


def test_a_rule_that_an_earlier_one_makes_impossible_is_found(tmp_path: Path):
    rules = '    - {when: "data.amount >= 10.0", to: pay}\n    - {when: "data.amount > 20.0", to: review}\n'
    folder = write_rules(tmp_path, rules + ELSE, graph="  pay: [end]\n  review: [end]\n")
    assert findings(folder) == ["9:8 RYN183 `data.amount > 20.0` is never true here"]


def test_what_only_a_model_needs_is_reported_in_the_file_of_the_node(tmp_path: Path):
    node = "type: phase\nname: decide\ninput: claim\nallowed_ops: []\nrole: clerk\n"
    folder = write_rules(tmp_path, node_file=node)
    (folder / "phases" / "decide.md").write_text(f"---\n{node}---\nDecide.\n")
    found = [f"{one.file}:{one.line} {one.code}" for one in lint_skill(folder) if one.file != "skill.md"]
    assert found == ["phases/decide.md:5 RYN180", "phases/decide.md:6 RYN180", "phases/decide.md:8 RYN180"]


def test_the_input_of_a_node_without_a_file_has_to_follow_from_the_nodes_before_it(tmp_path: Path):
    folder = write_rules(tmp_path, node_file=None, entry="review")
    message = "7:3 RYN116 node `decide` has no file `phases/decide.md`, and its input does not follow from the nodes"
    assert f"{message} before it" in findings(folder)


@pytest.mark.parametrize(
    ("edges", "finding"),
    [
        ('{pay: {when: "data.amont > 1.0"}, refuse: no}', "7:18 RYN181 column 6: `data` has no field `amont`"),
        ('{pay: {when: "data.amount < 0.0"}, refuse: no}', "7:18 RYN183 `data.amount < 0.0` is never true"),
        ('{pay: {wen: "data.amount < 0.0"}, refuse: no}', "7:18 RYN112 unknown key `wen`"),
        (
            '{pay: {when: "data.amount > 1.0"}, refuse: {when: "data.amount < 9.0"}}',
            "7:3 RYN183 every edge of `review` has a condition; if none holds, the visit fails",
        ),
    ],
)
def test_findings_about_conditions(tmp_path: Path, edges: str, finding: str):
    graph = f"  review: {edges}\n  pay: [end]\n  refuse: [end]\n"
    assert finding in findings(write_rules(tmp_path, **EDGES | {"graph": graph}))


@pytest.mark.parametrize("node", ["'@triage'", "quotes"])
def test_a_condition_that_nothing_reads_is_an_error(tmp_path: Path, node: str):
    graph = {
        "first": [node.strip("'")],
        node.strip("'"): {"last": {"text": "x", "when": "data.n > 3"}},
        "last": ["end"],
    }
    keys = "nodes: {quotes: {all: {one: last}, as: answers}}\n" if node == "quotes" else ""
    folder = write_skill(tmp_path, "s", graph, skill_keys=keys)
    found = [one for one in findings(folder) if "nothing reads the condition" in one]
    assert len(found) == 1, findings(folder)
    assert " RYN180 " in found[0]


def test_a_thousand_rules_take_a_second(tmp_path: Path):
    conditions = (f"data.amount > {1000 - number}.5 && data.kind == 'food'" for number in range(1000))
    rules = "".join(f'    - {{when: "{condition}", to: pay}}\n' for condition in conditions)
    folder = write_rules(tmp_path, rules + ELSE, graph="  pay: [end]\n")
    begin = time.process_time()
    assert findings(folder) == []
    assert time.process_time() - begin < 10  # a second on a machine with nothing else to do
