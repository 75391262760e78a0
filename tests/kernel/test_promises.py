"""What the frame, the contract and the loop promise, where no other test states it."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

import reyn
from reyn.models import ModelAnswer, ModelRequest
from reyn.skills.resolve import STDLIB
from reyn.testing import ScriptedModel
from tests.kernel.support import Project
from tests.support import NOTE, abort, act, file, finish, go, write_skill

LOOP = {"a": ["b", "end"], "b": ["a"]}


def test_execution_has_the_path_and_counts_the_visits_of_the_phase_and_of_the_run(tmp_path: Path):
    write_skill(tmp_path, "loop", LOOP)
    project = Project(tmp_path)
    visits = [go("b" if number % 2 == 0 else "a", f"n{number}") for number in range(24)]
    assert project.run("loop", [*visits, finish()]).ok
    with project.open([]) as rt:
        frames = [event.seq for event in rt.runs.events("k") if event.kind == "frame_built"]
        third, last = (rt.runs.context_frame("k", frames[number]).as_json()["execution"] for number in (2, 24))
    assert (third["path"], third["current_visit"], third["total_steps"]) == (("a", "b", "a"), 2, 3)
    assert (last["path"], last["current_visit"], last["total_steps"]) == ((*("b", "a") * 10,), 13, 25)


def test_the_confidence_of_a_decision_is_recorded_and_decides_nothing(tmp_path: Path):
    write_skill(tmp_path, "loop", LOOP)
    runs = {}
    for confidence in (0, 0.5, 1):
        project = Project(tmp_path)
        assert project.run("loop", [go("b", confidence=confidence), go("a", confidence=confidence), finish()]).ok
        assert [one["confidence"] for one in project.events("control_decided")] == [confidence, confidence, 1]
        runs[confidence] = (project.kinds(), [request.messages for request in project.model.requests])
    assert runs[0] == runs[0.5] == runs[1]


def test_an_artifact_is_checked_against_the_schema_of_the_target_that_was_chosen(tmp_path: Path):
    plan, report = (NOTE | {"properties": {"text": {"const": text}}} for text in ("a plan", "a report"))
    write_skill(
        tmp_path,
        "s",
        {"a": ["b", "end"], "b": ["end"]},
        artifacts={"plan": plan, "report": report},
        inputs={"b": "plan"},
        final_output="report",
    )
    project = Project(tmp_path)
    wrong = [go("b", "a report", "plan"), go("b", "a report", "report")]
    answers = [
        *wrong,
        go("b", "a plan", "plan"),
        finish("a plan", "report"),
        finish("a report"),
        finish("a report", "report"),
    ]
    assert project.run("s", answers).artifact == {"type": "report", "data": {"text": "a report"}}
    assert [(one["class"], one["path"]) for one in project.events("validation_error")] == [
        ("schema", "$.artifact.data.text"),
        ("artifact_type", "$.artifact.type"),
        ("schema", "$.artifact.data.text"),
        ("artifact_type", "$.artifact.type"),
    ]


@pytest.mark.parametrize("artifact", [{}, None, {"type": "anything", "data": {"x": 1}}])
def test_the_artifact_of_an_abort_may_be_anything(tmp_path: Path, artifact: object):
    write_skill(tmp_path, "loop", LOOP)
    answer = abort("no") | {"artifact": artifact} if artifact is not None else {"control": abort("no")["control"]}
    assert Project(tmp_path).run("loop", [answer]).status == "aborted"


def test_ops_run_in_the_order_of_the_answer_and_each_has_two_events(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"})
    project = Project(tmp_path)
    ops = [file("write", f"workspace:{name}.txt", content=name) for name in "cab"]
    assert project.run("s", [act(*ops, file("read", "workspace:b.txt")), finish()]).ok
    pairs = [event for event in project.kinds() if event.startswith("file_")]
    assert pairs == ["file_started", "file_completed"] * 4
    assert [one["path"] for one in project.results()] == [f"workspace:{name}.txt" for name in "cabb"]
    assert project.results()[3]["content"] == "b"


def test_a_phase_is_reused_by_skills_and_sees_the_candidates_of_the_one_that_runs(tmp_path: Path):
    folder = write_skill(tmp_path, "one", {"check": ["end"]})
    other = write_skill(tmp_path, "two", {"check": ["more"], "more": ["end"]})
    shared = tmp_path / "reyn" / "shared" / "phases"
    shared.mkdir(parents=True)
    shutil.move(folder / "phases" / "check.md", shared)
    (other / "phases" / "check.md").unlink()
    project = Project(tmp_path)
    assert project.run("one", [finish()], run_id="one").ok
    assert [one.next_phase for one in project.model.requests[0].candidates] == ["end"]
    assert project.run("two", [go("more"), finish()], run_id="two").ok
    assert [one.next_phase for one in project.model.requests[0].candidates] == ["more"]


def test_a_new_skill_runs_without_a_change_of_the_code(tmp_path: Path):
    """The packages that execute runs contain the name of no skill, so none is treated in a special way."""
    skills = {folder.name for folder in (STDLIB / "skills").iterdir()}
    assert {"chat", "judge_output"} <= skills
    found = [
        (path.name, node.value)
        for package in ("kernel", "contract", "journal", "permissions", "workspace", "runtime")
        for path in (Path(reyn.__file__).parent / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in skills
    ]
    assert found == []


def test_each_frame_is_built_anew_and_shows_nothing_of_other_phases(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["c"], "c": ["end"]})
    project = Project(tmp_path)
    reason = {"summary": "for a secret reason"}
    assert project.run("s", [go("b", "from a", reason=reason), go("c", "from b", reason=reason), finish()]).ok
    seen = ["\n".join(message.text for message in request.messages) for request in project.model.requests]
    assert ["from a" in text for text in seen] == [False, True, False]
    assert ["from b" in text for text in seen] == [False, False, True]
    for text in seen:
        assert not any(word in text for word in ("secret reason", "phase_started", "control_decided"))


def test_a_model_cannot_change_what_it_was_shown(tmp_path: Path):
    class Meddling(ScriptedModel):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            if isinstance(request.input, dict):
                request.input["data"]["text"] = "changed"
            return await super().complete(request)

    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]})
    project = Project(tmp_path)
    assert project.run("s", [], model=Meddling(["no", go("b", "said"), "no", finish()])).ok
    with project.open([]) as rt:
        frames = [event.seq for event in rt.runs.events("k") if event.kind == "frame_built"]
        shown = [rt.runs.context_frame("k", seq).as_json()["input_artifact"]["data"]["text"] for seq in frames]
    assert shown == ["in", "in", "said", "said"]
    assert project.is_sound()


def test_memories_are_in_the_frame_if_a_step_recalled_them_into_the_input(tmp_path: Path):
    recall = "preprocessor:\n  - run_op: {op: {kind: recall, query: tea}, into: data.relevant_memories}\n"
    keys = {"artifacts": {"note": {"type": "object", "additionalProperties": True}}}
    write_skill(tmp_path, "recalling", {"a": ["end"]}, phase_keys={"a": recall}, **keys)
    write_skill(tmp_path, "plain", {"a": ["end"]}, **keys)
    (tmp_path / "reyn/memory").mkdir()
    (tmp_path / "reyn/memory/tea.md").write_text("---\nname: tea\ndescription: Which tea to buy\n---\nGreen.\n")
    project = Project(tmp_path)
    for skill, is_shown in (("recalling", True), ("plain", False)):
        assert project.run(skill, [finish()], run_id=skill).ok
        assert any("Green." in message.text for message in project.model.requests[0].messages) == is_shown
        assert ("relevant_memories" in project.model.requests[0].input["data"]) == is_shown
