"""A conversation is a run: messages through its inbox, replies as artifacts, skills as runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, ReynError, SyncRuntime
from reyn.chat import Redirected, Reply, ReplyDelta, SkillEnded, SkillProgressed, SkillStarted
from reyn.chat.services.intervention_handler import InterventionHandler
from reyn.chat.services.snapshot_journal import read_messages
from reyn.cli.chat.terminal import status_text
from reyn.errors import (
    AgentNotFound,
    ChatStopped,
    ConversationInvalid,
    InputInvalid,
    ModelUnavailable,
    RunBusy,
    RunNotResumable,
    SkillInvalid,
)
from reyn.models import ModelAnswer
from tests.chat.support import Agent, bye, ending_chat, recorded_replies, reply, run_skill, skills, start_skill
from tests.support import act, go, write_skill

ASK = "preprocessor:\n  - ask_user: {question: Which colour?, into: data.colour}\n"


def run(coroutine):
    return asyncio.run(coroutine)


async def reach(condition) -> None:
    """Let other tasks go on until a condition holds; the test's timeout bounds it."""
    while not condition():  # noqa: ASYNC110 - the code under test has no event to wait for
        await asyncio.sleep(0.001)


def test_a_conversation_is_a_run_of_its_agents_skill(tmp_path: Path):
    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent()) as rt:
            async with rt.chat() as chat:
                assert (await chat.say("hello")).text == "You said: hello"
                assert (await chat.say("and now?")).text == "You said: and now?"
            row = rt.runs.find(chat.run_id)
            assert (row.skill, row.status) == ("agent:default", "waiting")
            assert (await rt.runs.replay(row.run_id)).status == "waiting"
            assert rt.runs.verify(row.run_id).events > 10
            said = [message.text for message in rt.runs.transcript(row.run_id) if message.role == "user"]
            assert said == ["hello", "and now?"]

    run(talk())


def test_a_conversation_continues_in_another_process(tmp_path: Path):
    async def first():
        async with OSRuntime.open(tmp_path, model=Agent()) as rt, rt.chat() as chat:
            await chat.say("one")
            return chat.run_id

    async def second(name: str):
        model = Agent()
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat(run_id=name) as chat:
            assert (await chat.say("two")).text == "You said: two"
            assert len([m for m in rt.runs.transcript(name) if m.role == "user"]) == 2

    run(second(run(first())))


def test_synchronous_code_can_talk(tmp_path: Path):
    with SyncRuntime.open(tmp_path, model=Agent()) as rt, rt.chat() as chat:
        assert chat.say("hello").text == "You said: hello"
        assert chat.say("again").text == "You said: again"


def test_the_model_sees_the_skills_that_it_can_run(tmp_path: Path):
    skills(tmp_path, "poster", "flyer")
    model = Agent()

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            await chat.say("hello")
            skills(tmp_path, "banner")
            await chat.say("hello again")

    run(talk())
    assert "- poster: Make a poster. Input: text (string)" in model.systems[0]
    assert "banner" not in model.systems[0]
    assert "- banner: Make a banner" in model.systems[1]
    assert "- chat:" not in model.systems[1]  # it would talk with itself


