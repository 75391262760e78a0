"""Agents talk to each other by the same means as a user: a message in the inbox of a conversation, and its reply."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reyn import OSRuntime, SyncRuntime
from reyn.chat.services.chain_manager import read_links, read_origin
from reyn.chat.services.snapshot_journal import read_messages
from reyn.journal import decode, kinds
from reyn.lint import lint_agent
from tests.chat.support import Agent, ask_agent, reply
from tests.chat.test_conversations import reach
from tests.support import act


def run(coroutine):
    return asyncio.run(coroutine)


def agents(root: Path, **asks: str) -> None:
    """Write agents; each value is the text of its `agents` key, or more lines of front matter."""
    folder = root / "reyn/agents"
    folder.mkdir(parents=True, exist_ok=True)
    for name, keys in asks.items():
        front = f"type: agent\nname: {name}\ndescription: The {name}\n{keys}"
        (folder / f"{name}.md").write_text(f"---\n{front}\n---\nYou are the {name}.\n")


def test_the_reply_of_another_agent_is_the_result_of_the_op(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]", designer="")
    model = Agent(poster=ask_agent("designer", "Which colour?"), colour=reply("Blue."))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            answer = await chat.say("make a poster")
            assert '"reply":"Blue."' in answer.text
            [link] = read_links(rt.services.journal, chat.run_id)
            assert (link.agent, link.number, link.state, link.depth) == ("designer", 1, "completed", 1)
            row = rt.runs.find(link.conversation)
            assert (row.skill, row.status, row.parent) == ("agent:designer", "waiting", chat.run_id)
            said = [(one.role, one.text) for one in read_messages(rt.runs.events(row.run_id), rt.runs.content)]
            assert said == [("user", "Which colour?"), ("agent", "Blue.")]
            for name in (chat.run_id, row.run_id):
                assert rt.runs.verify(name).events
                await rt.runs.replay(name)

    run(talk())
    assert "You are the designer." in model.systems[1]
    assert "# Agents that you can ask\n- designer: The designer" in model.systems[0]
    assert "Agents that you can ask" not in model.systems[1]


def test_the_next_message_continues_the_conversation_with_the_agent(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]", designer="")
    model = Agent(poster=ask_agent("designer", "Which colour?"), flyer=ask_agent("designer", "And for a flyer?"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            await chat.say("make a poster")
            await chat.say("make a flyer")
            first, second = read_links(rt.services.journal, chat.run_id)
            assert first.conversation == second.conversation
            assert (first.number, second.number) == (1, 2)
            messages = read_messages(rt.runs.events(first.conversation), rt.runs.content)
            assert [one.text for one in messages if one.role == "user"] == ["Which colour?", "And for a flyer?"]
            queued = [body for body in bodies(rt, first.conversation) if isinstance(body, kinds.MessageQueued)]
            assert [(one.by, one.ask.agent, one.ask.run) for one in queued] == [("agent:editor", "editor", chat.run_id)]
            for row in rt.runs.all():
                await rt.runs.replay(row.run_id)
                rt.runs.verify(row.run_id)

    run(talk())


def test_another_process_continues_the_conversation_with_the_agent(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]", designer="")
    rules = {"poster": ask_agent("designer", "Which colour?"), "flyer": ask_agent("designer", "And for a flyer?")}

    async def say(text: str) -> list[str]:
        async with OSRuntime.open(tmp_path, model=Agent(**rules)) as rt, rt.chat("editor", run_id="c") as chat:
            await chat.say(text)
            return [link.conversation for link in read_links(rt.services.journal, "c")]

    run(say("make a poster"))
    assert len(set(run(say("make a flyer")))) == 1


def test_a_cycle_of_agents_ends_at_the_depth_with_a_result(tmp_path: Path):
    agents(tmp_path, editor="agents: [designer]", designer="agents: [editor]")
    model = Agent(ping=ask_agent("designer", "pong"), pong=ask_agent("editor", "ping"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            answer = await chat.say("ping")
            depths = [link.depth for row in rt.runs.all() for link in read_links(rt.services.journal, row.run_id)]
            assert sorted(depths) == [1, 1, 2, 3]  # the last one was not sent, so that it has no depth of its own
            assert "RYN437" in answer.text
            assert "`agents.max_depth`" in answer.text
            assert [ask.agent for ask in read_origin(rt.services.journal, deepest(rt))] == [
                "editor",
                "designer",
                "editor",
            ]

    run(talk())


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_depth_is_configured(tmp_path: Path, depth: int):
    agents(tmp_path, editor="agents: [designer]", designer="agents: [editor]")
    (tmp_path / "reyn.yaml").write_text(f"agents: {{max_depth: {depth}}}\n")
    model = Agent(ping=ask_agent("designer", "pong"), pong=ask_agent("editor", "ping"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model, trust=True) as rt, rt.chat("editor") as chat:
            await chat.say("ping")
            assert len(rt.runs.all()) == depth + 1

    run(talk())


def test_an_agent_asks_only_agents_that_its_file_names(tmp_path: Path):
    agents(tmp_path, editor='agents: ["design*", editor]', designer="", builder="")
    model = Agent(
        one=ask_agent("designer", "hello"), two=ask_agent("builder", "hello"), three=ask_agent("editor", "hello")
    )

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt:
            async with rt.chat("editor") as chat:
                assert '"state":"completed"' in (await chat.say("one")).text
                assert "does not include `builder`" in (await chat.say("two")).text
                assert "answer yourself" in (await chat.say("three")).text
            async with rt.chat() as chat:  # the default agent has no such key, and is not offered the op
                assert (await chat.say("one")).status == "unanswered"

    run(talk())


def test_the_operator_decides_which_agents_may_be_asked(tmp_path: Path):
    agents(tmp_path, editor='agents: ["*"]', designer="", builder="")
    (tmp_path / "reyn.yaml").write_text("permissions: {agent: [{deny: builder}, {ask: designer}]}\n")
    model = Agent(one=ask_agent("builder", "hello"), two=ask_agent("designer", "hello"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model, trust=True) as rt, rt.chat("editor") as chat:
            assert "the operator denies `agent` for `builder`" in (await chat.say("one")).text
            waiting = asyncio.ensure_future(chat.say("two"))
            await reach(lambda: len(chat.questions))
            assert len(rt.runs.all()) == 1
            chat.answer(chat.questions.first, "approve")
            assert '"state":"completed"' in (await waiting).text

    run(talk())


def test_an_unknown_agent_is_reported_to_the_model(tmp_path: Path):
    agents(tmp_path, editor='agents: ["*"]')
    model = Agent(one=ask_agent("nobody", "hello"))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            answer = (await chat.say("one")).text
            assert '"state":"rejected"' in answer
            assert "RYN105: no agent `nobody`" in answer

    run(talk())


def test_two_messages_of_one_turn_reach_the_agents_one_after_the_other(tmp_path: Path):
    agents(tmp_path, editor='agents: ["*"]', designer="", builder="")
    ask = [{"kind": "ask_agent", "agent": name, "message": f"hello {name}"} for name in ("designer", "builder")]
    model = Agent(both=act(*ask, {"kind": "ask_agent", "agent": "designer", "message": "and again"}))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            await chat.say("both")
            first, second, third = read_links(rt.services.journal, chat.run_id)
            assert [one.state for one in (first, second, third)] == ["completed"] * 3
            assert (first.conversation, second.agent) == (third.conversation, "builder")
            await rt.runs.replay(chat.run_id)

    run(talk())


def test_a_name_that_no_agent_has_is_a_finding(tmp_path: Path):
    agents(tmp_path, editor='agents: [desinger, "*"]', designer="")
    with SyncRuntime.open(tmp_path) as rt:
        [finding] = lint_agent(rt.project.agents, "editor", [], rt.services.ops.vocabulary)
    assert (finding.code, finding.severity) == ("RYN105", "warning")
    assert "no other agent matches `desinger`" in finding.message
    assert "designer" in finding.fix


def bodies(rt: OSRuntime, name: str):
    return [decode(event) for event in rt.runs.events(name)]


def deepest(rt: OSRuntime) -> str:
    return max((row.run_id for row in rt.runs.all()), key=len)
