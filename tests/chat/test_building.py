"""A conversation builds a skill, asks the user about the diff, and runs the skill in the next message."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from reyn import OSRuntime
from reyn.models import ModelAnswer
from tests.building import branching, planned, summed_up
from tests.chat.support import Agent, run_skill
from tests.chat.test_conversations import reach
from tests.support import finish

LABEL = finish("x", "label") | {"artifact": {"type": "label", "data": {"kind": "now", "count": 1}}}


WORK = {"design": planned(branching()), "review": summed_up("It sorts."), "sort": LABEL}


class Builder(Agent):
    """An agent that also designs a skill, and then does its work."""

    async def complete(self, request) -> ModelAnswer:
        if request.phase in WORK:
            return ModelAnswer(json.dumps(WORK[request.phase]))
        return await super().complete(request)


def talk(root: Path, reply: object) -> tuple[list[str], list[str], list[str]]:
    """Build a skill and try to use it; return the replies, the lists of skills in the prompts, and the question."""
    model = Builder(
        construct=run_skill("skill_builder", text="Sort my mails"), try_it=run_skill("sorter", text="hello")
    )

    async def conversation() -> tuple[list[str], list[str], list[str]]:
        async with OSRuntime.open(root, model=model) as rt, rt.chat() as chat:
            building = asyncio.ensure_future(chat.say("construct a skill"))
            await reach(lambda: len(chat.questions))
            question = chat.questions.first
            chat.answer(question, reply)
            replies = [(await building).text, (await chat.say("try_it")).text]
            assert (await rt.runs.replay(chat.run_id)).status == "waiting"
            return replies, model.systems, [question.question.message]

    return asyncio.run(conversation())


def test_a_skill_is_built_and_run_in_one_conversation(tmp_path: Path):
    (built, used), systems, [question] = talk(tmp_path, "approve")
    assert '"status":"ok"' in built
    assert '"skill_path":"reyn/local/sorter"' in built
    assert "+++ reyn/local/sorter/skill.md" in question
    assert "2 of 2 cases passed" in question
    assert "- skill_builder: Build a new skill from a description" in systems[0]
    assert "- sorter:" not in systems[0]
    assert "- sorter: Greet the user. Input: text (string)" in systems[-1]
    assert '"success":true' in used
    assert '"kind":"now"' in used


def test_a_skill_that_the_user_rejects_does_not_exist_in_the_next_message(tmp_path: Path):
    (built, used), systems, _ = talk(tmp_path, {"decision": "reject", "remark": "not now"})
    assert "not approved: not now" in built
    assert not (tmp_path / "reyn").exists()
    assert "- sorter:" not in systems[-1]
    assert "'sorter' is not offered here" in used


def test_an_agent_that_may_not_run_the_builder_cannot_build(tmp_path: Path):
    agents = tmp_path / "reyn/agents"
    agents.mkdir(parents=True)
    (agents / "clerk.md").write_text("---\ntype: agent\nname: clerk\nskills: [summarize]\n---\nYou are a clerk.\n")
    model = Builder(construct=run_skill("skill_builder", text="Sort my mails"))

    async def conversation() -> str:
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("clerk") as chat:
            return (await chat.say("construct a skill")).text

    assert "'skill_builder' is not offered here; use 'summarize'" in asyncio.run(conversation())
