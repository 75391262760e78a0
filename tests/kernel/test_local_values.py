"""`into: local.NAME`: the author's expressions about a node read the value, and no model sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reyn.lint import lint_skill
from tests.kernel.support import Project
from tests.support import VOCABULARY, finish, go, write_skill

FIND = "preprocessor:\n  - run_op: {op: {kind: file, op: read, path: limit.txt}, into: local.limit, on_error: result}\n"
CONTAINS = "has(local.limit.content) && local.limit.content.contains(data.text)"
CHECK = "preprocessor:\n  - validate: {schema: {properties: {text: {maxLength: 3}}}, into: local.found}\n"


def findings(folder: Path) -> list[str]:
    return [f"{one.code} {one.message}" for one in lint_skill(folder, vocabulary=VOCABULARY) if one.severity != "info"]


def write_rules(root: Path) -> Path:
    """A skill whose entry has rules about what its step has bound."""
    folder = write_skill(root, "s", {"long": ["end"]}, entry="sort")
    rules = [
        {"when": "size(local.found) > 0", "to": "long"},
        {"else": "end", "artifact": {"type": "note", "data": {"text": "${size(local.found)} findings"}}},
    ]
    head = json.dumps({"sort": rules, "long": ["end"]})
    text = (folder / "skill.md").read_text().replace('graph: {"long": ["end"]}', f"graph: {head}")
    (folder / "skill.md").write_text(text)
    (folder / "phases" / "sort.md").write_text(f"---\ntype: phase\nname: sort\ninput: note\n{CHECK}---\n")
    return folder


def test_rules_and_their_artifacts_read_local_values(tmp_path: Path):
    assert findings(write_rules(tmp_path)) == []
    project = Project(tmp_path)
    result = project.run("s", [], {"text": "ab"}, run_id="short")
    assert result.artifact == {"type": "note", "data": {"text": "0 findings"}}
    assert project.events("rule_matched", run_id="short")[0]["read"] == {"local.found": "a list with 0 items"}
    result = project.run("s", [finish()], {"text": "abcd"})
    assert result.path == ("sort", "long")
    assert "maxLength" not in project.model.turn_message(0)
    assert "local" not in project.model.turn_message(0)
    assert project.is_sound()


def test_conditions_on_edges_read_local_values(tmp_path: Path):
    graph: dict[str, Any] = {
        "a": {"b": {"text": "it is short", "when": "size(local.found) == 0"}, "c": "it is long"},
        "b": ["end"],
        "c": ["end"],
    }
    assert findings(write_skill(tmp_path, "s", graph, phase_keys={"a": CHECK})) == []
    project = Project(tmp_path)
    assert project.run("s", [go("c"), finish()], {"text": "abcd"}).path == ("a", "c")
    assert project.events("conditions_checked")[0]["removed"] == ["b"]
    assert project.is_sound()


def test_a_check_compares_an_answer_with_what_a_step_has_found(tmp_path: Path):
    check = f'check: [{{expression: {{condition: "{CONTAINS}", message: not in the file}}}}]'
    keys = f"nodes: {{a: {{{check}}}}}\npermissions: {{file.read: [{{path: limit.txt}}]}}\n"
    write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": FIND}, skill_keys=keys)
    (tmp_path / "limit.txt").write_text("red and green\n")
    project = Project(tmp_path)
    result = project.run("s", [finish("blue"), finish("green")])
    assert result.ok, result.reason
    assert [one["message"] for one in project.events("validation_error")] == ["not in the file"]
    assert all("red and" not in str(request.messages) for request in project.model.requests)
    assert project.is_sound()


def test_a_message_about_a_condition_leaves_local_values_out(tmp_path: Path):
    keys = f'nodes: {{a: {{check: [{{expression: "{CONTAINS}"}}]}}}}\n'
    write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": FIND}, skill_keys=keys)
    (tmp_path / "limit.txt").write_text("red and green\n")
    project = Project(tmp_path)
    assert project.run("s", [finish("blue"), finish("green")]).ok
    [error] = project.events("validation_error")
    assert error["message"].endswith('is not true (`data.text` is "blue")')
    assert "red and" not in error["message"]


@pytest.mark.parametrize(
    "value", ["int(local.limit.content)", "double(local.limit.content)", "[1][size(local.limit.content)]"]
)
def test_the_error_of_an_expression_quotes_no_local_value(tmp_path: Path, value: str):
    fault = f"has(local.limit.content) && {value} > 0"
    keys = "permissions: {file.read: [{path: limit.txt}]}\n"
    as_check = f'nodes: {{a: {{check: [{{expression: "{fault}"}}]}}}}\n'
    write_skill(tmp_path, "check", {"a": ["end"]}, phase_keys={"a": FIND}, skill_keys=as_check + keys)
    graph: dict[str, Any] = {"a": {"b": {"text": "x", "when": fault}, "c": "y"}, "b": ["end"], "c": ["end"]}
    write_skill(tmp_path, "edge", graph, phase_keys={"a": FIND}, skill_keys=keys)
    guarded = f"has(local.limit.content) ? string({value}) : ''"
    run_op = {"op": {"kind": "file", "op": "read", "path": f"${{{guarded}}}"}, "into": "data.found"}
    step = f"{FIND}  - run_op: {json.dumps(run_op)}\n"
    write_skill(tmp_path, "step", {"a": ["end"]}, phase_keys={"a": step}, skill_keys=keys)
    (tmp_path / "limit.txt").write_text("red and green\n")
    project = Project(tmp_path)
    for skill in ("check", "edge", "step"):
        result = project.run(skill, [finish("blue")] * 3, run_id=skill)
        assert not result.ok
        assert "column" in result.reason
        assert "red and" not in result.reason
        assert all("red and" not in str(request.messages) for request in project.model.requests)


def test_a_local_value_survives_a_resume_between_the_step_and_the_check(tmp_path: Path):
    keys = 'nodes: {a: {check: [{expression: "size(local.found) == 1"}]}}\n'
    write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": CHECK}, skill_keys=keys)
    project = Project(tmp_path)
    assert project.run("s", [], {"text": "abcd"}).status == "failed"  # the script has no answer
    assert project.resume([finish()], retry=True).status == "finished"
    assert project.is_sound()


def test_a_fan_out_runs_branches_for_a_local_list_and_a_list_of_the_state(tmp_path: Path):
    nodes = """nodes:
  first: {each: {in: local.issues, do: write, output: note}, as: drafts}
  again: {each: {in: state.seen, do: write, output: note, max_parallel: 1}, as: drafts}
