"""`check` of a node: steps on the proposed artifact, whose failure is a rejected answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reyn.lint import lint_skill
from tests.kernel.support import Project
from tests.support import NOTE, VOCABULARY, file, finish, go, with_ops, write_skill

SHORT = "- validate: {schema: {type: object, properties: {text: {maxLength: 5}}}, target: data}"


def write(root: Path, checks: str, node: str = "a", **options: Any) -> Path:
    shape: dict[str, Any] = {"graph": {"a": ["b"], "b": ["end"]}}
    return write_skill(root, "s", skill_keys=f"nodes:\n  {node}:\n    check:\n      {checks}\n", **shape | options)


def test_a_failed_check_is_a_rejected_answer_with_its_message(tmp_path: Path):
    write(tmp_path, SHORT)
    project = Project(tmp_path)
    result = project.run("s", [go("b", "far too long"), go("b", "ok"), finish()])
    assert result.ok, result.reason
    [error] = project.events("validation_error")
    assert error["path"] == "$.artifact.data"
    assert "data.text" in error["message"]
    assert "data.text" in project.model.requests[1].messages[-1].text
    assert [one["status"] for one in project.events("step_completed")] == ["failed", "ok"]
    with project.open([]) as runtime:
        assert runtime.runs.replay("k").events == len(project.events())


def test_the_last_phase_is_checked_before_it_finishes(tmp_path: Path):
    write(tmp_path, SHORT, node="b")
    project = Project(tmp_path)
    result = project.run("s", [go("b"), finish("far too long"), finish("ok")])
    assert result.ok
    assert result.artifact == {"type": "note", "data": {"text": "ok"}}


def test_checks_count_as_retries_of_the_phase(tmp_path: Path):
    write(tmp_path, SHORT)
    result = Project(tmp_path).run("s", [go("b", "far too long")] * 2, max_phase_retries=1)
    assert (result.status, result.code) == ("failed", "RYN202")
    assert "2 answers rejected" in result.reason


def test_a_check_can_execute_an_op_and_is_not_repeated_by_a_replay(tmp_path: Path):
    write(tmp_path, "- run_op: {op: {kind: file, op: read}, args_from: {path: data.text}}")
    (tmp_path / "there.txt").write_text("x")
    project = Project(tmp_path)
    result = project.run("s", [go("b", "gone.txt"), go("b", "there.txt"), finish()])
    assert result.ok, result.reason
    assert "op status `error`" in project.events("validation_error")[0]["message"]
    (tmp_path / "there.txt").unlink()
    with project.open([]) as runtime:
        assert runtime.runs.replay("k").events == len(project.events())


def test_a_python_function_checks_an_artifact(tmp_path: Path):
    folder = write(
        tmp_path,
        "- python: {module: ./rules.py, function: balanced}\npermissions: "
        "{python: [{module: ./rules.py, function: balanced}]}",
    )
    (folder / "rules.py").write_text(
        "def balanced(artifact):\n    text = artifact['data']['text']\n"
        "    if text.count('(') != text.count(')'):\n        raise ValueError('the brackets do not match')\n"
    )
    project = Project(tmp_path)
    result = project.run("s", [go("b", "(a"), go("b", "(a)"), finish()])
    assert result.ok, result.reason
    assert "the brackets do not match" in project.events("validation_error")[0]["message"]


def test_fields_that_ops_of_the_decision_fill_are_checked_after_them(tmp_path: Path):
    write(
        tmp_path,
        "- validate: {schema: {type: object, properties: {text: {pattern: '^output/b'}}}, target: data}\n"
        "    fill: {text: ops.file.write.path}",
        ops={"a": "file"},
        phase_keys={"a": "must: [file.write]\n"},
    )
    project = Project(tmp_path)
    answers = [
        with_ops(go("b"), file("write", "output/a.md", content="x")),
        with_ops(go("b"), file("write", "output/b.md", content="x")),
        finish(),
    ]
    result = project.run("s", answers)
    assert result.ok, result.reason
    assert len(project.events("validation_error")) == 1
    with project.open([]) as runtime:
        assert runtime.runs.replay("k").events == len(project.events())


def test_without_a_model_a_failed_check_fails_the_visit(tmp_path: Path):
    write_skill(tmp_path, "child", {"c": ["end"]})
    write(tmp_path, SHORT, node="'@child'", graph={"@child": ["b"], "b": ["end"]})
    result = Project(tmp_path).run("s", [finish("far too long")])
    assert result.status == "failed"
    assert "node `@child`: check: data.text" in result.reason


@pytest.mark.parametrize(
    ("check", "code", "says"),
    [
        ("- ask_user: {question: ok?}", "RYN123", "`ask_user` cannot be a check"),
        ("- validate: {schema: {type: object}, target: data.txt}", "RYN127", "`data.txt` does not exist"),
        ("- vlidate: {schema: true}", "RYN123", "unknown step `vlidate`"),
        ("- run_op: {op: {kind: fiel, op: read}}", "RYN122", "unknown op `fiel`"),
        ("- run_op: {op: {kind: web_fetch, url: 'https://x'}}", "RYN148", "needs the permission `web`"),
    ],
)
def test_checks_are_linted_at_their_position(tmp_path: Path, check: str, code: str, says: str):
    closed = NOTE | {"additionalProperties": False}
    folder = write(tmp_path, check, artifacts={"note": closed})
    found = [one for one in lint_skill(folder, vocabulary=VOCABULARY) if says in one.message]
    assert found, lint_skill(folder, vocabulary=VOCABULARY)
    assert found[0].line >= 8 or "permission" in says