def test_a_skill_runs_as_a_sub_run_and_its_question_reaches_the_user(tmp_path: Path):
    skills(tmp_path, "poster", poster=ASK)
    model = Agent(make=run_skill("poster"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            waiting = asyncio.ensure_future(chat.say("make a poster"))
            await reach(lambda: len(chat.questions))
            question = chat.questions.first
            assert question.question.message == "Which colour?"
            chat.answer(question, "blue")
            assert '"success":true' in (await waiting).text
            assert not len(chat.questions)
            assert rt.runs.find(f"{chat.run_id}.1.1.1").status == "finished"
            own = {event.data["phase"] for event in rt.runs.events(chat.run_id) if event.kind == "phase_started"}
            assert own == {"converse"}  # the phases of the skill belong to its own run

    run(talk())


def test_a_background_run_goes_on_while_the_user_talks(tmp_path: Path):
    skills(tmp_path, "report")
    model = Agent(finished=reply("Your report is ready."), report=start_skill("report"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            model.work.clear()
            await chat.say("write a report")
            assert (await chat.say("meanwhile")).text == "You said: meanwhile"
            [child] = chat.runs.in_progress
            model.work.set()
            await chat.runs.settle()
            assert (await chat.say("what is new?")).text == "You said: what is new?"
            await chat.close()
            seen = [item async for item in chat.items()]
            assert SkillEnded(child, "finished") in seen
            [told] = [item for item in seen if isinstance(item, Reply) and item.run == child]
            assert told.text == "Your report is ready."
            [started] = [item for item in seen if isinstance(item, SkillStarted)]
            assert started.background
            row = rt.runs.find(child)
            assert (row.status, row.parent) == ("finished", "")
            assert (await rt.runs.replay(chat.run_id)).status == "waiting"
            assert rt.runs.state(chat.run_id).inbox.background[child].status == "finished"

    run(talk())


def test_a_background_run_that_was_interrupted_continues_and_is_reported_once(tmp_path: Path):
    skills(tmp_path, "report")

    async def first():
        model = Agent(report=start_skill("report"))
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            model.work.clear()
            await chat.say("write a report")
            await reach(lambda: rt.services.journal.find(f"{chat.run_id}.1.1.1") is not None)
            return chat.run_id

    async def second(name: str):
        model = Agent(finished=reply("Ready."))
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat(run_id=name) as chat:
            await chat.runs.settle()
            await chat.say("hello")
            assert len([one for one in model.seen if "has finished" in one]) == 1
            return rt.runs.state(name).inbox.background

    name = run(first())
    assert [report.status for report in run(second(name)).values()] == ["finished"]


@pytest.mark.slow
def test_a_message_that_arrives_while_the_agent_is_busy_is_answered_next(tmp_path: Path):
    hold = None

    async def slow(request):
        await hold.wait()
        return reply("First.")

    async def talk():
        nonlocal hold
        hold = asyncio.Event()
        model = Agent(slowly=slow)
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            first = asyncio.ensure_future(chat.say("slowly please"))
            await reach(lambda: model.seen)
            second = asyncio.ensure_future(chat.say("and this"))
            await asyncio.sleep(0)
            hold.set()
            assert (await first).text == "First."
            assert (await second).text == "You said: and this"
            assert (await rt.runs.replay(chat.run_id)).status == "waiting"

    run(talk())


@pytest.mark.slow
def test_a_reply_can_be_aborted_and_the_conversation_goes_on(tmp_path: Path):
    async def never(request):
        await asyncio.Event().wait()

    async def talk():
        model = Agent(forever=never)
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            waiting = asyncio.ensure_future(chat.say("talk forever"))
            await reach(lambda: model.seen)
            chat.abort("enough")
            assert (await waiting).status == "aborted"
            assert (await chat.say("hello")).text == "You said: hello"

    run(talk())


def test_a_stream_yields_what_happens_until_the_reply_and_leaving_it_aborts_the_reply(tmp_path: Path):
    async def never(request):
        await asyncio.Event().wait()

    async def talk():
        model = Agent(forever=never)
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            delta, found = [item async for item in chat.stream("hello")]
            assert (delta, found.text) == (ReplyDelta("You said: hello"), "You said: hello")
            stream = chat.stream("talk forever")
            reading = asyncio.ensure_future(anext(stream))
            await reach(lambda: len(model.seen) == 2)
            reading.cancel()
            await asyncio.wait([reading])
            assert (await chat.say("hello again")).text == "You said: hello again"
            assert [said.text for said in chat.history] == [
                "hello",
                "You said: hello",
                "talk forever",
                "hello again",
                "You said: hello again",
            ]

    run(talk())


def test_the_conversation_ends_when_the_model_says_so_and_its_skill_allows_it(tmp_path: Path):
    ending_chat(tmp_path)

    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent(goodbye=bye("Goodbye!"))) as rt:
            async with rt.chat() as chat:
                assert (await chat.say("goodbye")).text == "Goodbye!"
                await reach(lambda: rt.runs.find(chat.run_id).status == "finished")
                with pytest.raises(RunNotResumable, match="is finished"):
                    await chat.say("still there?")
            assert rt.runs.find(chat.run_id).status == "finished"

    run(talk())


def test_a_model_error_keeps_the_message_and_the_next_one_continues(tmp_path: Path):
    fails = True

    def flaky(request):
        nonlocal fails
        if fails:
            fails = False
            raise ModelUnavailable("no connection")
        return reply("Now it works.")

    async def talk():
        model = Agent(flaky=flaky)
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            with pytest.raises(ChatStopped, match="no connection"):
                await chat.say("flaky question")
            assert (await chat.say("hello")).text == "You said: hello"
            said = [message.text for message in rt.runs.transcript(chat.run_id) if message.role == "user"]
            assert said == ["flaky question", "hello"]

    run(talk())


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_a_blank_message_is_refused(tmp_path: Path, text: str):
    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent()) as rt, rt.chat() as chat:
            with pytest.raises(InputInvalid, match="blank"):
                await chat.say(text)
            assert not rt.runs.is_recorded(chat.run_id)

    run(talk())


def test_a_message_of_five_megabytes_and_one_with_control_characters_are_taken(tmp_path: Path):
    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent(x=reply("Long."))) as rt, rt.chat() as chat:
            assert (await chat.say("x" * 5_000_000)).text == "Long."
            assert (await chat.say("x\x1b[2J\x07")).text == "Long."

    run(talk())


# -- agents -------------------------------------------------------------------------------------------


def agent(root: Path, name: str, front: str = "", role: str = "You are terse.") -> None:
    (root / "reyn/agents").mkdir(parents=True, exist_ok=True)
    (root / f"reyn/agents/{name}.md").write_text(f"---\ntype: agent\nname: {name}\n{front}---\n{role}\n")


def test_an_agent_has_a_role_and_the_skills_that_its_file_allows(tmp_path: Path):
    skills(tmp_path, "poster", "flyer")
    agent(tmp_path, "designer", "skills: [post*]\n", "You are a designer.")
    model = Agent(make=run_skill("flyer"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("designer") as chat:
            await chat.say("hello")
            answer = await chat.say("make it")
            assert "'flyer' is not offered here; use 'poster'" in answer.text

    run(talk())
    assert "You are a designer." in model.systems[0]
    assert "poster" in model.systems[0]
    assert "flyer" not in model.systems[0]


@pytest.mark.parametrize(
    ("front", "message"),
    [
        ("skill: [a]\n", "unknown key `skill`"),
        ("memory: everything\n", "`memory`"),
        ("budget: {tokens: 0}\n", "`budget.tokens`"),
        ("allowed_ops: [fly]\n", "unknown op `fly`"),
        ("permissions: {file.write: 5}\n", "permissions"),
    ],
)
def test_errors_in_the_file_of_an_agent_are_reported(tmp_path: Path, front: str, message: str):
    agent(tmp_path, "designer", front)
    with SyncRuntime.open(tmp_path, model=Agent()) as rt, pytest.raises(SkillInvalid, match=message):
        rt.chat("designer")


def test_an_unknown_agent_is_an_error_with_a_suggestion(tmp_path: Path):
    agent(tmp_path, "designer")
    with SyncRuntime.open(tmp_path, model=Agent()) as rt:
        with pytest.raises(AgentNotFound) as caught:
            rt.chat("desinger")
        assert "designer" in caught.value.hint
        with pytest.raises(AgentNotFound):
            rt.chat("../../etc/passwd")


def test_a_token_budget_stops_the_conversation_and_can_be_raised(tmp_path: Path):
    agent(tmp_path, "cheap", "budget: {tokens: 200}\n")

    class Paid(Agent):
        async def complete(self, request):
            answer = await super().complete(request)
            from msgspec.structs import replace

            from reyn.journal.kinds import Usage

            return replace(answer, usage=Usage(150, 20))

    async def talk():
        async with OSRuntime.open(tmp_path, model=Paid()) as rt, rt.chat("cheap") as chat:
            await chat.say("one")
            await chat.say("two")
            with pytest.raises(ChatStopped, match="tokens"):
                await chat.say("three")
            assert rt.runs.find(chat.run_id).status == "limited"
            with pytest.raises(ChatStopped, match="tokens") as stored:
                await chat.say("four")
            assert stored.value.hint.startswith(
                "The message is stored; it is answered when the conversation continues."
            )
            chat.resume(raise_limits={"tokens": 9000})
            assert (await chat.say("five")).text
            said = [message.text for message in rt.runs.transcript(chat.run_id) if message.role == "user"]
            assert said == ["one", "two", "three", "four", "five"]
            with pytest.raises(RunBusy):
                chat.resume(raise_limits={"tokens": 90_000})

    run(talk())


def test_an_agent_can_be_run_as_a_skill_of_one_turn(tmp_path: Path):
    agent(tmp_path, "designer")

    class Single(Agent):
        async def complete(self, request):
            self.seen.append(request.messages[-1].text)
            from reyn.models import ModelAnswer

            return ModelAnswer(__import__("json").dumps(bye("Done.")))

    with SyncRuntime.open(tmp_path, model=Single()) as rt:
        result = rt.run("agent:designer", "hello")
        assert result.ok
        assert result.artifact["data"]["text"] == "Done."


def test_a_run_of_another_skill_is_no_conversation(tmp_path: Path):
    skills(tmp_path, "poster")
    with SyncRuntime.open(tmp_path, model=Agent()) as rt:
        rt.run("poster", "x", run_id="p")
        with pytest.raises(ConversationInvalid, match="not a conversation"):
            rt.chat(run_id="p")
        with pytest.raises(ReynError):
            rt.conversations.say("p", "hello")


def test_a_user_who_quotes_the_report_of_a_run_is_a_user(tmp_path: Path):
    skills(tmp_path, "report")

    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent(write=start_skill("report"))) as rt, rt.chat() as chat:
            await chat.say("write it")
            await chat.runs.settle()
            await reach(lambda: [one for one in read(rt, chat.run_id) if one.role == "run"])
            [report] = [one.text for one in read(rt, chat.run_id) if one.role == "run"]
            chat.rename("Reports")
            await chat.say(report)
            assert [one.role for one in read(rt, chat.run_id) if one.text == report] == ["run", "user"]
            assert rt.runs.state(chat.run_id).title == "Reports"
            await rt.runs.replay(chat.run_id)

    def read(rt: OSRuntime, run_id: str):
        return read_messages(rt.runs.events(run_id), rt.runs.content)

    run(talk())


def test_an_abort_before_the_turn_has_begun_stops_it_when_it_begins(tmp_path: Path):
    async def never(_) -> dict:
        return await asyncio.get_running_loop().create_future()

    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent(two=never)) as rt, rt.chat() as chat:
            await chat.say("one")
            reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            chat.post("two", reply)
            assert chat.is_busy
            chat.abort("too slow")
            assert (await reply).status == "aborted"
            assert not chat.is_busy
            assert (await chat.say("three")).text == "You said: three"
            assert [one.role for one in read_messages(rt.runs.events(chat.run_id), rt.runs.content)] == [
                "user",
                "agent",
            ] * 3
            await rt.runs.replay(chat.run_id)

    run(talk())


class Streaming(Agent):
    """Streams its answers in small pieces."""

    async def complete(self, request):
        answer = await super().complete(request)
        for at in range(0, len(answer.text), 5):
            request.on_delta(answer.text[at : at + 5])
        return answer


def test_the_reply_of_a_decision_in_json_is_streamed(tmp_path: Path):
    async def talk():
        model = Streaming(write=run_skill("report"))
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            await chat.say("hello you")
            await chat.say("write")
            await chat.close()
            pieces: list[str] = []
            shown: list[str] = []
            async for item in chat.items():
                if isinstance(item, ReplyDelta):
                    pieces.append(item.text)
                elif isinstance(item, Reply):
                    shown.append("".join(pieces))
                    assert shown[-1] == item.text
                    pieces.clear()
            assert shown[0] == "You said: hello you"
            assert len(shown) == 2

    skills(tmp_path, "report")
    run(talk())


@pytest.mark.slow
def test_the_agent_is_busy_from_the_message_to_the_reply_in_every_turn(tmp_path: Path):
    reached = asyncio.Event()

    async def never(_) -> dict:
        reached.set()
        return await asyncio.get_running_loop().create_future()

    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent(slow=never)) as rt, rt.chat() as chat:
            assert not chat.is_busy
            await chat.say("one")
            assert not chat.is_busy
            reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            chat.post("slow", reply)
            await reached.wait()
            assert chat.is_busy
            chat.abort()
            assert (await reply).status == "aborted"
            assert not chat.is_busy

    run(talk())


