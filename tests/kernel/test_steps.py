"""Deterministic steps: their results, their failures, their events."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn import LATER, RunResult
from reyn.errors import ReplyInvalid, UpgradeIncompatible
from tests.kernel.support import Project
from tests.support import act, file, finish, go, write_skill

OPEN = {"type": "object", "additionalProperties": True}


def make(root: Path, steps: str, *, where: str = "pre", **more) -> Project:
    if where == "pre":
        more["phase_keys"] = {"a": f"preprocessor:\n{steps}"}
    else:
        more["skill_keys"] = f"postprocessor:\n  output_schema: card\n  steps:\n{steps}"
    artifacts = {"note": OPEN, "card": {"type": "object", "required": ["found"]}}
    write_skill(root, "s", {"a": ["end"]}, artifacts=artifacts, **more)
    return Project(root)


def seen(project: Project, call: int = 0) -> dict:
    """The input artifact as the model saw it."""
    return project.model.requests[call].input["data"]


def test_a_preprocessor_op_binds_its_result(tmp_path: Path):
    (tmp_path / "menu.txt").write_text("soup\n")
    project = make(
        tmp_path, "  - run_op: {op: {kind: file, op: read, path: x}, args_from: {path: data.name}, into: data.found}\n"
    )
    assert project.run("s", [finish()], {"name": "menu.txt"}).ok
    assert seen(project)["found"]["content"] == "soup\n"
    assert project.kinds()[1:7] == [
        "phase_started",
        "step_started",
        "file_started",
        "file_completed",
        "step_completed",
        "frame_built",
    ]
    assert project.is_sound()


@pytest.mark.parametrize(
    ("op", "bound", "matches"),
    [
        ("{kind: file, op: glob}", "pattern", ["docs/a.md"]),
        ("{kind: file, op: glob, path: .}", "pattern", ["docs/a.md"]),
        ("{kind: file, op: glob, path: docs}", "name", ["docs/a.md"]),
        ("{kind: file, op: glob, pattern: '*.md'}", "folder", ["docs/a.md"]),
        ("{kind: file, op: glob, pattern: '*.md', path: docs}", "", ["docs/a.md"]),
        ("{kind: file, op: glob}", "folder", ["docs/a.md", "docs/b.txt"]),
    ],
)
def test_a_glob_takes_its_pattern_or_its_folder_from_the_artifact(tmp_path: Path, op: str, bound: str, matches: list):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("soup\n")
    (tmp_path / "docs" / "b.txt").write_text("soup\n")
    argument = {"pattern": "pattern", "name": "pattern", "folder": "path"}.get(bound)
    from_artifact = f"args_from: {{{argument}: data.{bound}}}, " if argument else ""
    project = make(tmp_path, f"  - run_op: {{op: {op}, {from_artifact}into: data.found}}\n")
    assert project.run("s", [finish()], {"pattern": "docs/*.md", "name": "*.md", "folder": "docs"}).ok
    assert sorted(seen(project)["found"]["matches"]) == matches


def test_iterate_binds_one_result_per_item(tmp_path: Path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    project = make(
        tmp_path,
        "  - iterate:\n      over: data.names\n      into: data.texts\n      on_error: skip\n"
        "      apply: {run_op: {op: {kind: file, op: read, path: x}, args_from: {path: _iter.item}}}\n",
    )
    result = project.run("s", [finish()], {"names": ["a.txt", "nowhere", "b.txt"]})
    assert result.ok
    assert [text["content"] for text in seen(project)["texts"]] == ["a.txt", "b.txt"]
    assert "_iter" not in project.model.turn_message(0)
    assert "was left skipped" in result.warnings[0]
    assert project.is_sound()


def test_a_failing_item_can_be_null_in_the_results(tmp_path: Path):
    (tmp_path / "b.txt").write_text("b")
    project = make(
        tmp_path,
        "  - iterate:\n      over: data.names\n      into: data.texts\n      on_error: empty\n"
        "      apply: {run_op: {op: {kind: file, op: read, path: x}, args_from: {path: _iter.item}}}\n",
    )
    assert project.run("s", [finish()], {"names": ["nowhere", "b.txt"]}).ok
    first, second = seen(project)["texts"]
    assert first is None
    assert second["content"] == "b"


@pytest.mark.parametrize(("on_error", "bound"), [("skip", {"n": 1}), ("empty", {"n": 1, "found": None})])
def test_a_failing_step_can_be_skipped_with_a_warning(tmp_path: Path, on_error: str, bound: dict):
    project = make(
        tmp_path, f"  - run_op: {{op: {{kind: file, op: read, path: no}}, into: data.found, on_error: {on_error}}}\n"
    )
    result = project.run("s", [finish()], {"n": 1})
    assert result.ok
    assert seen(project) == bound
    assert "step 1.pre.1 `run_op` failed" in result.warnings[0]
    assert project.is_sound()


def test_a_failing_step_fails_the_visit_and_its_writes_are_restored(tmp_path: Path):
    project = make(
        tmp_path,
        "  - run_op: {op: {kind: file, op: write, path: 'workspace:x', content: y}}\n"
        "  - run_op: {op: {kind: file, op: read, path: menu.txt}, into: data.found}\n",
    )
    result = project.run("s", [finish()], {})
    assert (result.status, project.model.requests) == ("failed", [])
    assert "step 1.pre.2 `run_op`" in result.reason
    assert not (tmp_path / ".reyn/workspace/k/x").exists()
    (tmp_path / "menu.txt").write_text("soup")
    assert project.resume([finish()], retry=True).ok
    assert project.is_sound()


def test_an_invalid_op_fails_the_step(tmp_path: Path):
    """An op that is invalid as it is written is an error of the skill; values of the artifact are checked here."""
    step = "  - run_op: {op: {kind: file, op: read}, args_from: {path: data.where}, into: data.found}\n"
    result = make(tmp_path, step).run("s", [finish()], {"where": 5})
    assert result.status == "failed"
    assert "is integer, not string" in result.reason


def test_steps_are_subject_to_permissions(tmp_path: Path):
    project = make(tmp_path, "  - run_op: {op: {kind: file, op: write, path: out.txt, content: y}}\n")
    result = project.run("s", [finish()], {})
    assert result.status == "failed"
    assert "denied" in result.reason
    assert not (tmp_path / "out.txt").exists()


def test_validate_binds_findings_or_fails(tmp_path: Path):
    schema = "{type: object, required: [a], properties: {b: {type: integer}}}"
    project = make(tmp_path, f"  - validate: {{schema: {schema}, into: data.findings}}\n")
    assert project.run("s", [finish()], {"b": "x"}).ok
    assert [finding["path"] for finding in seen(project)["findings"]] == ["data", "data.b"]
    other = make(tmp_path / "other", f"  - validate: {{schema: {schema}}}\n")
    result = other.run("s", [finish()], {"b": 1})
    assert result.status == "failed"
    assert "'a' is missing" in result.reason


def test_lint_plan_reports_structural_issues(tmp_path: Path):
    project = make(tmp_path, "  - lint_plan: {over: data.plan, into: data.issues}\n")
    plan = {
        "phases": [{"name": "x", "input_artifact": "nothing"}, {"name": "y", "input_artifact": "user_message"}],
        "transitions": [{"from": "x", "to": ["y", "z"]}, {"from": "y", "to": ["x"]}],
        "artifacts": [],
        "final_output": {"name": "out"},
        "entry_phase": "w",
    }
    assert project.run("s", [finish()], {"plan": plan}).ok
    assert seen(project)["issues"] == [
        "phase `x` takes `nothing`, which is not declared",
        "the entry phase `w` is not declared",
        "a transition of `x` leads to `z`, which is not declared",
        "`x` can be reached from itself",
        "`y` can be reached from itself",
    ]


def test_the_postprocessor_produces_the_result(tmp_path: Path):
    (tmp_path / "menu.txt").write_text("soup")
    project = make(
        tmp_path, "    - run_op: {op: {kind: file, op: read, path: menu.txt}, into: data.found}\n", where="post"
    )
    result = project.run("s", [finish("end")], {})
    assert result.artifact["type"] == "card"
    assert result.artifact["data"]["text"] == "end"
    assert result.artifact["data"]["found"]["content"] == "soup"
    assert project.kinds()[-3:] == ["step_completed", "postprocessor_completed", "skill_completed"]
    assert project.is_sound()


@pytest.mark.parametrize(("keys", "name"), [("", "s_result"), ("  output_name: receipt\n", "receipt")])
def test_the_type_of_an_inline_output_schema_is_named_after_the_skill_or_by_its_author(
    tmp_path: Path, keys: str, name: str
):
    inline = f"postprocessor:\n  output_schema: {{type: object, required: [text]}}\n{keys}"
    write_skill(tmp_path, "s", {"a": ["end"]}, skill_keys=inline)
    assert Project(tmp_path).run("s", [finish("paid")]).artifact == {"type": name, "data": {"text": "paid"}}


def test_a_failed_postprocessor_can_be_retried(tmp_path: Path):
    project = make(
        tmp_path, "    - run_op: {op: {kind: file, op: read, path: menu.txt}, into: data.found}\n", where="post"
    )
    result = project.run("s", [finish()], {})
    assert result.status == "failed"
    assert "step 1.post1.1" in result.reason
    (tmp_path / "menu.txt").write_text("soup")
    assert project.resume([finish()], retry=True).ok
    assert len(project.model.requests) == 0
    assert [event["attempt"] for event in project.events("postprocessor_started")] == [1, 2]
    assert project.is_sound()


def test_the_postprocessor_output_is_validated(tmp_path: Path):
    project = make(
        tmp_path,
        "    - run_op: {op: {kind: file, op: glob, pattern: '*'}, into: data.other}\n",
        where="post",
    )
    result = project.run("s", [finish()], {})
    assert result.status == "failed"
    assert "'found' is missing" in result.reason


def test_a_preprocessor_runs_on_every_visit(tmp_path: Path):
    write_skill(
        tmp_path,
        "s",
        {"a": ["a", "end"]},
        artifacts={"note": OPEN},
        ops={"a": "file, ask_user"},
        phase_keys={
            "a": "preprocessor:\n  - run_op: {op: {kind: file, op: glob, pattern: '*.txt'}, into: data.found}\n"
        },
    )
    project = Project(tmp_path)
    (tmp_path / "one.txt").write_text("")
    assert project.run("s", [act(file("read", "one.txt")), go("a"), finish()], {}).ok
    assert len(project.events("step_started")) == 2


# -- questions ----------------------------------------------------------------------------------------------


def answer(project: Project, value: object, answers: list) -> RunResult:
    with project.open(answers) as rt:
        wait = rt.runs.result("k").question
        assert wait is not None
        rt.answer("k", wait.id, value, by="ada")
        return rt.resume("k")


def test_a_step_asks_a_person_before_the_model_is_called(tmp_path: Path):
    project = make(tmp_path, "  - ask_user: {question: Which tone?, suggestions: [formal, plain], into: data.tone}\n")
    result = project.run("s", [finish()])
    assert (result.status, result.question.id, result.question.reason) == ("waiting", "1.pre.1", "question")
    assert (result.question.message, result.question.suggestions) == ("Which tone?", ("formal", "plain"))
    assert project.model.requests == []
    assert answer(project, "plain", [finish()]).ok
    assert seen(project)["tone"] == "plain"
    [answered] = project.events("wait_answered")
    assert answered["by"] == "ada"
    assert project.is_sound()


def test_a_step_asks_a_person_before_the_result_is_returned(tmp_path: Path):
    steps = (
        "    - ask_user: {question: Send it?, show: data, schema: {enum: ['yes', 'no']}, into: data.sent}\n"
        "    - validate: {schema: {const: 'yes'}, target: data.sent}\n"
        "    - run_op: {op: {kind: file, op: glob, pattern: '*'}, into: data.found}\n"
    )
    project = make(tmp_path, steps, where="post")
    result = project.run("s", [finish("line\n## one")])
    assert result.question.message == 'Send it?\n{\n  "text": "line\\n## one"\n}'
    with pytest.raises(ReplyInvalid):
        answer(project, "perhaps", [finish()])
    assert answer(project, "yes", [finish()]).artifact["data"]["sent"] == "yes"
    assert project.is_sound()
    assert project.run("s", [finish()], run_id="other").status == "waiting"
    with project.open([finish()]) as rt:
        rt.answer("other", "1.post1.1", "no")
        refused = rt.resume("other")
    assert (refused.status, refused.code) == ("failed", "RYN203")


def test_an_answer_follows_the_schema_of_the_step(tmp_path: Path):
    step = "  - ask_user: {question: How many?, schema: {type: integer, minimum: 1}, required: false, into: data.n}\n"
    project = make(tmp_path, step)
    project.run("s", [finish()])
    for wrong in ("three", 0, {}):
        with pytest.raises(ReplyInvalid):
            answer(project, wrong, [finish()])
    assert answer(project, None, [finish()]).ok
    assert seen(project)["n"] is None


def test_a_step_asks_once_for_every_item_of_a_list(tmp_path: Path):
    step = (
        "  - iterate: {over: data.names, apply: {ask_user: {question: Keep it?, show: _iter.item}}, into: data.kept}\n"
    )
    project = make(tmp_path, step)
    result = project.run("s", [finish()], {"names": ["a", "b"]})
    assert (result.question.id, result.question.message) == ("1.pre.1.1", 'Keep it?\n"a"')
    assert answer(project, "yes", [finish()]).question.message == 'Keep it?\n"b"'
    assert answer(project, "no", [finish()]).ok
    assert seen(project)["kept"] == ["yes", "no"]
    assert project.is_sound()


def test_a_question_of_a_step_in_a_sub_run_is_answered_through_the_parent(tmp_path: Path):
    steps = "preprocessor:\n  - ask_user: {question: Sure?, into: data.sure}\n"
    write_skill(tmp_path, "child", {"c": ["end"]}, phase_keys={"c": steps}, artifacts={"note": OPEN})
    write_skill(tmp_path, "s", {"@child": ["end"]}, artifacts={"note": OPEN})
    project = Project(tmp_path)
    assert project.run("s", [finish()]).question.id == "1.1/1.pre.1"
    assert answer(project, "yes", [finish()]).ok
    assert project.is_sound()
    assert project.is_sound("k.1.1")


def test_a_step_that_shows_a_missing_value_fails(tmp_path: Path):
    project = make(tmp_path, "  - ask_user: {question: Send it?, show: data.draft, into: data.sent}\n")
    result = project.run("s", [finish()])
    assert (result.status, result.reason) == ("failed", "`a`: step 1.pre.1 `ask_user`: no value at `data.draft`")


def test_the_frame_of_a_phase_that_asks_first_is_shown_without_the_answer(tmp_path: Path):
    project = make(tmp_path, "  - ask_user: {question: Which tone?, into: data.tone}\n")
    with project.open([]) as rt:
        [warning] = rt.project.first_frame("s").warnings
    assert warning == "the preprocessor of phase `a` was not executed: a step asks a person"


@pytest.mark.parametrize("where", ["pre", "post"])
def test_an_upgrade_cannot_remove_a_question_that_is_open(tmp_path: Path, where: str):
    indent = "  " if where == "pre" else "    "
    asking = f"{indent}- ask_user: {{question: Sure?, into: data.found}}\n"
    project = make(tmp_path, asking, where=where)
    assert project.run("s", [finish()]).status == "waiting"
    make(tmp_path, asking.replace("Sure?", "Really?"), where=where)
    with project.open([finish()], people=SilentUser()) as rt, pytest.raises(UpgradeIncompatible):
        rt.resume("k", upgrade=True)
    assert answer(project, "yes", [finish()]).ok
    assert project.is_sound()


class SilentUser:
    """A user at a terminal who never answers."""

    async def ask(self, run_id: str, wait: object) -> object:
        return LATER