state:
  seen: {append: note, max: 5}
"""
    graph = {"read": ["first"], "first": ["mid"], "mid": ["again"], "again": ["end"]}
    folder = write_skill(tmp_path, "s", graph, skill_keys=nodes, final_output="drafts", inputs={"mid": "drafts"})
    local = "preprocessor:\n  - validate: {schema: {properties: {text: {maxLength: 3}}}, into: local.issues}\n"
    (folder / "phases" / "first.md").write_text(f"---\ntype: phase\nname: first\ninput: note\n{local}---\n")
    (folder / "phases" / "again.md").write_text("---\ntype: phase\nname: again\ninput: note\n---\n")
    write = "---\ntype: phase\nname: write\ninput: finding\nallowed_ops: []\n---\nWrite.\n"
    (folder / "phases" / "write.md").write_text(write)
    open_object = {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}
    (folder / "artifacts" / "finding.yaml").write_text(json.dumps(open_object))
    assert findings(folder) == []
    project = Project(tmp_path)
    answers = [go("first", "abcd"), finish("1"), go("again", "x"), finish("2")]
    result = project.run("s", answers, {"text": "go"})
    assert result.ok, result.reason
    inputs = [json.loads(project.journal.blob(one["input"]["hash"])) for one in project.events("child_started")]
    assert inputs[0]["data"]["path"] == "data.text"
    assert [one["data"]["text"] for one in inputs[1:]] == ["abcd", "x"]
    assert project.is_sound()


def test_local_values_are_checked_by_lint(tmp_path: Path):
    graph: dict[str, Any] = {
        "a": {"b": {"text": "it is short", "when": "size(local.fuond) == 0"}, "end": "done"},
        "b": ["end"],
    }
    keys = 'nodes: {a: {check: [{expression: "local.found == 1"}, {validate: {schema: true, target: local.x}}]}}\n'
    found = findings(write_skill(tmp_path, "s", graph, phase_keys={"a": CHECK}, skill_keys=keys))
    assert sorted(one.partition(" ")[0] for one in found) == ["RYN124", "RYN181", "RYN181"]


def test_a_diff_names_the_inputs_if_rules_have_read_the_same_summary(tmp_path: Path):
    write_rules(tmp_path)
    project = Project(tmp_path)
    for run, text in (("a", "abcd"), ("b", "abcde")):
        project.run("s", [finish()], {"text": text}, run_id=run)
    with project.open([]) as rt:
        report = rt.runs.diff("a", "b")
    assert (report.cause, report.decisions) == ("input", 0)
