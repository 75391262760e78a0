"""`check` of a node: steps on the proposed artifact, whose failure is a rejected answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime, tool
from reyn.lint import lint_skill
from reyn.testing import ScriptedModel
from tests.kernel.support import Project
from tests.support import NOTE, VOCABULARY, act, file, finish, go, with_ops, write_skill

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


@pytest.mark.parametrize("how", ["retry", "node"])
def test_an_unsafe_op_checks_what_is_proposed_now_and_not_what_an_earlier_visit_proposed(tmp_path: Path, how: str):
    tested: list[str] = []

    @tool(effect="unsafe", permission=None)
    def run_tests() -> str:
        """Run the tests of the program."""
        tested.append((tmp_path / "output" / "program.txt").read_text())
        if tested[-1] == "wrong":
            raise ValueError("a test fails")
        return "all tests pass"

    checks = f"- run_op: {{op: {{kind: run_tests}}}}\n      {SHORT}"
    more = "\n    retry: {max: 1}" if how == "node" else ""
    write(tmp_path, checks + more, ops={"a": "file"})

    def program(text: str) -> dict[str, Any]:
        return act(file("write", "output/program.txt", content=text))

    answers = [
        program("right"),
        go("b", "far too long"),
        program("wrong"),
        go("b", "ok"),
        program("right"),
        go("b", "ok"),
    ]
    with SyncRuntime.open(
        tmp_path, model=ScriptedModel([*answers, finish()]), ops=[run_tests], trust=True, max_phase_retries=0
    ) as runtime:
        result = runtime.run("s", {"text": "x"}, run_id="k")
        while not result.ok:
            result = runtime.resume("k", retry=True)
        assert tested == ["right", "wrong", "right"]
        assert runtime.runs.replay("k").events == runtime.runs.verify("k").events


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


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ("False", "`verdict` returned `false`"),
        ("{'ok': False}", '`verdict` returned `{"ok":false}`'),
        ("{'ok': False, 'message': 'too long'}", "too long"),
        ("{'error': {'name': 'wrong', 'message': 'too long'}}", "too long"),
        ("None", ""),
        ("True", ""),
        ("0", ""),
        ("''", ""),
        ("{'ok': True}", ""),
        ("{'ok': 0}", ""),
    ],
)
@pytest.mark.parametrize("node", ["a", "b"], ids=["transition", "finish"])
def test_a_function_rejects_an_artifact_with_what_it_returns(tmp_path: Path, result: str, says: str, node: str):
    python = "{module: ./rules.py, function: verdict}"
    folder = write(tmp_path, f"- python: {python}\npermissions: {{python: [{python}]}}", node=node)
    source = f"def verdict(artifact):\n    return {result} if artifact['data']['text'] == 'first' else None\n"
    (folder / "rules.py").write_text(source)
    project = Project(tmp_path)
    answers = [go("b", "first"), *([go("b", "next")] if says else []), finish()]
    if node == "b":
        answers = [go("b"), finish("first"), *([finish("next")] if says else [])]
    outcome = project.run("s", answers)
    assert outcome.ok, outcome.reason
    assert [says in one["message"] for one in project.events("validation_error")] == ([True] if says else [])
    assert project.is_sound()


def test_without_a_model_a_function_that_returns_false_fails_the_visit_as_rejected(tmp_path: Path):
    write_skill(tmp_path, "child", {"c": ["end"]})
    python = "{module: ./rules.py, function: verdict}"
    folder = write(
        tmp_path,
        f"- python: {python}\n    on_error: {{rejected: b}}\npermissions: {{python: [{python}]}}",
        node="'@child'",
        graph={"@child": ["b"], "b": ["end"]},
        inputs={"b": "note | node_error"},
    )
    (folder / "rules.py").write_text("def verdict(artifact):\n    return False\n")
    project = Project(tmp_path)
    assert project.run("s", [finish("x"), finish()]).ok
    [failed] = project.events("phase_failed")
    assert failed["error_name"] == "rejected"
    assert project.is_sound()


def test_a_bound_result_rejects_nothing_by_itself(tmp_path: Path):
    python = "{module: ./rules.py, function: verdict"
    checks = f"- python: {python}, into: local.fits}}\n      - expression: \"local.fits || data.text == 'b'\""
    folder = write(tmp_path, f"{checks}\npermissions: {{python: [{python}}}]}}")
    (folder / "rules.py").write_text("def verdict(artifact):\n    return False\n")
    project = Project(tmp_path)
    assert project.run("s", [go("b", "a"), go("b", "b"), finish()]).ok
    assert len(project.events("validation_error")) == 1


def test_a_judgement_and_a_plan_with_issues_reject_the_answer(tmp_path: Path):
    score = {"type": "judgement", "data": {"score": 0.2, "reason": "It names no date."}}
    judge = "- run_op: {op: {kind: judge_output, rubric: It names a date.}, args_from: {output: data.text}}"
    write(tmp_path, f"{judge}\npermissions: {{judge_output: []}}")
    project = Project(tmp_path)
    good = score | {"data": {"score": 1, "reason": "fine"}}
    verdicts = [finish() | {"artifact": one} for one in (score, good)]
    result = project.run("s", [go("b", "soon"), verdicts[0], go("b", "on Monday"), verdicts[1], finish()])
    assert result.ok, result.reason
    assert "It names no date." in project.events("validation_error")[0]["message"]
    write(tmp_path, "- lint_plan: {over: data}")
    result = project.run("s", [go("b", "no plan"), go("b", "no plan")], run_id="plan", max_phase_retries=1)
    assert result.code == "RYN202"
    assert "the entry phase `None` is not declared" in result.reason


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
        ("- run_op: {op: {kind: file, op: read, pth: x}}", "RYN123", "`file` has no argument `pth`"),
        ('- run_op: {op: {kind: file, op: read, path: "${size(data.text)}"}}', "RYN181", "the schema needs a text"),
        ("- run_op: {op: {kind: file, op: read, path: x}, args_from: {limit: data.text}}", "RYN181", "an integer"),
    ],
)
def test_checks_are_linted_at_their_position(tmp_path: Path, check: str, code: str, says: str):
    closed = NOTE | {"additionalProperties": False}
    folder = write(tmp_path, check, artifacts={"note": closed})
    found = [one for one in lint_skill(folder, vocabulary=VOCABULARY) if says in one.message]
    assert found, lint_skill(folder, vocabulary=VOCABULARY)
    assert found[0].line >= 8 or "permission" in says
