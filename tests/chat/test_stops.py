"""What stops a conversation or a background run loses nothing, and says so."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from reyn import OSRuntime, RunResult
from reyn.chat.services.auto_resume_handler import interrupted_runs, open_conversations, resume_interrupted
from reyn.chat.services.snapshot_journal import read_messages
from reyn.errors import ChatStopped, ConversationInvalid, RunBusy
from reyn.models import ModelAnswer
from reyn.testing.crash import in_child
from tests.chat.support import Agent, bye, ending_chat, reply, run_skill, skills, start_skill
from tests.chat.test_conversations import ASK, reach, run


class Same(Agent):
    """Gives the same answer in every turn."""

    def __init__(self, answer: dict) -> None:
        super().__init__()
        self._answer = json.dumps(answer)

    async def complete(self, request):
        return ModelAnswer(self._answer)


@pytest.mark.slow
def test_the_same_reply_to_different_messages_is_progress(tmp_path: Path):
    async def talk():
        async with OSRuntime.open(tmp_path, model=Same(reply("Fine."))) as rt, rt.chat() as chat:
            for number in range(8):
                assert (await chat.say(f"message {number}")).text == "Fine."
            assert (await rt.runs.replay(chat.run_id)).status == "waiting"

    run(talk())


def test_a_model_that_only_runs_skills_gets_no_further_and_the_conversation_stays_open(tmp_path: Path):
    skills(tmp_path, "poster")

    class Looping(Agent):
        async def complete(self, request):
            if request.phase != "converse":
                return await super().complete(request)
            self.seen.append("")
            return ModelAnswer(json.dumps(run_skill("poster", text=str(len(self.seen)))))

    async def talk():
        async with OSRuntime.open(tmp_path, model=Looping()) as rt, rt.chat() as chat:
            answer = await chat.say("make a poster")
            assert answer.status == "unanswered"
            assert "no ops are offered" in answer.text
            assert (await rt.runs.replay(chat.run_id)).status == "waiting"

    run(talk())


@pytest.mark.parametrize("call", [run_skill, start_skill])
def test_a_conversation_cannot_run_another(tmp_path: Path, call):
    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent(make=call("chat", text="hi"))) as rt, rt.chat() as chat:
            assert "'chat' is not offered here" in (await chat.say("make it")).text
            assert len(rt.runs.all()) == 1

    run(talk())


def test_a_skill_that_was_deleted_after_it_was_listed_is_an_error_of_the_op(tmp_path: Path):
    import shutil

    skills(tmp_path, "poster")

    def gone(request):
        shutil.rmtree(tmp_path / "reyn/project/poster")
        return run_skill("poster")

    async def talk():
        model = Agent(make=gone, never=start_skill("nothing"))
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            assert "no skill `poster`" in (await chat.say("make it")).text
            assert "'nothing' is not offered here" in (await chat.say("never")).text

    run(talk())


def test_a_conversation_that_another_process_executes_is_not_opened(tmp_path: Path):
    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent()) as rt, rt.chat() as chat:
            await chat.say("one")
            async with OSRuntime.open(tmp_path, model=Agent()) as other:
                with pytest.raises(RunBusy, match="open elsewhere"):
                    await other.chat(run_id=chat.run_id).__aenter__()
                other.conversations.say(chat.run_id, "from elsewhere")
            await reach(lambda: "from elsewhere" in [message.text for message in rt.runs.transcript(chat.run_id)])
            assert (await chat.say("two")).text == "You said: two"

    run(talk())


def test_a_message_to_a_conversation_that_is_executed_elsewhere_is_refused_before_it_is_sent(tmp_path: Path):
    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent()) as rt, rt.chat() as chat:
            await chat.say("one")
            async with OSRuntime.open(tmp_path, model=Agent()) as other:
                for runtime in (rt, other):
                    with pytest.raises(RunBusy):
                        await runtime.chat(run_id=chat.run_id).say("two")
            assert (await chat.say("three")).text == "You said: three"
            said = [message.text for message in rt.runs.transcript(chat.run_id) if message.role == "user"]
            assert said == ["one", "three"]

    run(talk())


def test_messages_that_another_process_took_meanwhile_do_not_confuse_this_one(tmp_path: Path):
    def refuse(request):
        raise ConnectionError("no connection")

    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent(flaky=refuse)) as rt, rt.chat() as chat:
            await chat.say("one")
            with pytest.raises(ChatStopped):
                await chat.say("flaky")
            rt.conversations.say(chat.run_id, "queued")
            async with OSRuntime.open(tmp_path, model=Agent()) as other, other.chat(run_id=chat.run_id) as elsewhere:
                await elsewhere.say("there")
            assert (await chat.say("two")).text == "You said: two"

    run(talk())


# -- background runs ----------------------------------------------------------------------------------


def test_the_question_of_a_background_run_can_be_answered_elsewhere_and_is_reported_once(tmp_path: Path):
    skills(tmp_path, "report", report=ASK)

    async def ask() -> tuple[str, str, str]:
        async with OSRuntime.open(tmp_path, model=Agent(report=start_skill("report"))) as rt, rt.chat() as chat:
            await chat.say("write a report")
            await reach(lambda: len(chat.questions))
            return chat.run_id, chat.questions.first.run, chat.questions.first.question.id

    async def answer(asking: str, question: str):
        async with OSRuntime.open(tmp_path, model=Agent()) as rt:
            assert (await rt.resume_answered(rt.answer(asking, question, "blue"))).status == "finished"

    async def read(conversation: str) -> int:
        model = Agent(finished=reply("Ready."))
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat(run_id=conversation) as chat:
            await chat.runs.settle()
            await chat.say("hello")
            assert (await rt.runs.replay(conversation)).status == "waiting"
        return len([text for text in model.seen if "has finished" in text])

    conversation, asking, question = run(ask())
    run(answer(asking, question))
    assert [run(read(conversation)), run(read(conversation))] == [1, 0]


def test_a_background_run_that_failed_is_reported_and_continued_after_a_retry(tmp_path: Path):
    skills(tmp_path, "report", report=ASK)

    class Broken(Agent):
        async def complete(self, request):
            if request.phase != "converse":
                raise ConnectionError("no connection")
            return await super().complete(request)

    async def talk():
        model = Broken(failed=reply("It failed."), report=start_skill("report"))
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat(run_id="c") as chat:
            await chat.say("write a report")
            chat.answer(await chat.questions.wait(), "blue")
            await chat.runs.settle()
            await chat.say("hello")
            assert len([text for text in model.seen if "is failed" in text]) == 1
        worker = Agent()
        async with OSRuntime.open(tmp_path, model=worker) as rt:
            worker.work.clear()
            retried = asyncio.ensure_future(rt.resume("c.1.1.1", retry=True))
            await reach(lambda: rt.runs.find("c.1.1.1").status == "running")
            retried.cancel()
            await asyncio.gather(retried, return_exceptions=True)
        model = Agent(finished=reply("Ready."))
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat(run_id="c") as chat:
            await chat.runs.settle()
            await chat.say("hello")
            assert len([text for text in model.seen if "has finished" in text]) == 1

    run(talk())


def test_a_background_run_stays_until_its_conversation_has_taken_the_report(tmp_path: Path):
    skills(tmp_path, "report")
    model = Agent(finished=reply("Ready."), report=start_skill("report"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt:
            async with rt.chat(run_id="c") as chat:
                model.work.clear()
                await chat.say("write a report")
                await reach(lambda: rt.services.journal.find("c.1.1.1") is not None)
            model.work.set()
            await rt.resume("c.1.1.1")
            assert rt.runs.prune(older_than=timedelta(0)).needed == ("c.1.1.1",)
            async with rt.chat(run_id="c") as chat:
                await chat.runs.settle()
                await chat.say("hello")
            assert rt.runs.prune(older_than=timedelta(0)).runs == ("c.1.1.1",)
            async with rt.chat(run_id="c") as chat:
                await chat.say("hello")
                assert chat.runs.in_progress == []
            assert [row.run_id for row in rt.runs.all()] == ["c"]

    run(talk())


def test_a_background_run_outlives_its_conversation(tmp_path: Path):
    ending_chat(tmp_path)
    skills(tmp_path, "report", report=ASK)
    model = Agent(leave=bye("Bye."), report=start_skill("report"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt:
            async with rt.chat(run_id="c") as chat:
                await chat.say("write a report")
                question = await chat.questions.wait()
                await chat.say("leave")
            assert rt.runs.prune(older_than=timedelta(0)).runs == ("c",)
            posted = rt.answer(question.run, question.question.id, "blue")
            assert (await rt.resume_answered(posted)).status == "finished"
            assert (await rt.runs.replay(question.run)).status == "finished"

    run(talk())


@pytest.mark.parametrize("exported", ["c", "c.1.1.1"])
def test_a_conversation_and_its_background_run_are_exported_each_alone(tmp_path: Path, exported: str):
    skills(tmp_path / "one", "report")
    model = Agent(finished=reply("Ready."), report=start_skill("report"))

    async def talk():
        async with OSRuntime.open(tmp_path / "one", model=model) as rt:
            async with rt.chat(run_id="c") as chat:
                await chat.say("write a report")
                await chat.runs.settle()
                await chat.say("hello")
            archive = list(rt.runs.export(exported))
        (tmp_path / "two").mkdir()
        async with OSRuntime.open(tmp_path / "two", model=Agent()) as rt:
            rt.runs.import_(archive)
            assert [row.run_id for row in rt.runs.all()] == [exported]
            rt.runs.verify(exported)
            await rt.runs.replay(exported)

    run(talk())


def test_a_cancellation_that_comes_with_a_message_is_not_lost(tmp_path: Path):
    """The run is cancelled just when it has noticed a message and closes the question."""
    closing, again = asyncio.Event(), asyncio.Event()

    class Slow:
        asked = 0

        async def ask(self, run_id, question):
            self.asked += 1
            if self.asked > 1:
                again.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                closing.set()
                await asyncio.Event().wait()

    async def talk():
        people = Slow()
        async with OSRuntime.open(tmp_path, model=Agent(), people=people) as rt:
            skill = rt.services.agent_skill("default")
            task = asyncio.ensure_future(rt.run(skill, {"text": "one"}, run_id="c"))
            await reach(lambda: people.asked)
            rt.conversations.say("c", "two")
            await closing.wait()
            task.cancel()
            waits = [task, asyncio.ensure_future(again.wait())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            assert task.done()
            assert not again.is_set()
            waits[1].cancel()

    run(talk())


@pytest.mark.slow
def test_a_chat_that_was_killed_with_two_running_skills_is_continued_and_reports_both(tmp_path: Path):
    skills(tmp_path, "report", "poster")

    async def killed() -> None:
        """Talk until the models of both skills are at work, then kill the process."""
        model = Agent(report=start_skill("report"), poster=start_skill("poster"))
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat(run_id="c") as chat:
            model.work.clear()
            await chat.say("write a report")
            await chat.say("draw a poster")
            await reach(lambda: [row.status for row in rt.runs.all()].count("running") == 2)
            os.kill(os.getpid(), signal.SIGKILL)

    async def continued() -> None:
        async with OSRuntime.open(tmp_path, model=Agent(finished=reply("Ready."))) as rt:
            interrupted = interrupted_runs(rt)
            assert sorted(row.skill for row in interrupted) == ["poster", "report"]
            assert [row.run_id for row in open_conversations(rt)] == ["c"]
            for row in interrupted:
                result = await resume_interrupted(rt, row)
                assert isinstance(result, RunResult)
                assert result.status == "finished"
            assert interrupted_runs(rt) == []
            async with rt.chat(run_id="c") as chat:
                await chat.runs.settle()
                await chat.say("hello")
                messages = read_messages(rt.runs.events("c"), rt.runs.content)
            assert [one.text for one in messages if one.role == "user"] == ["write a report", "draw a poster", "hello"]
            assert len([one for one in messages if one.role == "run"]) == 2
            await rt.runs.replay("c")

    assert in_child(lambda: run(killed())) == -signal.SIGKILL
    run(continued())


def test_a_conversation_that_was_left_takes_no_message_until_it_is_opened_again(tmp_path: Path):
    async def talk() -> None:
        async with OSRuntime.open(tmp_path, model=Agent()) as rt:
            async with rt.chat(run_id="c") as chat:
                await chat.say("one")
            with pytest.raises(ConversationInvalid, match="was left"):
                await chat.say("two")
            async with rt.chat(run_id="c") as again:
                await again.say("three")
            messages = read_messages(rt.runs.events("c"), rt.runs.content)
            assert [one.text for one in messages if one.role == "user"] == ["one", "three"]

    run(talk())