def test_the_progress_of_skills_is_known_while_they_run(tmp_path: Path):
    skills(tmp_path, "report", "poster", report=ASK)
    model = Agent(write=run_skill("report"), draw=start_skill("poster"))
    model.work.clear()

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            assert "0 tokens" in status_text(chat, rt)
            await chat.say("draw it")
            await reach(lambda: [one.skill for one in chat.progress] == ["poster"])
            chat.post("write it")
            await reach(lambda: len(chat.questions))
            assert [(one.skill, one.phase) for one in chat.progress] == [("report", "work"), ("poster", "work")]
            status = status_text(chat, rt)
            assert "report: work · poster: work · 1 question open" in status
            assert "replying" not in status
            chat.answer(chat.questions.first, "blue")
            model.work.set()
            await chat.runs.settle()
            await reach(lambda: not chat.is_busy and not chat.progress)
            await chat.close()
            items = [item async for item in chat.items() if isinstance(item, SkillProgressed)]
            assert sorted(item.skill for item in items) == ["poster", "report"]

    run(talk())


# -- a question of the user while a question is open --------------------------------------------------


async def asked(chat, text: str) -> None:
    """Say something, and wait until a question is open."""
    chat.post(text)
    await reach(lambda: len(chat.questions))


def confirm(chat, text: str) -> str:
    """Type a text and confirm it; return what it meant."""
    handler = InterventionHandler(chat)
    held = handler.hold(text)
    assert held is not None
    assert handler.send() == ""
    return held.meaning.kind


