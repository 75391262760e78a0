"""A hook's mutations of a conversation that continues a list apply to all that the hook sees, the list included."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, llm_chat
from reyn.context import AssistantMessage, ContextMutation, ContextReplace, ContextSummary, UserMessage, apply_mutations
from reyn.context.transcript import normalize
from reyn.functions import HookTurn
from reyn.journal import MemoryJournal
from reyn.models import Message
from reyn.models.messages import ToolCall
from tests.functions.test_chat import Chatty, add, calls
from tests.functions.test_image_requests import PICTURE

SUM = calls(("add", '{"a": 1, "b": 2}'))


def a_history(rng: random.Random) -> list[Message]:
    """Return a conversation of some turns, with tool calls, images, and perhaps a system message."""
    found: list[Message] = [Message("system", "You said this.")] if rng.random() < 0.3 else []
    for turn in range(rng.randint(1, 4)):
        found.append(Message("user", f"question {turn}", (PICTURE,) if rng.random() < 0.2 else ()))
        if rng.random() < 0.5:
            named = [f"c{turn}.{number}" for number in range(rng.randint(1, 3))]
            asked = tuple(ToolCall(name, "look", f'{{"at": "{name}"}}') for name in named)
            found.append(Message("assistant", rng.choice(["", "Let me look."]), tool_calls=asked))
            found += [Message("tool", f"seen {name}", tool_call_id=name) for name in named]
        found.append(Message("assistant", f"reply {turn}"))
    return found


def some_mutations(rng: random.Random, turn: HookTurn) -> list[ContextMutation]:
    makers: list[Any] = [
        lambda: ContextSummary(f"All until {rng.randint(0, 9)}.", rng.randint(0, 12)),
        lambda: ContextSummary("All so far.", rng.randint(0, 12), ("remember this",)),
        lambda: UserMessage("Be brief."),
        lambda: AssistantMessage("I see."),
        lambda: ContextReplace(normalize([m for m in turn.messages if m.role != "tool" and not m.tool_calls])),
        lambda: ContextReplace(turn.messages),
    ]
    return [rng.choice(makers)() for _ in range(rng.randint(0, 3))]


def texts(messages: Any) -> list[tuple[str, str, int, int]]:
    return [(one.role, one.text, len(one.images), len(one.tool_calls)) for one in messages if one.role != "system"]


@pytest.mark.parametrize("seed", range(60))
def test_a_model_sees_what_the_mutations_make_of_what_the_hook_sees(tmp_path: Path, seed: int):
    rng = random.Random(seed)
    wanted: list[list[Any]] = []

    def patch(turn: HookTurn) -> list[ContextMutation]:
        mutations = some_mutations(rng, turn)
        wanted.append(texts(apply_mutations(turn.messages, mutations)))
        return mutations

    async def scenario() -> None:
        model = Chatty(SUM, "It is 3.")
        model.reads_images = True
        async with OSRuntime.open(tmp_path, model=model, journal=MemoryJournal(), trust=True) as rt:

            @llm_chat(runtime=rt, toolkit=[add], hooks=[patch])
            async def agent(message: str, history: Any = None) -> None:
                """You talk."""

            reply = await agent("1 + 2?", a_history(rng))
            assert [texts(request.messages) for request in model.requests] == wanted
            assert texts(reply.history) == [*wanted[-1], ("assistant", "It is 3.", 0, 0)]
            for row in rt.runs.all():
                assert (await rt.runs.replay(row.run_id)).events == rt.runs.verify(row.run_id).events
                assert texts(rt.runs.transcript(row.run_id)) == texts(reply.history)

    asyncio.run(scenario())
