"""Agents talk to each other by the same means as a user: a message in the inbox of a conversation, and its reply."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reyn import OSRuntime
from reyn.chat.services.chain_manager import ChainManager
from reyn.chat.services.snapshot_journal import read_messages
from tests.chat.support import Agent, ask_agent, reply


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
            [link] = ChainManager(rt.journal, 3).links(chat.run_id)
            assert (link.agent, link.number, link.state, link.depth) == ("designer", 1, "completed", 1)
            row = rt.find(link.conversation)
            assert (row.skill, row.status, row.parent) == ("agent:designer", "waiting", chat.run_id)
            said = [(one.role, one.text) for one in read_messages(rt.events(row.run_id), rt.content)]
            assert said == [("user", "Which colour?"), ("agent", "Blue.")]
            for name in (chat.run_id, row.run_id):
                assert rt.verify(name).events
                await rt.replay(name)

    run(talk())
    assert "You are the designer." in model.systems[1]
    assert "# Agents that you can ask\n- designer: The designer" in model.systems[0]
    assert "Agents that you can ask" not in model.systems[1]