async def redirected(chat) -> list[Redirected]:
    await chat.close()
    return [item async for item in chat.items() if isinstance(item, Redirected)]


@pytest.mark.parametrize(
    "text", ["Which colours are there?", "why?", "何色がありますか\uff1f", "ما اللون؟", "(really?!)", "x ?  "]
)
def test_a_question_of_the_user_is_answered_by_the_agent_while_a_skill_waits(tmp_path: Path, text: str):
    skills(tmp_path, "poster", poster=ASK)

    async def talk():
        model = Agent(finished=reply("It is ready."), draw=start_skill("poster"))
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            await asked(chat, "draw a poster")
            [open_question] = chat.questions
            answer = asyncio.get_running_loop().create_future()
            handler = InterventionHandler(chat, lambda said: chat.post(said, answer))
            assert handler.handle(text) == "message"
            assert (await answer).text == f"You said: {text.strip()}"
            assert rt.runs.find(open_question.run).status == "waiting"
            assert handler.answer("blue") == ""
            await chat.runs.settle()
            await reach(lambda: rt.runs.state(chat.run_id).inbox.background[open_question.run] is not None)
            await rt.runs.replay(chat.run_id)
            await rt.runs.replay(open_question.run)
            rt.runs.verify(chat.run_id)
            assert recorded_replies(rt, open_question.run) == ["blue"]
            assert await redirected(chat) == [
                Redirected(open_question.run, open_question.question, "it is a question", is_delayed=False, number=1)
            ]

    run(talk())


