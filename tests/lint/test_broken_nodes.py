"""A broken entry of skill.md has one finding: what follows from it is not reported again elsewhere."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reyn.lint import lint_skill
from tests.properties import ALL_CASES
from tests.rules import write_rules
from tests.support import NOTE, VOCABULARY, write_skill

STEP = 1 if ALL_CASES else 4
NODES: dict[str, Any] = {
    "plan": {
        "check": [
            {"validate": {"schema": {"type": "object"}, "target": "data"}},
            {"expression": "size(data.items) > 0"},
        ],
        "retry": {"max": 2, "on": ["timeout"], "backoff": "2s"},
        "on_error": {"*": "oops"},
    },
    "fan": {
        "each": {"in": "data.items", "do": "write", "output": "note", "max_parallel": 3},
        "as": "drafts",
        "need": 1,
        "on_item_error": "collect",
        "on_error": {"timeout": "oops"},
    },
    "both": {"all": {"a": "@child", "b": {"do": "write2", "output": "note"}}, "as": "answers", "need": "any"},
    "last": {"fill": {"text": "ops.file.write.path"}},
}
PLAN = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": NOTE}},
    "required": ["items"],
    "additionalProperties": False,
}
BAD = [[], None, 3, -1, "x", "", True, ["x"], [{}], 1.5, "data.nothing", "@gone"]
Place = tuple[str | int, ...]


def write(root: Path, nodes: Any) -> Path:
    write_skill(root, "child", {"c": ["end"]}, inputs={"c": "drafts"}, artifacts={"drafts": {"type": "object"}})
    folder = write_skill(
        root,
        "s",
        {"plan": ["fan"], "fan": ["both"], "both": ["last"], "last": ["end"], "oops": ["end"]},
        artifacts={"plan": PLAN},
        inputs={"last": "answers", "oops": "node_error"},
        ops={"last": "file"},
        phase_keys={"last": "must: [file.write]\n"},
        skill_keys=f"nodes: {json.dumps(nodes)}\n",
    )
    for name, type_ in {"fan": "plan", "both": "drafts"}.items():
        (folder / f"phases/{name}.md").write_text(f"---\ntype: phase\nname: {name}\ninput: {type_}\n---\n")
    for name, type_ in {"write": "note", "write2": "drafts"}.items():
        keys = f"type: phase\nname: {name}\ninput: {type_}\nallowed_ops: []"
        (folder / f"phases/{name}.md").write_text(f"---\n{keys}\n---\nWrite it.\n")
    return folder


def findings(root: Path, nodes: Any) -> set[str]:
    """The findings; an unknown artifact is one finding, however many files name it."""
    found = lint_skill(write(root, nodes), vocabulary=VOCABULARY)
    return {f"{one.code} {one.message}" for one in found}


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    yield at
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(one, (*at, key))


def changed(place: Place, change: str, value: Any = None, whole: Any = NODES) -> Any:
    """The nodes with another value at a place, without it, or with a misspelt key."""
    if not place:
        return value
    nodes = copy.deepcopy(whole)
    parent: Any = nodes
    for key in place[:-1]:
        parent = parent[key]
    last: Any = place[-1]
    if change == "replace":
        parent[last] = value
    else:
        removed = parent.pop(last)
        if change == "misspell":
            parent[f"{last}x"] = removed
    return nodes


REPLACED = [(place, "replace", value) for place in places(NODES) for value in BAD]
REMOVED = [(place, "remove", None) for place in places(NODES) if len(place) > 1]
MISSPELT = [(place, "misspell", None) for place in places(NODES) if place and isinstance(place[-1], str)]


def test_the_skill_has_no_findings(tmp_path: Path):
    assert findings(tmp_path, NODES) == set()


@pytest.mark.sampled
@pytest.mark.parametrize("cases", [REPLACED[::STEP], REMOVED, MISSPELT], ids=["replaced", "removed", "misspelt"])
def test_a_broken_entry_has_one_finding(tmp_path: Path, cases: list[tuple[Place, str, Any]]):
    several = {}
    for place, change, value in cases:
        found = findings(tmp_path, changed(place, change, value))
        if len(found) > 1:
            several[place, change, str(value)] = found
    assert several == {}


RULES: list[Any] = [
    {"when": "data.amount < 50.0", "to": "pay"},
    {
        "when": "data.kind == 'travel'",
        "to": "review",
        "artifact": {"type": "claim", "data": {"amount": "${data.amount}", "kind": "food"}},
    },
    {"else": "end", "artifact": {"type": "note", "data": {"text": "${data.kind}"}}},
]
EDGE: dict[str, Any] = {
    "pay": {"text": "it is clear", "when": "data.amount <= 500.0"},
    "review": "it is not",
    "end": "nothing is left to pay",
}


@pytest.mark.sampled
@pytest.mark.parametrize("edges", [RULES, EDGE], ids=["rules", "conditions"])
def test_a_broken_rule_or_edge_has_one_finding(tmp_path: Path, edges: Any):
    several = {}
    found = [(place, "replace", value) for place in places(edges) if place for value in BAD]
    found += [(place, "remove", None) for place in places(edges) if place]
    found += [(place, "misspell", None) for place in places(edges) if len(place) > 1 and isinstance(place[-1], str)]
    for place, change, value in found[:: 1 if STEP == 1 else 2]:
        decide = {"decide": changed(place, change, value, edges), "pay": ["end"], "review": ["end"]}
        graph = "".join(f"  {node}: {json.dumps(one)}\n" for node, one in decide.items())
        file = "type: phase\nname: decide\ninput: claim\n"
        folder = write_rules(tmp_path, "", graph=graph, node_file=file)
        if edges is EDGE:
            (folder / "phases/decide.md").write_text(f"---\n{file}allowed_ops: []\n---\nDecide.\n")
        messages = {one.message for one in lint_skill(folder, vocabulary=VOCABULARY)}
        if len(messages) > 1:
            several[place, change, str(value)] = messages
    assert several == {}


STATE: dict[str, Any] = {
    "trip": {"latest": "note"},
    "steps": {"append": "note", "max": 5},
    "spent": {"sum": "note.data.amount"},
}
STATE_PLACES = [place for place in places(STATE) if place]


@pytest.mark.parametrize("value", [*BAD, {}, "note"])
def test_a_broken_field_of_the_state_has_one_finding(tmp_path: Path, value: Any):
    amount = NOTE | {"properties": NOTE["properties"] | {"amount": {"type": "integer"}}}
    several = {}
    for place in STATE_PLACES:
        state = copy.deepcopy(STATE)
        parent: Any = state
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = value
        folder = write_skill(
            tmp_path,
            "s",
            {"a": ["end"]},
            artifacts={"note": amount},
            phase_keys={"a": "reads: [state.trip, state.steps, state.spent]\n"},
            skill_keys=f"state: {json.dumps(state)}\n",
        )
        found = lint_skill(folder, vocabulary=VOCABULARY)
        if len(found) > 1:
            several[place] = [one.message for one in found]
    assert several == {}


@pytest.mark.parametrize(
    ("node", "place", "value", "message"),
    [
        ("both", "all", {}, "RYN171 `both` has no branches"),
        ("fan", "each", None, "RYN171 `fan` has no branches"),
        ("fan", "each", 3, "RYN114 `nodes.fan.each` must be a mapping of keys to values or `null`, not 3"),
        ("fan", "as", "", "RYN171 `fan` does not name the artifact that joins its branches"),
        ("both", "need", 3, "RYN171 `both` needs 3 branches, but has 2: the join is never met"),
    ],
)
def test_the_finding_names_the_cause(tmp_path: Path, node: str, place: str, value: Any, message: str):
    assert findings(tmp_path, changed((node, place), "replace", value)) == {message}


def test_a_misspelt_required_key_is_one_finding(tmp_path: Path):
    nodes = NODES | {"plan": {"check": [{"validate": {"schemas": {"type": "object"}}}]}}
    assert [one.partition(" ")[0] for one in findings(tmp_path, nodes)] == ["RYN112"]
