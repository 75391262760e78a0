"""Conditions as checks: a false one rejects the answer with its message, and an error of evaluation is never false."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reyn.lint import lint_skill
from tests.kernel.support import Project
from tests.support import NOTE, VOCABULARY, finish, go, write_skill

SHORT = '- expression: {condition: "size(data.text) <= 5", message: "`${data.text}` has ${size(data.text)} characters"}'


def write(root: Path, checks: str, node: str = "a", **options: Any) -> Path:
    shape: dict[str, Any] = {"graph": {"a": ["b"], "b": ["end"]}}
    return write_skill(root, "s", skill_keys=f"nodes:\n  {node}:\n    check:\n      {checks}\n", **shape | options)


def test_a_false_condition_rejects_the_answer_with_its_message(tmp_path: Path):
    write(tmp_path, SHORT)
    project = Project(tmp_path)
    result = project.run("s", [go("b", "far too long"), go("b", "ok"), finish()])
    assert result.ok, result.reason
    [error] = project.events("validation_error")
    assert (error["path"], error["message"]) == ("$.artifact.data", "`far too long` has 12 characters")
    assert "has 12 characters" in project.model.requests[1].messages[-1].text
    assert project.is_sound()


def test_without_a_message_the_model_sees_the_condition_and_the_values(tmp_path: Path):
    write(tmp_path, '- expression: "size(data.text) <= 5"')
    project = Project(tmp_path)
    assert project.run("s", [go("b", "far too long"), go("b", "ok"), finish()]).ok
    [error] = project.events("validation_error")
    assert error["message"] == '`size(data.text) <= 5` is not true (`data.text` is "far too long")'
    assert project.is_sound()


def test_the_last_phase_is_checked_before_it_finishes(tmp_path: Path):
    write(tmp_path, SHORT, node="b")
    project = Project(tmp_path)
    result = project.run("s", [go("b"), finish("far too long"), finish("ok")])
    assert result.ok
    assert result.artifact == {"type": "note", "data": {"text": "ok"}}
    assert project.is_sound()


def test_a_condition_counts_as_a_retry_of_the_phase(tmp_path: Path):
    write(tmp_path, SHORT)
    result = Project(tmp_path).run("s", [go("b", "far too long")] * 2, max_phase_retries=1)
    assert (result.status, result.code) == ("failed", "RYN202")
    assert "has 12 characters" in result.reason


def test_a_condition_reads_the_state_and_the_input_of_the_run(tmp_path: Path):
    check = '- expression: "data.text != run.input.text && visits.a == 1 && size(state.seen) == 0"'
    write(tmp_path, f"{check}\nstate:\n  seen: {{append: note, max: 3}}")
    project = Project(tmp_path)
    result = project.run("s", [go("b", "the input"), go("b", "another"), finish()], {"text": "the input"})
    assert result.ok, result.reason
    assert len(project.events("validation_error")) == 1
    assert project.is_sound()


def test_an_error_of_evaluation_fails_the_visit_and_asks_no_model_again(tmp_path: Path):
    write(tmp_path, '- expression: "10 / size(data.text) > 2"')
    project = Project(tmp_path)
    result = project.run("s", [go("b", "")])
    assert (result.status, result.code) == ("failed", "RYN203")
    assert "`10 / size(data.text) > 2`, column 4: division by zero" in result.reason
    assert '`data.text` is ""' in result.reason
    assert len(project.events("llm_requested")) == 1
    assert project.is_sound()


def test_an_error_of_evaluation_goes_to_the_handler_of_the_node(tmp_path: Path):
    keys = '- expression: "10 / size(data.text) > 2"\n    on_error: {failed: c}'
    graph = {"a": ["b"], "b": ["end"], "c": ["end"]}
    write(tmp_path, keys, graph=graph, inputs={"c": "node_error"})
    project = Project(tmp_path)
    result = project.run("s", [go("b", ""), finish("handled")])
    assert result.ok, result.reason
    assert result.path == ("a", "c")
    assert project.is_sound()


def test_a_node_without_a_model_fails_with_the_message(tmp_path: Path):
    write_skill(tmp_path, "child", {"c": ["end"]})
    write(tmp_path, SHORT, node="'@child'", graph={"@child": ["b"], "b": ["end"]})
    result = Project(tmp_path).run("s", [finish("far too long")])
    assert (result.status, result.reason) == ("failed", "node `@child`: check: `far too long` has 12 characters")


def test_a_condition_with_into_binds_its_value(tmp_path: Path):
    steps = '- expression: {condition: "size(data.text) <= 5", into: local.short}\n      - expression: "local.short"'
    write(tmp_path, steps)
    project = Project(tmp_path)
    assert project.run("s", [go("b", "far too long"), go("b", "ok"), finish()]).ok
    assert [one["status"] for one in project.events("step_completed")] == ["ok", "failed", "ok", "ok"]
    assert project.is_sound()


def test_a_condition_of_a_preprocessor_fails_the_visit(tmp_path: Path):
    steps = "preprocessor:\n  - expression: {condition: \"data.text != ''\", message: nothing to do}\n"
    write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": steps})
    project = Project(tmp_path)
    assert project.run("s", [finish()], {"text": "work"}, run_id="one").ok
    result = project.run("s", [finish()], {"text": ""}, run_id="two")
    assert (result.status, result.code) == ("failed", "RYN203")
    assert "nothing to do" in result.reason


@pytest.mark.parametrize(
    ("check", "code", "says"),
    [
        ('- expression: "data.txt == 1"', "RYN181", "column 6: `data` has no field `txt`"),
        ('- expression: "size(data.text)"', "RYN181", "column 1: the condition is an integer"),
        ('- expression: "size(data.text) <"', "RYN181", "column"),
        ('- expression: "data.text == 5"', "RYN181", "column"),
        ('- expression: {condition: "true", message: "${data.txt}"}', "RYN181", "`data` has no field `txt`"),
        ('- expression: "size(data.text) >= 0"', "RYN183", "is always true"),
        ('- expression: "size(data.text) < 0"', "RYN183", "is never true"),
        ('- expression: "local.x == 1"', "RYN181", "local"),
        ("- expression: {message: no}", "RYN113", "condition"),
        ('- expression: {condition: ""}', "RYN181", "column 1"),
    ],
)
def test_conditions_are_checked_at_their_position(tmp_path: Path, check: str, code: str, says: str):
    folder = write(tmp_path, check, artifacts={"note": NOTE | {"additionalProperties": False}})
    findings = [one for one in lint_skill(folder, vocabulary=VOCABULARY) if one.severity != "info"]
    found = [one for one in findings if one.code == code and says in one.message]
    assert found, findings
    assert found[0].line >= 8