def test_a_question_to_an_agent_that_waits_for_a_skill_is_answered_after_it(tmp_path: Path):
    skills(tmp_path, "poster", poster=ASK)

    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent(make=run_skill("poster"))) as rt, rt.chat() as chat:
            await asked(chat, "make a poster")
            run_id = chat.questions.first.run
            answer = asyncio.get_running_loop().create_future()
            handler = InterventionHandler(chat, lambda said: chat.post(said, answer))
            assert handler.handle("Which ones are there?") == "message"
            assert handler.reply("Is it blue?") == ""
            assert (await answer).text == "You said: Which ones are there?"
            assert recorded_replies(rt, run_id) == ["Is it blue?"]
            await rt.runs.replay(chat.run_id)
            assert [(item.is_open, item.is_delayed) for item in await redirected(chat)] == [(True, True)]

    run(talk())


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("", "blue"),
        ("", "blue? or green"),
        ("", '"Ready for tea?"'),
        ("", "https://example.org/?"),
        ("", "*.tx?"),
        ("", f"{'a long text ' * 30}?"),
        ("", "Dear Ada,\nhow are you?"),
        (", suggestions: [red, 'what else?']", "what else?"),
        (", suggestions: [red, 'what else?']", "2"),
        (", schema: {enum: [red, 'what else?']}", "what else?"),
        (", schema: {type: string, pattern: '[?]$'}", "Who are you?"),
    ],
)
def test_a_text_that_can_be_the_reply_of_a_skill_is_the_reply(tmp_path: Path, keys: str, text: str):
    ask = f"preprocessor:\n  - ask_user: {{question: Which?, into: data.colour{keys}}}\n"
    skills(tmp_path, "poster", poster=ask)

    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent(draw=start_skill("poster"))) as rt, rt.chat() as chat:
            await asked(chat, "draw a poster")
            run_id = chat.questions.first.run
            assert confirm(chat, text) == "answer"
            await chat.runs.settle()
            assert recorded_replies(rt, run_id) == ["what else?" if text == "2" else text]
            assert await redirected(chat) == []

    run(talk())


