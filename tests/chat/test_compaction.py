"""A compaction keeps what is pinned, whatever the model writes in its summary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reyn import OSRuntime
from reyn.chat.services.compaction_controller import compactions
from reyn.chat.services.router_host_adapter import router_view
from reyn.errors import MutationInvalid
from reyn.models import ModelAnswer
from tests.chat.support import Agent, reply, skills
from tests.chat.test_agents_that_ask import agents, run
from tests.chat.test_conversations import reach
from tests.support import act

FACTS = [f"The code of locker {number} is {number * 7919 % 10007}." for number in range(50)]


class Forgetful(Agent):
    """Remembers a fact if a message has one, and writes summaries that say nothing of what was said."""

    async def complete(self, request):
        last = request.messages[-1].text
        if "Summarise the conversation" in last:
            return ModelAnswer(json.dumps({"summary": "There was some talk."}))
        if last.startswith("Note: "):
            self.systems.append(request.messages[0].text)
            return ModelAnswer(json.dumps(act({"kind": "remember", "text": last.removeprefix("Note: ").strip()})))
        return await super().complete(request)


@pytest.mark.slow
def test_every_pinned_fact_of_fifty_survives_several_compactions(tmp_path: Path):
    agents(tmp_path, keeper="budget: {transcript: 3000}")
    model = Forgetful()

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("keeper", run_id="c") as chat:
            for number, fact in enumerate(FACTS):
                await chat.say(f"Note: {fact}")
                await chat.say(f"By the way, locker {number} is green. {'And so on. ' * 40}")
            assert len(compactions(rt.runs, "c")) >= 3
            assert all(one.summary == "There was some talk." for one in compactions(rt.runs, "c"))
            assert [one.text for one in rt.runs.memory("c")] == FACTS
            await chat.say("What do you know?")
            prompt = model.systems[-1]
            assert [fact for fact in FACTS if fact not in prompt] == []
            said = [one.text for one in rt.runs.transcript("c")]
            assert not any(FACTS[0] in text for text in said)  # only the memory has it
            size = rt.runs.conversation_size("c")
            assert size.tokens <= size.max_tokens == 3000
            assert 0 < size.pinned <= size.max_pinned == 1500
            await rt.runs.replay("c")
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat(run_id="c") as chat:
            await chat.say("And now?")
            assert all(fact in model.systems[-1] for fact in FACTS)

    run(talk())


@pytest.mark.slow
def test_facts_that_do_not_fit_are_refused_and_those_that_are_pinned_stay(tmp_path: Path):
    agents(tmp_path, keeper="budget: {transcript: 400}")
    model = Forgetful()

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("keeper", run_id="c") as chat:
            answers = [(await chat.say(f"Note: {fact}")).text for fact in FACTS[:20]]
            kept = [one.text for one in rt.runs.memory("c")]
            assert 5 < len(kept) < 20
            refused = answers[len(kept)]
            assert '"status":"error"' in refused
            assert "at most 200 fit beside its messages; forget something first" in refused
            with pytest.raises(MutationInvalid, match="at most 200 fit"):
                rt.conversations.remember("c", "One more fact that is too long to fit beside all the others.")
            rt.conversations.forget("c", rt.runs.memory("c")[0].id)
            await reach(lambda: len(rt.runs.memory("c")) < len(kept))
            rt.conversations.remember("c", "The code of locker 99 is 1234.")
            await reach(lambda: len(rt.runs.memory("c")) == len(kept))
            assert [one.text for one in rt.runs.memory("c")] == [*kept[1:], "The code of locker 99 is 1234."]
            await rt.runs.replay("c")

    run(talk())


def test_a_user_asks_for_a_compaction(tmp_path: Path):
    model = Forgetful()

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat(run_id="c") as chat:
            await chat.say("first")
            await chat.say("second")
            rt.conversations.compact("c")
            await chat.say("third")
            [compacted] = compactions(rt.runs, "c")
            assert compacted.dropped > 0
            assert "third" in [one.text.strip() for one in rt.runs.transcript("c")]

    run(talk())


def test_the_view_of_an_agent_is_what_its_prompt_shows(tmp_path: Path):
    skills(tmp_path, "poster", "flyer")
    agents(tmp_path, editor="agents: [designer]\nskills: [poster]", designer="")
    (tmp_path / "reyn/memory").mkdir()
    (tmp_path / "reyn/memory/tea.md").write_text("---\nname: tea\ndescription: Which tea to buy\n---\nGreen.\n")
    model = Agent(hello=reply("Hi."))

    async def talk():
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat("editor") as chat:
            view = router_view(rt, "editor", "hello")
            await chat.say("hello")
            prompt = model.systems[-1]
            assert view.role == "You are the editor."
            assert view.agents == ("designer: The designer",)
            assert [line.partition(":")[0] for line in view.skills] == ["poster"]
            assert any("Which tea to buy" in line for line in view.memories)
            for overview in view.overviews.values():
                assert all(line in prompt for line in overview.lines)

    run(talk())
