"""A message to an agent that ends in no reply is reported to the agent that asked, and the conversation goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reyn import OSRuntime
from reyn.chat.services.chain_manager import read_links
from reyn.errors import ModelUnavailable
from reyn.journal import decode, kinds
from reyn.models import ModelAnswer
from tests.chat.support import Agent, ask_agent, reply, run_skill, skills, start_skill
from tests.chat.test_agents_that_ask import agents, run
from tests.chat.test_conversations import ASK, reach
from tests.support import act


def failing(request):
    raise ModelUnavailable("the server is down")


def links(rt: OSRuntime, name: str):
    return read_links(rt.services.journal, name)


def test_a_failed_conversation_is_reported_and_the_next_message_opens_another(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]", designer="")
    model = Agent(poster=ask_agent("designer", "break"), again=ask_agent("designer", "hello"))
    model._rules["break"] = failing

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            answer = (await chat.say("make a poster")).text
            assert '"state":"failed"' in answer
            assert "the server is down" in answer
            assert '"state":"completed"' in (await chat.say("again")).text
            first, second = links(rt, chat.run_id)
            assert first.conversation != second.conversation
            assert rt.runs.find(first.conversation).status == "failed"
            for row in rt.runs.all():
                await rt.runs.replay(row.run_id)

    run(talk())


def test_a_turn_without_a_usable_answer_is_reported_as_failed_and_its_conversation_goes_on(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]", designer="")
    model = Agent(poster=ask_agent("designer", "mumble"), again=ask_agent("designer", "hello"), mumble={"nothing": 1})

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            answer = (await chat.say("make a poster")).text
            assert '"state":"failed"' in answer
            assert "answers rejected" in answer
            assert "aborted" not in answer
            assert '"state":"completed"' in (await chat.say("again")).text
            first, second = links(rt, chat.run_id)
            assert (first.state, first.conversation) == ("failed", second.conversation)

    run(talk())


def test_a_conversation_that_reached_its_limit_is_reported(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]", designer="budget: {tokens: 1}")
    model = Counting(poster=ask_agent("designer", "hello"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            await chat.say("make a poster")  # the first reply is within the limit: it has used nothing before
            answer = (await chat.say("make a poster")).text
            assert '"state":"failed"' in answer
            assert "is limited" in answer
            assert "`tokens` is 1" in answer

    run(talk())


def test_the_tokens_of_an_agent_count_towards_the_limits_of_the_one_that_asks(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]\nbudget: {tokens: 40}", designer="")
    model = Counting(poster=ask_agent("designer", "hello"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            await chat.say("make a poster")  # two calls of the editor, one of the designer
            assert rt.runs.state(chat.run_id).usage.total == 30
            [link] = links(rt, chat.run_id)
            assert rt.runs.state(link.conversation).usage.total == 10
            answer = asyncio.ensure_future(chat.say("make a poster"))
            await reach(answer.done)
            # The editor's next call reaches 40, so that nothing is left for the designer.
            [_, second] = links(rt, chat.run_id)
            assert (second.state, rt.runs.find(chat.run_id).status) == ("failed", "limited")
            assert rt.runs.state(link.conversation).usage.total == 10
            answer.exception()

    run(talk())


class Counting(Agent):
    """Reports ten tokens for every answer."""

    async def complete(self, request):
        answer = await super().complete(request)
        return ModelAnswer(answer.text, kinds.Usage(8, 2))


def test_a_cancelled_conversation_is_reported(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]", designer="")
    model = Agent(poster=ask_agent("designer", "hello"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:

            async def cancel(request):
                rt.cancel(request.run_id, "not now")
                await asyncio.Event().wait()

            model._rules["hello"] = cancel
            answer = (await chat.say("make a poster")).text
            assert '"state":"canceled"' in answer
            assert "not now" in answer

    run(talk())


def test_a_question_of_the_other_agent_reaches_the_user(tmp_path: Path):
    skills(tmp_path, "poster", poster=ASK)
    agents(tmp_path, editor="agents: [designer]", designer="")
    model = Agent(please=ask_agent("designer", "draw"), draw=run_skill("poster"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            waiting = asyncio.ensure_future(chat.say("please"))
            await reach(lambda: len(chat.questions))
            assert chat.questions.first.question.message == "Which colour?"
            chat.answer(chat.questions.first, "blue")
            assert '"state":"completed"' in (await waiting).text
            assert rt.runs.find(chat.run_id).status == "waiting"

    run(talk())


def test_a_question_without_a_user_to_answer_is_reported_and_the_conversation_stays_usable(tmp_path: Path):
    skills(tmp_path, "poster", poster=ASK)
    agents(tmp_path, editor="agents: [designer]", designer="")
    model = Agent(please=ask_agent("designer", "draw"), draw=run_skill("poster"), simple=ask_agent("designer", "hi"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt:
            async with rt.chat("editor", run_id="c") as chat:
                waiting = asyncio.ensure_future(chat.say("please"))
                await reach(lambda: len(chat.questions))
            waiting.cancel()
            assert (await rt.resume("c")).status == "waiting"  # no user is there
            [link] = links(rt, "c")
            assert link.state == "input-required"
            assert "Which colour?" in link.reply
            async with rt.chat(run_id="c") as chat:
                assert '"state":"completed"' in (await chat.say("simple")).text
            assert {one.conversation for one in links(rt, "c")} == {link.conversation}
            for row in rt.runs.all():
                await rt.runs.replay(row.run_id)

    run(talk())


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = 1_800_000_000_000_000

    def now(self) -> int:
        self.time += 1
        return self.time


@pytest.mark.slow
def test_a_reply_that_takes_too_long_is_not_awaited(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]", designer="")
    (tmp_path / "reyn.yaml").write_text("agents: {reply_seconds: 60}\n")
    clock = HandClock()

    async def never(request):
        clock.time += 61_000_000
        await asyncio.Event().wait()

    model = Agent(poster=ask_agent("designer", "hello"), hello=never, again=ask_agent("designer", "quick"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model, clock=clock) as rt, rt.chat("editor") as chat:
            answer = (await chat.say("make a poster")).text
            assert '"status":"timeout"' in answer
            assert "no reply within 60 seconds (`agents.reply_seconds`)" in answer
            assert '"state":"completed"' in (await chat.say("again")).text
            assert len({link.conversation for link in links(rt, chat.run_id)}) == 1
            for row in rt.runs.all():
                await rt.runs.replay(row.run_id)

    run(talk())


def test_the_time_of_a_chain_is_that_of_its_first_message(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]", designer="agents: [builder]", builder="")
    (tmp_path / "reyn.yaml").write_text("agents: {reply_seconds: 60}\n")
    clock = HandClock()

    async def never(request):
        clock.time += 61_000_000
        await asyncio.Event().wait()

    model = Agent(poster=ask_agent("designer", "plan"), plan=ask_agent("builder", "build"), build=never)

    async def talk():
        async with OSRuntime.open(tmp_path, model=model, clock=clock) as rt, rt.chat("editor") as chat:
            assert '"status":"timeout"' in (await chat.say("make a poster")).text
            assert [row.status for row in rt.runs.all()] == ["waiting"] * 3

    run(talk())


@pytest.mark.slow
def test_aborting_the_reply_aborts_the_other_agents_turn_and_keeps_both_conversations(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]", designer="")
    called = asyncio.Event()

    async def never(request):
        called.set()
        await asyncio.Event().wait()

    model = Agent(poster=ask_agent("designer", "hello"), hello=never, again=ask_agent("designer", "quick"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            waiting = asyncio.ensure_future(chat.say("make a poster"))
            await called.wait()
            chat.abort("never mind")
            assert (await waiting).status == "aborted"
            [link] = links(rt, chat.run_id)
            assert link.state == "canceled"
            assert '"state":"completed"' in (await chat.say("again")).text
            assert rt.runs.find(link.conversation).status == "waiting"

    run(talk())


def test_a_conversation_that_is_open_in_another_process_is_reported(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]", designer="")
    model = Agent(poster=ask_agent("designer", "hello"), again=ask_agent("designer", "once more"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            await chat.say("make a poster")
            [link] = links(rt, chat.run_id)
            with rt.services.journal.claim(link.conversation):
                assert "is open elsewhere" in (await chat.say("again")).text
            assert '"state":"completed"' in (await chat.say("again")).text

    run(talk())


def test_two_conversations_ask_the_same_agent_at_the_same_time(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]", designer="")
    both, count = asyncio.Event(), []

    async def together(request):
        count.append(request.run_id)
        if len(count) == 2:
            both.set()
        await both.wait()
        return reply("Blue.")

    model = Agent(poster=ask_agent("designer", "hello"), hello=together)

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as one, rt.chat("editor") as two:
            answers = await asyncio.gather(one.say("make a poster"), two.say("make a poster"))
            assert all('"reply":"Blue."' in answer.text for answer in answers)
            assert len(set(count)) == 2

    run(talk())


def test_what_the_other_agent_starts_in_the_background_is_executed_and_reported_to_it(tmp_path: Path):
    skills(tmp_path, "report")
    agents(tmp_path, editor="agents: [designer]", designer="")
    model = Agent(please=ask_agent("designer", "draw"), draw=start_skill("report"), news=ask_agent("designer", "tell"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            await chat.say("please")
            await chat.runs.settle()
            await chat.say("news")
            [link, _] = links(rt, chat.run_id)
            bodies = [decode(event) for event in rt.runs.events(link.conversation)]
            assert [body.status for body in bodies if isinstance(body, kinds.MessageQueued) and body.run] == [
                "finished"
            ]

    run(talk())


def test_the_other_agent_has_rights_of_its_own(tmp_path: Path):
    (tmp_path / "secret").mkdir()
    agents(
        tmp_path,
        editor="agents: [keeper]",
        keeper="permissions: {file.write: [notes/]}",
    )
    (tmp_path / "reyn.yaml").write_text("permissions: {file.write: [{allow: notes/, skill: 'agent:keeper'}]}\n")
    write = act({"kind": "file", "op": "write", "path": "notes/a.txt", "content": "kept"})
    model = Agent(please=ask_agent("keeper", "store it"), store=write, myself=write)

    async def talk():
        async with OSRuntime.open(tmp_path, model=model, trust=True) as rt, rt.chat("editor") as chat:
            assert '"status":"denied"' in (await chat.say("myself")).text
            assert not (tmp_path / "notes/a.txt").exists()
            await chat.say("please")
            assert (tmp_path / "notes/a.txt").read_text() == "kept"
            [link] = links(rt, chat.run_id)
            rt.runs.undo(link.conversation)
            assert not (tmp_path / "notes/a.txt").exists()

    run(talk())
