"""No compaction drops what the current turn has done, and no failed summary blocks a conversation."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest

from reyn import ModelAnswer, OSRuntime, errors
from reyn.functions import llm_chat, tool
from reyn.journal import MemoryJournal
from reyn.models import ToolCall

LONG = "lorem ipsum " * 80


class Careful:
    """Books a room unless its prompt shows that it is booked, then reads pages; summaries are what the test says."""

    takes_time = False
    name = "careful"
    answer_form = "tools"

    def __init__(self, summary: Any, pages: int, outage: float = math.inf) -> None:
        self.summary, self.pages, self.outage = summary, pages, outage
        self.read = self.asked = 0
        self.prompts: list[list[tuple[str, str]]] = []

    async def complete(self, request: Any) -> ModelAnswer:
        seen = [(message.role, message.text) for message in list(request.messages)[1:]]
        if "Summarise the conversation" in seen[-1][1]:
            self.asked += 1
            summary = self.summary if self.asked <= self.outage else '{"summary": "They talked."}'
            if isinstance(summary, Exception):
                raise summary
            return ModelAnswer(summary)
        self.prompts.append(seen)
        if seen[-1][0] == "user" and seen[-1][1].endswith("hi"):
            return ModelAnswer("Hello. " + LONG)
        if not any("booked 7" in text for _, text in seen):
            return self._call("book", room=7)
        if self.read < self.pages:
            self.read += 1
            return self._call("page", number=self.read)
        return ModelAnswer("Done.")

    def _call(self, name: str, **args: Any) -> ModelAnswer:
        return ModelAnswer("", tool_calls=(ToolCall("id", name, json.dumps(args)),))


def talk(folder: Path, model: Careful, *messages: str, max_tokens: int = 600) -> tuple[list[int], list[str], list[Any]]:
    """Return what was booked, the texts of the last history, and the errors of compactions."""
    booked: list[int] = []

    @tool(effect="unsafe", permission=None)
    def book(room: int) -> str:
        """Book a room."""
        booked.append(room)
        return f"booked {room}"

    @tool(effect="pure", permission=None)
    def page(number: int) -> str:
        """Read a page."""
        return f"page {number}: {LONG}"

    async def scenario() -> tuple[list[int], list[str], list[Any]]:
        async with OSRuntime.open(folder, model=model, journal=MemoryJournal()) as runtime:

            @llm_chat(runtime=runtime, toolkit=[book, page], max_tokens=max_tokens, max_act_turns=30)
            async def clerk(message: str) -> None:
                """You book rooms."""

            chat = clerk.options(key="ada")
            for message in messages:
                reply = await chat(message)
            assert chat.conversation is not None
            events = list(runtime.runs.events(chat.conversation))
            await runtime.runs.replay(chat.conversation)
            compacted = [event.data.get("error") for event in events if event.kind == "context_compacted"]
            return booked, [one.text for one in reply.history], compacted

    return asyncio.run(scenario())


@pytest.mark.parametrize("summary", ["no", '{"summary": "They talked."}', errors.PromptTooLong("too long")])
@pytest.mark.parametrize("before", [0, 2])
def test_a_turn_that_is_too_long_shows_all_that_it_did(tmp_path: Path, summary: Any, before: int):
    model = Careful(summary, pages=9)
    booked, history, compacted = talk(tmp_path, model, *["hi"] * before, "book it, then read all pages")
    assert booked == [7]
    last = model.prompts[-1]
    said = [text for _, text in last].index("book it, then read all pages")
    assert [role for role, _ in last[said:]] == ["user", *["assistant", "tool"] * 10]
    assert "booked 7" in last[said + 2][1]
    assert last[-1][1].count("lorem") == 80  # the newest result is whole
    assert sum(len(text) for _, text in last) < 5 * len(LONG)  # older ones that changed nothing are truncated
    assert len([text for text in history if text.count("lorem") == 80 and "page" in text]) == 9
    assert len(compacted) == (before > 0)
    if before:
        assert last[0][1].startswith("# Summary")


OUTAGES = [
    errors.ModelUnavailable, errors.RateLimited, errors.ModelTimeout, errors.ResponseIncomplete, errors.CircuitOpen,
    errors.KeyRejected, RuntimeError,
]  # fmt: skip


@pytest.mark.parametrize(("error", "outage"), list(zip(OUTAGES, [1, 3, 2, 1, 2, 1, 3], strict=True)))
def test_an_outage_during_a_summary_leaves_older_turns_out_of_the_prompt_alone(tmp_path: Path, error: Any, outage: int):
    model = Careful(error("not now"), pages=0, outage=outage)
    first = 4  # three replies have more than 600 tokens
    _, history, compacted = talk(tmp_path, model, *["hi"] * (first + outage - 1))
    assert (model.asked, compacted) == (outage, [])
    assert history == ["hi", "Hello. " + LONG] * (first + outage - 1)
    for prompt in model.prompts[-outage:]:
        assert prompt[-1][1] == "(older turns are left out)\n\nhi"
        assert sum(len(text) for _, text in prompt) < 4 * 600


@pytest.mark.parametrize("error", [errors.ModelTimeout, errors.KeyRejected])
def test_the_next_message_after_an_outage_asks_for_the_summary_again(tmp_path: Path, error: Any):
    model, outage = Careful(error("not now"), pages=0, outage=2), 2
    _, history, compacted = talk(tmp_path, model, *["hi"] * (4 + outage))
    assert (model.asked, compacted) == (outage + 1, [None])
    assert history[0] == "# Summary of the conversation so far\nThey talked."


def test_a_turn_asks_once_for_a_summary_during_an_outage(tmp_path: Path):
    model = Careful(errors.ModelTimeout("not now"), pages=5)
    booked, history, compacted = talk(tmp_path, model, *["hi"] * 3, "book it, then read all pages")
    assert (booked, model.asked, compacted) == ([7], 1, [])
    assert history[:2] == ["hi", "Hello. " + LONG]
    assert all("booked 7" in str(prompt) for prompt in model.prompts[4:])


@pytest.mark.parametrize("error", [errors.PromptTooLong, errors.RequestRejected, errors.SchemaRejected])
def test_a_summary_that_is_refused_does_not_block_the_conversation(tmp_path: Path, error: Any):
    model = Careful(error("not now"), pages=0)
    _, history, compacted = talk(tmp_path, model, *["hi"] * 8)
    assert history[0].startswith("# Summary of the conversation so far\n(The older messages were left out")
    assert compacted
    assert all(one == f"{error.code}: not now" for one in compacted)
