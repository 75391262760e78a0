"""Messages that the code of a tool sends to a conversation with a key, if the tool is performed again."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, llm_chat, llm_function, tool
from reyn.errors import CallStopped, RunIdTaken
from reyn.journal import MemoryJournal
from reyn.models import ModelAnswer, ToolCall
from reyn.vocabulary import EffectClass
from tests.kernel.test_turn_abort import forever, reached

NAMES = ("Ada", "Bob", "Ada")
"""What the tool says, one after the other; a text that is said twice is two messages."""
COPIED = "Cy"
"""What the tool says to a copy of the conversation."""


class Till:
    """A function `sell` whose tool `ring` says three texts to the conversation `till`; that books each one."""

    name, answer_form, takes_time = "till", "tools", True

    def __init__(
        self,
        root: Path,
        journal: MemoryJournal,
        interrupted_at: int = 0,
        *,
        copies: bool = False,
        effect: EffectClass = "idempotent",
    ) -> None:
        self.booked: list[str] = []
        self.calls = 0
        self.interrupted_at = interrupted_at
        self.reached = asyncio.Event()
        self.rt = OSRuntime.open(root, model=self, journal=journal)

        @tool(effect="unsafe", permission=None)
        def book(name: str) -> str:
            """Book a name."""
            self.booked.append(name)
            return f"booked {name}"

        @llm_chat(runtime=self.rt, toolkit=[book])
        async def till(message: str) -> None:
            """Book what is said."""

        @tool(effect=effect, permission=None)
        async def ring() -> str:
            """Ring."""
            shop = till.options(key="shop")
            said = [(await shop(name)).text for name in NAMES]
            await self.step()
            if copies:
                said.append((await (await shop.fork("branch"))(COPIED)).text)
                unnamed = self.rt.conversations.copy(shop.conversation)
                await self.step()
                said.append(f"copy {unnamed != self.rt.conversations.copy(shop.conversation)}")
            return ", ".join(said)

        @llm_function(runtime=self.rt, toolkit=[ring])
        async def sell(what: str) -> str:
            """Ring."""

        self.till = till.options(key="shop")
        self.sell = sell.options(run_id="sale")

    async def step(self) -> None:
        self.calls += 1
        if self.calls == self.interrupted_at:
            self.reached.set()
            await forever()

    async def complete(self, request: Any) -> ModelAnswer:
        last = request.messages[-1]
        if request.phase == "sell":
            call = (ToolCall("s", "ring", "{}"),) if last.role != "tool" else ()
            return ModelAnswer("" if call else last.text, tool_calls=call)
        await self.step()
        if last.role == "tool":
            return ModelAnswer(f"ok {json.loads(last.text)['result']}")
        return ModelAnswer("", tool_calls=(ToolCall("t", "book", json.dumps({"name": last.text})),))


async def killed_at(root: Path, interrupted_at: int, **options: Any) -> tuple[list[str], Till]:
    """Kill the process in a step; return what was booked until then, and the till that another process opens."""
    journal = MemoryJournal()
    killed = Till(root, journal, interrupted_at, **options)
    first = asyncio.create_task(killed.sell("tea"))
    await reached(killed.reached, first)
    after = deepcopy(journal)  # what a process finds after the kill of this one
    after._claims.clear()
    done = [*killed.booked]
    first.cancel()
    await asyncio.wait([first])
    await killed.rt.aclose()
    return done, Till(root, after, **options)


@pytest.mark.parametrize(
    ("interrupted_at", "effect"),
    [*((at, "idempotent") for at in range(1, 2 * len(NAMES) + 2)), *((at, "unsafe") for at in (2, 3, 7))],
)
def test_a_tool_that_is_repeated_finds_the_turns_that_it_started(
    tmp_path: Path, interrupted_at: int, effect: EffectClass
):
    async def scenario() -> None:
        done, till = await killed_at(tmp_path, interrupted_at, effect=effect)
        async with till.rt as rt:
            if effect == "unsafe":
                with pytest.raises(CallStopped):
                    await till.sell("tea")
                asked = rt.runs.open_question(rt.runs.find("sale"))
                assert asked is not None
                rt.answer("sale", asked.question.id, "again")
            assert "ok booked Ada, ok booked Bob, ok booked Ada" in await till.sell("tea")
            assert [*done, *till.booked] == [*NAMES]
            said = [message.text for message in rt.runs.transcript(till.till.conversation) if message.role == "user"]
            assert said == [*NAMES]
            assert (await till.till("Eve")).text == "ok booked Eve"  # outside the tool, it is a new message

    asyncio.run(scenario())


@pytest.mark.parametrize("interrupted_at", [7, 8, 9, 10])
def test_a_tool_that_is_repeated_finds_the_copies_that_it_made(tmp_path: Path, interrupted_at: int):
    async def scenario() -> None:
        done, till = await killed_at(tmp_path, interrupted_at, copies=True)
        async with till.rt as rt:
            assert "ok booked Ada, ok booked Cy, copy True" in await till.sell("tea")
            assert [*done, *till.booked] == [*NAMES, COPIED]
            assert len([row for row in rt.services.journal.runs() if row.fork_of]) == 3
            with pytest.raises(RunIdTaken):  # outside the tool, it is another copy
                await till.till.fork("branch")

    asyncio.run(scenario())
