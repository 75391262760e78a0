"""Approvals: a person decides about exactly one action, sees what would happen, and any difference asks again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn import RunResult
from reyn.errors import QuestionUnknown, ReplyInvalid, StoreUnavailable
from reyn.journal import Answer, kinds
from reyn.kernel.visit.reviews import ABORT_RESPONSE, decision_response
from reyn.kernel.visit.waits import OP_RESPONSE, STEP_RESPONSE
from reyn.kernel.world.inbox import answer_error
from reyn.permissions import Denied, NeedsApproval, refusal
from tests.kernel.support import Project
from tests.properties import examples
from tests.support import act, file, finish, write_skill

ASK = {"permissions": {"file.write": [{"ask": "output/"}]}}
WRITE = file("write", "output/a.md", content="new\n")
ANSWERS = [act(WRITE), finish()]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"})
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "a.md").write_text("old\n")
    return Project(tmp_path)


def decide(project: Project, value: Any, answers: list = ANSWERS, **options: Any) -> RunResult:
    with project.open(answers, **ASK | options) as rt:
        wait = rt.runs.result("k").question
        assert wait is not None
        rt.answer("k", wait.id, value, by="ada")
        return rt.resume("k")


def text(project: Project) -> str:
    return (project.root / "output" / "a.md").read_text()


def test_a_rule_that_asks_opens_a_wait_that_shows_the_diff(project: Project):
    result = project.run("s", ANSWERS, **ASK)
    assert (result.status, result.question.reason) == ("waiting", "approval")
    assert result.question.message == (
        "Approve `file write`? (permissions.file.write: ask output/)\n"
        "change output/a.md (4 bytes → 4 bytes)\n"
        "--- output/a.md\n+++ output/a.md\n@@ -1 +1 @@\n-old\n+new\n"
    )
    assert result.question.expires_at is not None
    assert text(project) == "old\n"


def test_an_approved_action_is_executed_and_records_who_approved_it(project: Project):
    project.run("s", ANSWERS, **ASK)
    assert decide(project, "approve").ok
    assert text(project) == "new\n"
    [decided] = project.events("approval_decided")
    assert (decided["decision"], decided["by"]) == ("approve", "ada")
    [started] = project.events("file_started")
    assert started["rule"] == "permissions.file.write: ask output/ (approved)"
    assert project.is_sound()


def test_a_rejected_action_is_a_result_that_the_model_sees(project: Project):
    project.run("s", ANSWERS, **ASK)
    assert decide(project, {"decision": "reject", "remark": "too short"}).ok
    assert text(project) == "old\n"
    shown = project.model.turn_message(0)
    assert '"status":"denied"' in shown
    assert "not approved: too short" in shown
    assert project.is_sound()


def test_a_file_that_changed_since_asks_again(project: Project):
    project.run("s", ANSWERS, **ASK)
    (project.root / "output" / "a.md").write_text("other\n")
    again = decide(project, "approve")
    assert (again.status, again.question.reason) == ("waiting", "approval")
    assert "-other" in again.question.message
    assert text(project) == "other\n"
    assert decide(project, "approve").ok
    assert text(project) == "new\n"
    digests = [event["digest"] for event in project.events("approval_required")]
    assert len(set(digests)) == 2


def test_edited_arguments_are_a_new_action_that_is_shown_and_recorded(project: Project):
    project.run("s", ANSWERS, **ASK)
    edited = file("write", "output/a.md", content="edited\n")
    again = decide(project, {"decision": "edit", "args": edited})
    assert (again.status, again.question.reason) == ("waiting", "approval")
    assert "+edited" in again.question.message
    assert decide(project, "approve").ok
    assert text(project) == "edited\n"
    assert [event["decision"] for event in project.events("approval_decided")] == ["edit", "approve"]
    assert project.is_sound()


INVALID_EDITS = {
    "no form": {"kind": "file"},
    "another kind": {"kind": "ask_user", "question": "x"},
    "unknown form": {"kind": "file", "op": "sing"},
    "unknown kind": {"kind": "pay"},
    "missing argument": {"kind": "file", "op": "write", "path": "output/a.md"},
    "unknown argument": file("write", "output/a.md", content="x", more=1),
    "type of an argument": file("write", "output/a.md", content=1),
    "empty": {},
}


@pytest.mark.parametrize("args", INVALID_EDITS.values(), ids=INVALID_EDITS)
def test_edited_arguments_that_are_invalid_are_refused_and_the_question_stays_open(project: Project, args: Any):
    project.run("s", ANSWERS, **ASK)
    before = project.kinds()
    with pytest.raises(ReplyInvalid, match="the edited op is invalid"):
        decide(project, {"decision": "edit", "args": args})
    assert project.kinds() == before
    assert decide(project, "approve").ok
    assert text(project) == "new\n"


@pytest.mark.parametrize("args", INVALID_EDITS.values(), ids=INVALID_EDITS)
def test_a_user_who_is_asked_edits_again(project: Project, args: Any):
    class Ada:
        replies = ({"decision": "edit", "args": args}, "approve")
        asked = 0

        async def ask(self, run_id: str, question: Any) -> Any:
            self.asked += 1
            return self.replies[self.asked - 1]

    ada = Ada()
    result = project.run("s", ANSWERS, people=ada, **ASK)
    assert result.ok
    assert ada.asked == 2
    assert text(project) == "new\n"
    assert any("the edited op is invalid" in warning for warning in result.warnings)


KEYS = {
    "args": {"kind": "file"},
    "artifact": {"type": "note"},
    "always": True,
    "remark": "why",
    "arguments": {"path": "x"},
    "path": "x",
}
TAKEN = {
    "op": (OP_RESPONSE, {"approve": "always remark", "edit": "args remark", "reject": "remark", "defer": "remark"}),
    "step": (STEP_RESPONSE, {"approve": "always remark", "reject": "remark", "defer": "remark"}),
    "decision": (
        decision_response({"type": "object"}),
        {"approve": "remark", "edit": "artifact remark", "reject": "remark", "defer": "remark"},
    ),
    "abort": (ABORT_RESPONSE, {"approve": "remark", "reject": "remark", "defer": "remark"}),
}


@given(
    st.sampled_from(sorted(TAKEN)),
    st.sampled_from(["approve", "reject", "edit", "defer", "aprove"]),
    st.sets(st.sampled_from(sorted(KEYS))),
)
@examples(100)
def test_an_approval_refuses_a_reply_with_a_key_that_its_decision_does_not_use(
    about: str, decision: str, keys: set[str]
):
    schema, taken = TAKEN[about]
    question = kinds.Question("ask-1", "decision" if about in ("decision", "abort") else "approval", "Approve?", schema)
    error = answer_error(question, "ask-1", {"decision": decision} | {key: KEYS[key] for key in keys})
    needed = {"args", "artifact"} & {*taken.get("edit", "").split()} if decision == "edit" else set()
    is_taken = decision in taken and needed <= keys <= {*taken[decision].split()}
    assert (error == "") == is_taken
    if error:
        assert all(f"`{word}`" in error for word in (*taken, *" ".join(taken.values()).split()))


@pytest.mark.parametrize("value", [{"decision": "approve", "args": WRITE}, {"decision": "edit"}])
def test_a_reply_with_an_unused_key_is_refused_with_the_forms_that_there_are(project: Project, value: Any):
    waiting = project.run("s", ANSWERS, **ASK)
    fault = "`approve` (with `always`, `remark`), `edit` (with `args`, `remark`), `reject` or `defer` (with `remark`)"

    class Person:
        async def ask(self, run_id: str, question: Any) -> Any:
            return value

    with project.open(ANSWERS, people=Person()) as rt:
        with pytest.raises(ReplyInvalid) as raised:
            rt.answer("k", waiting.question.id, value)
        assert fault in raised.value.message
        with pytest.raises(ReplyInvalid):
            rt.answer("k", waiting.question.id, json.dumps(value), is_text=True)
        assert fault in rt.resume("k").warnings[-1]
    assert text(project) == "old\n"


def test_an_edit_cannot_reach_what_the_skill_may_not(project: Project):
    project.run("s", ANSWERS, **ASK)
    assert decide(project, {"decision": "edit", "args": file("write", "reyn/__init__.py", content="x")}).ok
    assert not (project.root / "reyn" / "__init__.py").exists()
    assert '"status":"denied"' in project.model.turn_message(0)


def test_a_deferred_approval_stays_open(project: Project):
    project.run("s", ANSWERS, **ASK)
    assert decide(project, "defer").status == "waiting"
    assert decide(project, "approve").ok
    assert text(project) == "new\n"


@pytest.mark.parametrize("value", ["yes", 1, None, {"decision": "sure"}, {"decision": "approve", "more": 1}, {}])
def test_any_other_answer_is_refused(project: Project, value: Any):
    project.run("s", ANSWERS, **ASK)
    with pytest.raises(ReplyInvalid):
        decide(project, value)
    assert text(project) == "old\n"


def test_an_approval_that_expired_is_a_rejection(project: Project):
    project.run("s", ANSWERS, **ASK, limits={"approval_seconds": 1})
    project.clock.advance(10)
    with project.open(ANSWERS, **ASK) as rt:
        assert rt.resume("k").ok
    assert text(project) == "old\n"
    assert "the approval expired" in project.model.turn_message(0)
    assert project.is_sound()


def test_an_answer_after_the_expiry_is_refused(project: Project):
    waiting = project.run("s", ANSWERS, **ASK, limits={"approval_seconds": 1})
    project.clock.advance(10)
    with project.open(ANSWERS, **ASK) as rt:
        with pytest.raises(QuestionUnknown, match="has expired"):
            rt.answer("k", waiting.question.id, "approve")
        project.journal.post("k", Answer(waiting.question.id, "approve"))  # a process whose clock is late
        assert rt.resume("k").ok
    assert text(project) == "old\n"
    [refused] = project.events("message_refused")
    assert refused["reason"] == f"the question `{waiting.question.id}` has expired"
    assert project.is_sound()


def test_an_approval_expires_while_a_person_hesitates(project: Project):
    class Hesitating:
        async def ask(self, run_id: str, wait: Any) -> Any:
            project.clock.advance(10)
            await asyncio.Event().wait()

    limits = {"approval_seconds": 1}
    assert project.run("s", ANSWERS, **ASK, limits=limits, people=Hesitating()).ok
    assert text(project) == "old\n"
    assert [event["decision"] for event in project.events("approval_decided")] == ["expired"]


def test_an_approval_counts_for_one_run_and_one_call(project: Project):
    project.run("s", ANSWERS, **ASK)
    assert decide(project, "approve").ok
    (project.root / "output" / "a.md").write_text("old\n")
    assert project.run("s", ANSWERS, run_id="other", **ASK).status == "waiting"
    assert text(project) == "old\n"


def test_reading_can_need_approval_too(project: Project):
    ask = {"permissions": {"file.read": [{"ask": "output/"}]}}
    result = project.run("s", [act(file("read", "output/a.md")), finish()], **ask)
    assert result.question.reason == "approval"
    assert '"path": "output/a.md"' in result.question.message
    with project.open([act(file("read", "output/a.md")), finish()], **ask) as rt:
        rt.answer("k", result.question.id, "approve")
        assert rt.resume("k").ok
    assert '"content":"old' in project.model.turn_message(0)


# -- standing approvals ---------------------------------------------------------------------------------------

ALWAYS = {"decision": "approve", "always": True}


def run_again(project: Project, run_id: str, **options: Any) -> RunResult:
    (project.root / "output" / "a.md").write_text("old\n")
    return project.run("s", ANSWERS, run_id=run_id, **ASK | options)


def test_a_standing_approval_covers_the_same_skill_op_and_rule(project: Project):
    project.run("s", ANSWERS, **ASK)
    assert decide(project, ALWAYS).ok
    [approval] = project.journal.approvals()
    assert (approval.skill, approval.op, approval.by) == ("s", "file write", "ada")
    assert run_again(project, "second").ok
    assert text(project) == "new\n"


def test_a_change_of_skill_op_or_rule_asks_again(project: Project):
    project.run("s", ANSWERS, **ASK)
    assert decide(project, ALWAYS).ok
    other = {"permissions": {"file.write": [{"ask": "output/*"}]}}
    assert run_again(project, "rule", **other).status == "waiting"
    answers = [act(file("delete", "output/a.md")), finish()]
    assert project.run("s", answers, run_id="op", **ASK).status == "waiting"
    write_skill(project.root, "s", {"a": ["end"]}, ops={"a": "file"}, phase_keys={"a": "role: other\n"})
    assert run_again(project, "skill").status == "waiting"


def test_a_standing_approval_survives_a_crash_after_the_answer(project: Project, monkeypatch: pytest.MonkeyPatch):
    """The process dies when the decision is recorded: the answer is durable, so the approval is not lost."""
    project.run("s", ANSWERS, **ASK)
    append = project.journal.append

    def fail(run_id: str, expected_seq: int, events: Any, *more: Any) -> int:
        if any(event.kind == "approval_decided" for event in events):
            raise StoreUnavailable("the disk is full")
        return append(run_id, expected_seq, events, *more)

    monkeypatch.setattr(project.journal, "append", fail)
    with pytest.raises(StoreUnavailable):
        decide(project, ALWAYS)
    monkeypatch.undo()
    assert project.events("approval_decided") == []
    with project.open(ANSWERS, **ASK) as rt:
        assert rt.resume("k").ok
    assert [approval.op for approval in project.journal.approvals()] == ["file write"]
    assert run_again(project, "second").ok


def test_a_revoked_approval_asks_again(project: Project):
    project.run("s", ANSWERS, **ASK)
    assert decide(project, ALWAYS).ok
    [approval] = project.journal.approvals()
    assert project.journal.revoke(approval.id)
    assert not project.journal.revoke(approval.id)
    assert run_again(project, "second").status == "waiting"


# -- attempts to get around an approval -----------------------------------------------------------------------


def test_a_file_that_appears_after_the_question_is_not_overwritten(project: Project):
    answers = [act(file("write", "output/b.md", content="new\n")), finish()]
    assert "create output/b.md" in project.run("s", answers, **ASK).question.message
    (project.root / "output" / "b.md").write_text("someone's\n")
    again = decide(project, "approve", answers)
    assert "-someone's" in again.question.message
    assert (project.root / "output" / "b.md").read_text() == "someone's\n"


def test_a_deletion_is_bound_to_the_content_that_was_shown(project: Project):
    answers = [act(file("delete", "output/a.md")), finish()]
    assert "delete output/a.md (4 bytes)" in project.run("s", answers, **ASK).question.message
    (project.root / "output" / "a.md").write_text("precious\n")
    assert "-precious" in decide(project, "approve", answers).question.message
    assert text(project) == "precious\n"


def test_a_link_that_is_swapped_in_after_the_question_asks_again_or_is_denied(project: Project):
    project.run("s", ANSWERS, **ASK)
    (project.root / "other").mkdir()
    (project.root / "other" / "a.md").write_text("old\n")
    (project.root / "output").rename(project.root / "gone")
    (project.root / "output").symlink_to("other")
    assert decide(project, "approve").ok
    assert (project.root / "other" / "a.md").read_text() == "old\n"
    assert '"status":"denied"' in project.model.turn_message(0)


def test_a_rule_that_changes_after_the_question_asks_again(project: Project):
    project.run("s", ANSWERS, **ASK)
    stricter = {"permissions": {"file.write": [{"ask": "output/*.md"}]}}
    again = decide(project, "approve", **stricter)
    assert "(permissions.file.write: ask output/*.md)" in again.question.message
    assert text(project) == "old\n"


def test_a_rule_that_denies_after_the_question_denies(project: Project):
    project.run("s", ANSWERS, **ASK)
    assert decide(project, "approve", permissions={"file.write": "deny"}).ok
    assert text(project) == "old\n"


def test_an_approved_read_does_not_cover_what_another_rule_asks_about(project: Project):
    """The path leads to another file between the decision and the op."""
    asked = "permissions.file.read: ask output/"
    other = NeedsApproval("permissions.file.read: ask secret/", "")
    assert refusal(NeedsApproval(asked, ""), approved=asked) is None
    assert refusal(NeedsApproval(asked, ""), approved=f"permissions.tool: ask and {asked}") is None
    assert refusal(other, approved=asked) == other
    assert refusal(other) == other
    assert refusal(NeedsApproval("", "")) is not None
    assert refusal(Denied(asked, ""), approved=asked) is not None


def test_an_approved_read_is_bound_to_the_content(project: Project):
    ask = {"permissions": {"file.read": [{"ask": "output/"}]}}
    answers = [act(file("read", "output/a.md")), finish()]
    project.run("s", answers, **ask)
    (project.root / "output" / "a.md").write_text("a secret by now\n")
    again = decide(project, "approve", answers, **ask)
    digests = [event["digest"] for event in project.events("approval_required")]
    assert (again.status, again.question.id) == ("waiting", f"ask-{digests[1][:32]}-2")
    assert decide(project, "approve", answers, **ask).ok


def test_an_approval_of_one_call_does_not_cover_the_same_op_again(project: Project):
    answers = [act(WRITE, file("write", "output/a.md", content="old\n"), WRITE), finish()]
    project.run("s", answers, **ASK)
    ids = []
    for _ in range(3):
        with project.open(answers, **ASK) as rt:
            wait = rt.runs.result("k").question
            ids.append(wait.id)
            rt.answer("k", wait.id, "approve")
            rt.resume("k")
    assert ids == [f"ask-{event['digest'][:32]}" for event in project.events("approval_required")]
    assert len(set(ids)) == 3


def test_a_fork_does_not_inherit_an_approval(project: Project):
    project.run("s", ANSWERS, **ASK)
    assert decide(project, "approve").ok
    (project.root / "output" / "a.md").write_text("old\n")
    with project.open(ANSWERS, **ASK) as rt:
        first = next(event.seq for event in rt.runs.events("k") if event.kind == "llm_requested")
        assert rt.fork("k", at=first, run_id="forked").question.reason == "approval"
        assert rt.rerun("k", run_id="again").question.reason == "approval"
    assert text(project) == "old\n"


def test_who_decides_and_when_it_expires_are_in_the_events(project: Project):
    project.run("s", ANSWERS, **ASK, limits={"approval_seconds": 7})
    decide(project, "approve")
    [opened] = project.events("wait_opened")
    [answered] = project.events("wait_answered")
    [decided] = project.events("approval_decided")
    [at] = [event.ts for event in project.journal.read("k") if event.kind == "wait_opened"]
    assert opened["wait"]["expires_at"] == at + 7_000_000
    assert (answered["by"], decided["by"]) == ("ada", "ada")
