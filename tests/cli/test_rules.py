"""Rules and conditions in the output of commands."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.support import write_answers
from tests.kernel.test_rule_nodes import EDGES
from tests.rules import claim, write_rules
from tests.support import finish

FOOD = '{"amount": 80, "kind": "food"}'
LARGE = '{"amount": 800, "kind": "food"}'


def test_show_names_the_rule_and_what_it_read(here: Path, reyn):
    write_rules(here)
    assert reyn("run", "claims", FOOD, "--run-id", "a").code == 0
    shown = "→ end (rule 3: else) data.amount: 80, data.kind: food, visits.review: 0"
    assert shown in reyn("show", "a").out
    step = next(one for one in reyn("show", "a", "--json").json["steps"] if one["type"] == "decided")
    assert (step["next"], step["rule"], step["read"]["data.amount"]) == ("end", 3, 80)


def test_show_writes_values_as_expressions_do(here: Path, reyn):
    step = "preprocessor:\n  - run_op: {op: {kind: file, op: read, path: gone}, into: local.found, on_error: empty}\n"
    rules = '    - {when: "local.found == null && 1 == visits.decide", to: pay}\n    - {else: pay}\n'
    node = f"type: phase\nname: decide\ninput: claim\n{step}"
    write_rules(here, rules, graph="  pay: [end]\n", node_file=node)
    write_answers(here, finish())
    assert reyn("run", "claims", FOOD, "--run-id", "a").code == 0
    assert "local.found: null, visits.decide: 1\n" in reyn("show", "a").out


def test_diff_names_the_values_that_differ(here: Path, reyn):
    write_rules(here)
    reyn("run", "claims", FOOD, "--run-id", "a")
    reyn("run", "claims", LARGE, "--run-id", "b")
    output = reyn("diff", "a", "b")
    assert output.code == 1
    cause = "cause: expressions of the skill have read different values: `data.amount` is 80 and 800"
    assert cause in output.out


def test_a_condition_is_shown_where_it_removes_a_candidate(here: Path, reyn):
    write_rules(here, **EDGES)
    write_answers(here, claim("refuse", **json.loads(LARGE)), finish())
    assert reyn("run", "claims", LARGE, "--run-id", "a").code == 0
    assert "not allowed: pay data.amount: 800" in reyn("show", "a").out
    choices = [one["next_phase"] for one in reyn("frame", "a", "5", "--json").json["candidate_outputs"]]
    assert "pay" not in choices
    preview = reyn("frame", "claims", LARGE, "--json").json
    assert [one["next_phase"] for one in preview["candidate_outputs"]] == ["refuse"]
    empty = reyn("frame", "claims")
    assert "pay" in empty.out


def test_a_node_with_rules_has_no_frame_and_is_drawn(here: Path, reyn):
    write_rules(here)
    output = reyn("frame", "claims", FOOD)
    assert output.code == 2
    assert "node `decide` has rules and calls no model" in output.err
    graph = reyn("graph", "claims", "--json").json
    assert graph["nodes"][0] == {"name": "decide", "kind": "rules"}
    assert graph["edges"][0]["when"] == "1. data.amount < 50.0"
