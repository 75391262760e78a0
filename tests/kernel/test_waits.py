"""Questions are durable, can be answered by any process, and take one answer."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from reyn import OSRuntime
from reyn.errors import QuestionUnknown, ReplyInvalid, RunNotResumable
from reyn.journal import Answer
from reyn.testing import ScriptedModel
from tests.kernel.support import IN, Project
from tests.support import act, file, finish, go, question, with_ops, write_skill


@pytest.fixture
def asking(tmp_path: Path) -> Project:
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file, ask_user"})
    return Project(tmp_path)


ANSWERS = [act(question("Which one?", suggestions=["red", "blue"])), go("b"), finish()]


def test_a_question_stops_the_run_until_it_is_answered(asking: Project):
    result = asking.run("s", ANSWERS)
    assert (result.status, result.exit_code, result.reason) == ("waiting", 4, "Which one?")
    assert result.question is not None
    assert result.question.suggestions == ("red", "blue")
    with asking.open(ANSWERS) as rt:
        assert [row.wait.id for row in rt.runs.all()] == ["1.1.1"]
        with pytest.raises(RunNotResumable, match="waits for a reply"):
            rt.resume("k")
        rt.answer("k", "1.1.1", "red")
        assert rt.resume("k").ok
        assert [row.wait for row in rt.runs.all()] == [None]
    assert '"answer":"red"' in asking.model.turn_message(0)
    assert "time." not in asking.model.turn_message(0)  # it is still the first visit
    assert [event["visit"] for event in asking.events("phase_started")] == [1, 1]
    assert asking.is_sound()


def test_an_invalid_or_second_answer_is_refused(asking: Project):
    asking.run("s", ANSWERS)
    with asking.open(ANSWERS) as rt:
        with pytest.raises(ReplyInvalid, match="not string"):
            rt.answer("k", "1.1.1", 7)
        with pytest.raises(QuestionUnknown, match="no open question `9`"):
            rt.answer("k", "9", "red")
        rt.answer("k", "1.1.1", "red")
        asking.journal.post("k", Answer("1.1.1", "late"))
        asking.journal.post("k", Answer("nonsense", "x"))
        assert rt.resume("k").ok
        with pytest.raises(QuestionUnknown, match="its status is finished"):
            rt.answer("k", "1.1.1", "blue")
    assert [event["reason"] for event in asking.events("message_refused")] == [
        "no question `1.1.1` is open",
        "no question `nonsense` is open",
    ]
    assert asking.is_sound()


def test_a_question_in_a_decision_defers_the_decision(asking: Project):
    decision = with_ops(go("b", "early"), question("Sure?"), file("write", "workspace:x", content="after"))
    answers = [decision, go("b", "late"), finish()]
    asking.run("s", answers)
    with asking.open(answers) as rt:
        rt.answer("k", "1.1.1", "yes")
        assert rt.resume("k").ok
    assert len(asking.events("decision_deferred")) == 1
    assert [event["reason"] for event in asking.events("control_decided")] == ["to b", "complete"]
    assert (asking.root / ".reyn/workspace/k/x").read_text() == "after"
    assert asking.is_sound()


def test_an_optional_question_accepts_null(asking: Project):
    answers = [act(question("Anything else?", required=False)), go("b"), finish()]
    asking.run("s", answers)
    with asking.open(answers) as rt:
        rt.answer("k", "1.1.1", None)
        assert rt.resume("k").ok
    assert '"answer":null' in asking.model.turn_message(0)


class Clerk:
    """A user who answers immediately."""

    def __init__(self, *answers: object) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)

    async def ask(self, run_id, wait):
        self.asked.append(wait.message)
        return self._answers.pop(0)


def test_a_present_user_is_asked_and_the_run_continues(asking: Project):
    clerk = Clerk("", "red")
    assert asking.run("s", ANSWERS, people=clerk).ok
    assert clerk.asked == ["Which one?", "Which one?"]  # after an invalid answer, the user is asked again
    assert asking.is_sound()


def test_invalid_answers_of_the_user_end_in_a_waiting_run(asking: Project):
    clerk = Clerk(5, "\ud800", object(), 7)
    result = asking.run("s", ANSWERS, people=clerk)
    assert result.status == "waiting"
    assert len(clerk.asked) == 3
    assert asking.events("message_refused") == []


def test_an_error_while_asking_the_user_leaves_a_waiting_run(asking: Project):
    class Broken:
        async def ask(self, run_id, wait):
            raise BrokenPipeError("gone")

    result = asking.run("s", ANSWERS, people=Broken())
    assert result.status == "waiting"
    assert "the question could not be asked" in result.warnings[0]


def test_an_answer_from_another_process_reaches_the_waiting_driver(asking: Project):
    class Patient:
        """Somebody who sits before the question and never answers."""

        cancelled = False
        sits = asyncio.Event()

        async def ask(self, run_id, wait):
            self.sits.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                Patient.cancelled = True
                raise

    async def main() -> str:
        runtime = OSRuntime.open(
            asking.root, model=ScriptedModel(ANSWERS), journal=asking.journal, people=Patient(), ids=asking.ids
        )
        async with runtime:
            driving = asyncio.ensure_future(runtime.run("s", IN, run_id="k"))
            await Patient.sits.wait()
            assert asking.journal.find("k").status == "waiting"
            asking.journal.post("k", Answer("1.1.1", "blue"))
            return (await driving).status

    assert asyncio.run(main()) == "finished"
    assert Patient.cancelled
    assert "run_resumed" not in asking.kinds()
    assert asking.is_sound()


def test_a_waiting_run_can_be_cancelled(asking: Project):
    asking.run("s", ANSWERS)
    with asking.open(ANSWERS) as rt:
        rt.cancel("k", "no more")
        assert rt.runs.result("k").status == "cancelled"
        with pytest.raises(QuestionUnknown):
            rt.answer("k", "1.1.1", "red")
    assert asking.is_sound()


def test_a_waiting_run_continues_even_if_its_skill_was_deleted(asking: Project):
    asking.run("s", ANSWERS)
    shutil.rmtree(asking.root / "reyn")
    with asking.open(ANSWERS) as rt:
        rt.answer("k", "1.1.1", "red")
        assert rt.resume("k").ok
    assert asking.is_sound()
