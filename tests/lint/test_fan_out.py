"""Findings about nodes that run branches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reyn.lint import lint_skill
from tests.support import NOTE, VOCABULARY, write_skill

PLAN = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": NOTE},
        "words": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "title": {"type": "string"},
    },
    "required": ["items"],
}
EACH = "{each: {in: data.items, do: write, output: note}, as: drafts}"


def findings(root: Path, node: str, *, steps: str = "", **options: Any) -> list[tuple[int, int, str, str]]:
    """Line, column, code, and message with fix of the findings about skill.md."""
    write_skill(root, "check", {"check": ["end"]}, inputs={"check": "user_message"})
    shape: dict[str, Any] = {
        "graph": {"split": ["last"], "last": ["end"]},
        "inputs": {"split": "plan", "last": "drafts"},
        "artifacts": {"plan": PLAN},
    }
    shape |= options
    folder = write_skill(root, "s", skill_keys=f"nodes:\n  split: {node}\n", **shape)
    (folder / "phases/split.md").write_text("---\ntype: phase\nname: split\ninput: plan\n---\n")
    (folder / "phases/write.md").write_text(
        f"---\ntype: phase\nname: write\ninput: note\nallowed_ops: []\n{steps}---\nWrite it.\n"
    )
    found = lint_skill(folder, vocabulary=VOCABULARY)
    return [(one.line, one.column, one.code, f"{one.message}; {one.fix}") for one in found if one.file == "skill.md"]


def test_a_fan_out_has_no_findings(tmp_path: Path):
    assert findings(tmp_path, EACH) == []


def test_what_only_a_model_needs_has_no_effect_at_a_fan_out(tmp_path: Path):
    folder = tmp_path / "reyn/project/s"
    findings(tmp_path, EACH)
    (folder / "phases/split.md").write_text(
        "---\ntype: phase\nname: split\ninput: plan\nmax_act_turns: 2\n---\nSplit it.\n"
    )
    found = lint_skill(folder, vocabulary=VOCABULARY)
    says = "node `split` runs branches and calls no model, so "
    assert [(one.file, one.line, one.severity, one.message) for one in found] == [
        ("phases/split.md", 5, "warning", f"{says}`max_act_turns` has no effect"),
        ("phases/split.md", 7, "warning", f"{says}nothing reads its instructions"),
    ]


@pytest.mark.parametrize(
    ("node", "at", "says"),
    [
        ("{each: {in: data.itms, do: write, output: note}, as: drafts}", "in:", "`data.itms` does not exist"),
        ("{each: {in: data.title, do: write, output: note}, as: drafts}", "in:", "`data.title` is not a list"),
        ("{each: {in: data.numbers, do: write, output: note}, as: drafts}", "do:", "an item is of type integer"),
        ("{each: {in: data.words, do: write, output: note}, as: drafts}", "do:", "an item is text"),
        ("{each: {in: data.items, do: write}, as: drafts}", "do:", "needs an `output`"),
        ("{each: {in: data.items, do: '@check', output: note}, as: drafts}", "do:", "remove `output`"),
        ("{each: {in: data.items, do: write, output: note}}", "split:", "does not name the artifact"),
        (
            "{each: {in: data.items, do: write, output: note}, all: {a: '@check'}, as: drafts}",
            "split:",
            "both `each` and",
        ),
        ("{all: {a: '@check'}, as: drafts}", "a:", "takes `user_message`, but `plan` arrives"),
        ("{all: {a: '@check', b: '@check'}, need: 3, as: drafts}", "need:", "the join is never met"),
        (
            "{each: {in: data.items, do: write, output: note}, need: 10001, as: drafts}",
            "need:",
            "the join is never met",
        ),
        ("{all: {errors: '@check'}, on_item_error: collect, as: drafts}", "errors:", "cannot be called `errors`"),
        ("{all: {ä: '@check'}, as: drafts}", "ä:", "not a valid name"),
    ],
)
def test_a_fan_out_that_cannot_work_is_an_error_with_its_position(tmp_path: Path, node: str, at: str, says: str):
    found = findings(tmp_path, node)
    assert [
        one
        for one in found
        if one[2] == "RYN171" and says in one[3] and f"  split: {node}"[one[1] - 1 :].startswith(at)
    ], found


@pytest.mark.parametrize(
    ("node", "code", "says"),
    [
        ("{each: {in: data.items, do: wirte, output: note}, as: drafts}", "RYN116", "did you mean `write`?"),
        ("{each: {in: data.items, do: '@chek'}, as: drafts}", "RYN101", "no skill `chek`"),
        ("{each: {in: data.items, do: write, output: nite}, as: drafts}", "RYN117", "did you mean `note`?"),
        ("{each: {in: data.items, do: write, output: note, max_parallel: 0}, as: drafts}", "RYN114", "max_parallel"),
        ("{each: {in: data.items, do: write, output: note}, as: drafts, need: 0}", "RYN114", "need"),
        ("{each: {in: data.items, do: write, output: note}, as: drafts, on_item_error: x}", "RYN114", "on_item_error"),
        (EACH[:-1] + ", retry: {max: 1, backoff: 3 days}}", "RYN114", "a time such as `500ms`"),
        (EACH[:-1] + ", retry: {max: 1, on: []}}", "RYN114", "that is not empty, not an empty list"),
        ("{each: {over: data.items, do: write, output: note}, as: drafts}", "RYN112", "each.over"),
    ],
)
def test_wrong_keys_and_names_are_reported(tmp_path: Path, node: str, code: str, says: str):
    found = findings(tmp_path, node)
    assert [one for one in found if one[2] == code and says in one[3]], found


def test_a_declared_type_must_fit_what_is_joined(tmp_path: Path):
    fits = {"type": "object", "properties": {"items": {"type": "array", "items": NOTE}}, "required": ["items"]}
    assert findings(tmp_path, EACH, artifacts={"plan": PLAN, "drafts": fits}) == []
    wrong = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "string"}}}}
    [found] = findings(tmp_path, EACH, artifacts={"plan": PLAN, "drafts": wrong})
    assert found[2] == "RYN171"
    assert "data.items[] is of type object, not string" in found[3]


@pytest.mark.parametrize(("more", "is_wrong"), [({}, True), ({"additionalProperties": True}, False)])
def test_an_item_has_only_the_fields_that_its_schema_names(tmp_path: Path, more: dict[str, Any], is_wrong: bool):
    item = {"type": "object", "properties": {"title": {"type": "string"}}, **more}
    plan = {"type": "object", "properties": {"items": {"type": "array", "items": item}}}
    found = findings(tmp_path, EACH, artifacts={"plan": plan})
    assert ["an item has no `text`, which is required" in one[3] for one in found] == [True] * is_wrong, found


def test_with_need_a_branch_may_be_missing_from_the_join(tmp_path: Path):
    needs_both = {"type": "object", "properties": {"a": NOTE, "b": NOTE}, "required": ["a", "b"]}
    node = "{all: {a: {do: write, output: note}, b: {do: write, output: note}}, need: any, as: drafts}"
    found = findings(tmp_path, node, artifacts={"plan": PLAN, "drafts": needs_both})
    assert [one for one in found if "may lack `a`, which is required" in one[3]], found


def test_the_successor_must_take_the_joined_type(tmp_path: Path):
    found = findings(tmp_path, EACH, inputs={"split": "plan", "last": "note"})
    assert [one for one in found if one[2] == "RYN133" and "`split` returns `drafts`" in one[3]], found


def test_no_model_chooses_between_several_successors(tmp_path: Path):
    graph = {"split": ["last", "end"], "last": ["end"]}
    found = findings(tmp_path, EACH, graph=graph)
    assert [one for one in found if one[2] == "RYN133" and "several successors" in one[3]], found
    assert not [one for one in found if one[2] == "RYN144"], found


def test_branches_that_write_the_same_file_are_an_error(tmp_path: Path):
    write = "run_op: {op: {kind: file, op: write, path: output/same.md, content: x}}"
    found = findings(tmp_path, EACH, steps=f"preprocessor:\n  - {write}\n")
    assert [one for one in found if one[2] == "RYN171" and "every branch writes `output/same.md`" in one[3]], found
    own = "run_op: {op: {kind: file, op: write, content: x}, args_from: {path: data.text}}"
    assert findings(tmp_path, EACH, steps=f"preprocessor:\n  - {own}\n") == []


def test_a_fan_out_outside_the_graph_is_an_error(tmp_path: Path):
    found = findings(tmp_path, EACH, graph={"last": ["end"]}, inputs={"last": "note"})
    assert [one for one in found if one[2] == "RYN171" and "no node `split` in the graph" in one[3]], found


def test_only_phases_with_a_model_have_fields_to_fill(tmp_path: Path):
    node = "{each: {in: data.items, do: write, output: note}, as: drafts, fill: {x: ops.file.write.path}}"
    found = findings(tmp_path, node)
    assert [one for one in found if one[2] == "RYN148" and "calls no model" in one[3]], found