def test_a_question_of_the_agent_itself_takes_a_question_as_the_reply(tmp_path: Path):
    agent(tmp_path, "asker", "allowed_ops: [ask_user]\n")
    ask = act({"kind": "ask_user", "question": "Which tone?"})

    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent(hello=ask)) as rt, rt.chat("asker") as chat:
            await asked(chat, "hello")
            assert InterventionHandler(chat).handle("Which ones are there?") == "answer"
            await reach(lambda: not chat.is_busy)
            assert "Which ones are there?" in rt.runs.transcript(chat.run_id)[-1].text

    run(talk())


def test_a_conversation_that_is_a_part_of_a_skill_takes_a_question_as_a_message(tmp_path: Path):
    talk_keys = {"talk": "conversation: true\n"}
    write_skill(tmp_path, "talking", {"talk": ["talk", "end"]}, inputs={"talk": "user_message"}, phase_keys=talk_keys)
    write_skill(tmp_path, "above", {"call": ["end"]}, inputs={"call": "user_message"}, ops={"call": "run_skill"})

    class Talking(Agent):
        async def complete(self, request):
            last = request.messages[-1].text
            if request.phase == "talk" and "why" not in last:
                return ModelAnswer(json.dumps(go("talk", "Go on.")))
            if request.phase == "call" and "success" not in last:
                return ModelAnswer(json.dumps(run_skill("talking")))
            return await super().complete(request)

    async def talk():
        async with OSRuntime.open(tmp_path, model=Talking(begin=start_skill("above"))) as rt, rt.chat() as chat:
            await asked(chat, "begin")
            assert chat.questions.first.question.is_message
            assert confirm(chat, "why?") == "answer"
            await chat.runs.settle()
            assert [row.status for row in rt.runs.all() if row.skill in ("talking", "above")] == ["finished"] * 2

    run(talk())


def test_a_reply_that_the_question_does_not_take_leaves_it_open(tmp_path: Path):
    ask = "preprocessor:\n  - ask_user: {question: How many?, schema: {type: integer}, into: data.count}\n"
    skills(tmp_path, "poster", poster=ask)

    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent(draw=start_skill("poster"))) as rt, rt.chat() as chat:
            handler = InterventionHandler(chat)
            assert handler.reply("x") == "no question is open"
            await asked(chat, "draw a poster")
            assert "not a number" in handler.reply("many")
            assert "not a number" in handler.reply("")
            assert len(chat.questions) == 1
            run_id = chat.questions.first.run
            rt.answer(run_id, chat.questions.first.question.id, 7)
            assert "has a reply already" in handler.reply("8")
            await chat.runs.settle()
            assert recorded_replies(rt, run_id) == [7]

    run(talk())


def test_a_first_message_that_lost_a_race_is_not_said_to_be_stored(tmp_path: Path):
    """Two objects of one new conversation: the run of the second is busy, and its message is nowhere."""

    async def race() -> list[Any]:
        async with OSRuntime.open(tmp_path, model=Agent()) as rt:
            chats = [rt.chat(run_id="new") for _ in range(2)]
            found = await asyncio.gather(*(chat.say("hello") for chat in chats), return_exceptions=True)
            for chat in chats:
                await chat.close()
            return found

    [error] = [one for one in asyncio.run(race()) if isinstance(one, Exception)]
    assert isinstance(error, RunBusy)
    assert "inbox" not in error.message


def test_the_agent_reads_the_open_questions_with_a_message(tmp_path: Path):
    skills(tmp_path, "poster", poster=ASK)

    async def talk():
        model = Agent(finished=reply("It is ready."), draw=start_skill("poster"))
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            await asked(chat, "draw a poster")
            await reach(lambda: not chat.is_busy)
            await chat.say("Thanks, that is all for now.")
            run_id = chat.questions.first.run
            note = f"- `poster` (run `{run_id}`) asks the user: Which colour?"
            assert note in model.seen[-1]
            said = [one.text for one in read_messages(rt.runs.events(chat.run_id), rt.runs.content)]
            assert "Thanks, that is all for now." in said
            chat.answer(chat.questions.first, "blue")
            await chat.runs.settle()
            await reach(lambda: not chat.is_busy and "finished" in model.seen[-1])
            await chat.say("Thanks again.")
            assert note not in model.seen[-1]
            await rt.runs.replay(chat.run_id)
            rt.runs.verify(chat.run_id)

    run(talk())
