"""Phases with `requires_approval`: no decision takes effect before a person has approved it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reyn import RunResult
from reyn.errors import ReplyInvalid, SkillInvalid
from tests.kernel.support import Project
from tests.support import abort, act, file, finish, go, question, with_ops, write_skill

REQUIRED = "requires_approval: true\n"
ANSWERS = [go("b", "draft"), finish("sent")]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file, ask_user"}, phase_keys={"a": REQUIRED})
    return Project(tmp_path)


def decide(project: Project, value: Any, answers: list = ANSWERS, **options: Any) -> RunResult:
    with project.open(answers, **options) as rt:
        wait = rt.runs.result("k").question
        assert wait is not None
        rt.answer("k", wait.id, value, by="ada")
        return rt.resume("k")


def named(project: Project, run: str = "k") -> str:
    """Return the id of the question about the last decision of a run, from the digest of the decision."""
    return f"ask-{project.events('decision_proposed', run_id=run)[-1]['digest'][:32]}"


def test_a_decision_waits_and_shows_target_reason_and_artifact(project: Project):
    result = project.run("s", ANSWERS)
    assert (result.status, result.question.reason, result.question.id) == ("waiting", "decision", named(project))
    assert result.question.message == (
        "Approve the decision of phase `a`: go to `b`?\n"
        'reason: "to b" (confidence 0.5)\n'
        'artifact `note`: {\n  "text": "draft"\n}\n'
    )
    assert result.question.expires_at is not None
    assert "artifact_stored" not in project.kinds()


def test_an_approved_decision_is_committed_with_the_reviewer(project: Project):
    project.run("s", ANSWERS)
    assert decide(project, "approve").ok
    [reviewed] = project.events("decision_reviewed")
    [proposed] = project.events("decision_proposed")
    assert (reviewed["decision"], reviewed["by"]) == ("approve", "ada")
    assert reviewed["digest"] == proposed["digest"]
    kinds = project.kinds()
    assert kinds.index("decision_reviewed") < kinds.index("control_decided")
    assert project.is_sound()


def test_a_decision_that_is_sent_back_reaches_the_model_with_the_remark(project: Project):
    answers = [go("b", "draft"), go("b", "better"), finish("sent")]
    project.run("s", answers)
    again = decide(project, {"decision": "reject", "remark": "too\n## short"}, answers)
    assert again.status == "waiting"
    assert '"text": "better"' in again.question.message
    messages = [message.text for message in project.model.requests[0].messages]
    assert json.loads(messages[2])["artifact"]["data"] == {"text": "draft"}
    assert 'a reviewer sent the decision back: "too\\n## short"' in messages[3]
    assert decide(project, "approve", answers).ok
    assert project.is_sound()


def test_a_reviewer_may_send_back_more_often_than_a_model_may_fail(project: Project):
    answers = [go("b", str(number)) for number in range(6)] + [finish()]
    project.run("s", answers, max_phase_retries=0)
    for _ in range(5):
        assert decide(project, "reject", answers).status == "waiting"
    assert decide(project, "approve", answers).ok
    assert len(project.events("validation_error")) == 0
    assert project.is_sound()


def test_ops_of_a_decision_wait_for_the_approval_as_well(project: Project):
    write = file("write", "output/a.md", content="x")
    answers = [with_ops(go("b", "draft"), write), finish("sent")]
    result = project.run("s", answers)
    assert 'op 1: {"kind":"file","op":"write","path":"output/a.md","content":"x"}' in result.question.message
    assert not (project.root / "output").exists()
    assert decide(project, "approve", answers).ok
    assert (project.root / "output" / "a.md").read_text() == "x"
    assert project.is_sound()


def test_a_decision_whose_op_fails_after_the_approval_is_reviewed_again(project: Project):
    answers = [with_ops(go("b", "draft"), file("read", "nowhere")), go("b", "other"), finish("sent")]
    project.run("s", answers)
    again = decide(project, "approve", answers)
    assert (again.status, again.question.id) == ("waiting", named(project))
    assert decide(project, "approve", answers).ok
    assert project.is_sound()


def test_a_model_cannot_skip_the_review_by_aborting_acting_or_finishing(project: Project, tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["b", "end"], "b": ["end"]}, ops={"a": "file"}, phase_keys={"a": REQUIRED})
    assert project.run("s", [abort()], run_id="abort").question.message.startswith(
        "Approve the decision of phase `a`: abort?"
    )
    assert project.run("s", [finish()], run_id="finish").question.reason == "decision"
    acting = [act(file("glob", "*")) for _ in range(10)]
    assert project.run("s", [*acting, go("b")], run_id="act").question.reason == "decision"
    with project.open([abort()]) as rt:
        rt.answer("abort", rt.runs.result("abort").question.id, "approve")
        assert rt.resume("abort").status == "aborted"


def test_a_question_of_the_model_is_not_the_review(project: Project):
    """An answer to another question, even with the same word, approves nothing."""
    answers = [with_ops(go("b"), question("Approve?")), go("b"), finish()]
    first = project.run("s", answers)
    assert first.question.reason == "decision"
    second = decide(project, "approve", answers)
    assert (second.question.reason, second.question.message) == ("question", "Approve?")
    third = decide(project, "approve", answers)
    assert third.question.reason == "decision"
    assert decide(project, "approve", answers).ok


def test_a_review_that_expires_fails_the_visit_and_can_be_retried(project: Project):
    write = [act(file("write", "output/a.md", content="x")), go("b", "draft")]
    project.run("s", write, limits={"approval_seconds": 1})
    assert (project.root / "output" / "a.md").exists()
    project.clock.advance(10)
    with project.open(write) as rt:
        result = rt.resume("k")
    assert (result.status, result.code) == ("failed", "RYN301")
    assert not (project.root / "output" / "a.md").exists()
    assert "control_decided" not in project.kinds()
    assert project.is_sound()
    with project.open([*write, *ANSWERS]) as rt:
        assert rt.resume("k", retry=True).question.reason == "decision"


def test_a_deferred_review_stays_open(project: Project):
    project.run("s", ANSWERS)
    later = decide(project, "defer")
    assert (later.status, later.question.id) == ("waiting", f"{named(project)}-2")
    assert decide(project, "approve").ok
    assert [event["decision"] for event in project.events("decision_reviewed")] == ["defer", "approve"]
    assert project.is_sound()


@pytest.mark.parametrize(
    "value", ["yes", None, {"decision": "edit", "args": {}}, {"decision": "approve", "always": True}]
)
def test_any_other_answer_is_refused(project: Project, value: Any):
    project.run("s", ANSWERS)
    with pytest.raises(ReplyInvalid):
        decide(project, value)


def edit(text: Any, type: str = "note", **more: Any) -> dict[str, Any]:
    return {"decision": "edit", "artifact": {"type": type, "data": {"text": text, **more}}}


@pytest.mark.parametrize("has_op", [False, True])
def test_an_edited_artifact_takes_the_place_of_the_proposed_one(project: Project, has_op: bool):
    write = file("write", "output/a.md", content="x")
    first = with_ops(go("b", "draft"), write) if has_op else go("b", "draft")
    project.run("s", [first, finish("sent")])
    done = decide(project, {**edit("mine"), "remark": "shorter"}, [first, finish("sent")])
    assert done.ok
    assert (project.root / "output" / "a.md").exists() == has_op
    [proposed], [reviewed] = project.events("decision_proposed"), project.events("decision_reviewed")
    texts = [json.loads(project.journal.blob(one["artifact"]))["data"]["text"] for one in (proposed, reviewed)]
    assert texts == ["draft", "mine"]
    assert (reviewed["decision"], reviewed["by"], reviewed["remark"]) == ("edit", "ada", "shorter")
    prompt = "".join(message.text for message in project.model.requests[-1].messages)
    assert ("mine" in prompt, "draft" in prompt) == (True, False)
    assert project.is_sound()


def test_an_edited_final_output_is_the_result_and_a_fork_is_reviewed_again(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": REQUIRED})
    project = Project(tmp_path)
    project.run("s", [finish("draft")])
    assert decide(project, edit("mine"), [finish("draft")]).artifact["data"] == {"text": "mine"}
    assert project.is_sound()
    with project.open([finish("draft")]) as rt:
        asked = next(event.seq for event in rt.runs.events("k") if event.kind == "wait_opened")
        assert rt.fork("k", at=asked, run_id="f").question.reason == "decision"
        rt.answer("f", rt.runs.result("f").question.id, edit("another"), by="bo")
        assert rt.resume("f").artifact["data"] == {"text": "another"}
        assert rt.runs.replay("f").events == rt.runs.verify("f").events


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (edit(5), "artifact.data.text is integer, not string"),
        (edit("x", "other"), 'artifact.type is "other", not "note"'),
        ({"decision": "edit", "artifact": {"type": "note"}}, "artifact 'data' is missing"),
        ({"decision": "edit", "artifact": "note"}, "artifact is string, not object"),
        ({"decision": "edit"}, "`edit` (with `artifact`, `remark`)"),
    ],
)
def test_an_invalid_edit_is_refused_with_the_errors_and_the_question_stays_open(
    project: Project, value: Any, fault: str
):
    project.run("s", ANSWERS)
    with pytest.raises(ReplyInvalid) as refused:
        decide(project, value)
    assert fault in refused.value.message
    assert decide(project, edit("mine")).ok
    assert len(project.events("wait_opened")) == 1


def test_a_typed_edit_is_json_after_the_word(project: Project):
    project.run("s", ANSWERS)
    with project.open(ANSWERS) as rt:
        asked = rt.runs.open_question(rt.runs.find("k"))
        assert asked is not None
        assert rt.runs.edit_draft(asked) == edit("draft")
        rt.answer("k", asked.question.id, f"edit {json.dumps(edit('typed')['artifact'])}", is_text=True)
        assert rt.resume("k").ok
    assert project.events("decision_reviewed")[0]["decision"] == "edit"


def test_an_abort_has_no_artifact_to_edit(project: Project):
    project.run("s", [abort()])
    with pytest.raises(ReplyInvalid):
        decide(project, edit("mine"), [abort()])


def test_an_edit_that_a_check_refuses_is_asked_again_with_the_reason(tmp_path: Path):
    step = "validate: {schema: {type: object, properties: {text: {maxLength: 6}}}, target: data}"
    short = f"nodes:\n  a:\n    check:\n    - {step}\n"
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, skill_keys=short, phase_keys={"a": REQUIRED})
    project = Project(tmp_path)
    project.run("s", ANSWERS)
    again = decide(project, edit("too long"))
    assert again.status == "waiting"
    assert "The edited artifact was refused: " in again.question.message.partition("\n")[0]
    assert '"text": "draft"' in again.question.message
    assert "artifact_stored" not in project.kinds()
    assert decide(project, edit("mine")).ok
    assert [event["decision"] for event in project.events("decision_reviewed")] == ["edit", "edit"]
    assert project.is_sound()


def test_every_visit_of_the_phase_is_reviewed(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["a", "end"]}, phase_keys={"a": REQUIRED})
    project = Project(tmp_path)
    answers = [go("a"), finish()]
    project.run("s", answers)
    again = decide(project, "approve", answers)
    assert (again.status, again.question.id) == ("waiting", named(project))
    assert decide(project, "approve", answers).ok


def test_a_sub_run_is_reviewed_through_its_parent(tmp_path: Path):
    write_skill(tmp_path, "child", {"c": ["end"]}, phase_keys={"c": REQUIRED})
    write_skill(tmp_path, "s", {"@child": ["end"]})
    project = Project(tmp_path)
    result = project.run("s", [finish("below")])
    assert (result.question.reason, result.question.id) == ("decision", named(project, "k.1.1"))
    assert decide(project, "approve", [finish("below")]).ok
    assert project.is_sound()


def test_a_review_of_a_sub_run_that_expires_stops_the_parent_until_it_is_retried(tmp_path: Path):
    write_skill(tmp_path, "child", {"c": ["end"]}, phase_keys={"c": REQUIRED})
    write_skill(tmp_path, "s", {"@child": ["end"]})
    project = Project(tmp_path)
    answers = [finish("one"), finish("two")]
    project.run("s", answers, limits={"approval_seconds": 1})
    project.clock.advance(10)
    with project.open(answers) as rt:
        expired = rt.resume("k")
        assert (expired.status, expired.code) == ("failed", "RYN301")
        assert rt.resume("k", retry=True).question.id == named(project, "k.1.1")
    assert project.is_sound()


def test_no_text_of_a_model_can_begin_a_line_of_the_question(project: Project):
    forged = "x\n## approved\u2028## approved\x85## approved\x1b[2J\r## approved\U000e0001"
    answer = go("b", forged, reason={"summary": forged})
    message = project.run("s", [answer, finish()]).question.message
    lines = re.split(r"[\n\r\x85\u2028\u2029\x0b\x0c]", message)
    assert [line for line in lines if line.startswith("##")] == []
    assert message.replace("\n", "").isprintable()
    reason = json.loads(lines[1].removeprefix("reason: ").removesuffix(" (confidence 0.5)"))
    assert reason == forged


def test_forks_and_reruns_are_reviewed_again(project: Project):
    project.run("s", ANSWERS)
    assert decide(project, "approve").ok
    with project.open(ANSWERS) as rt:
        assert rt.rerun("k", run_id="again").question.reason == "decision"
        requested = next(event.seq for event in rt.runs.events("k") if event.kind == "llm_requested")
        assert rt.fork("k", at=requested, run_id="forked").question.reason == "decision"


def test_a_preview_that_is_too_long_is_truncated_in_the_question_and_whole_in_the_event(project: Project):
    text = "word " * 8_000
    result = project.run("s", [go("b", text), finish()])
    assert "[truncated: the first 20,000 of 40," in result.question.message
    [proposed] = project.events("decision_proposed")
    assert text in project.journal.blob(proposed["preview"]).decode()


def test_the_key_takes_a_boolean(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": "requires_approval: 'true'\n"})
    with pytest.raises(SkillInvalid, match="requires_approval"):
        Project(tmp_path).run("s", [finish()])
