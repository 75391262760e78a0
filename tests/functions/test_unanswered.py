"""A turn without a usable answer keeps what was completed: the user's message, tool calls and their results."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import ChatStopped, ForkImpossible
from reyn.functions import llm_chat, tool
from reyn.journal import MemoryJournal
from tests.functions.test_chat import Chatty, calls
from tests.support import write_skill

PAY = calls(("pay", '{"amount": 5}'))
ENDS: dict[str, list[Any]] = {
    "all act turns are used": [PAY, PAY, PAY, PAY, PAY, PAY],
    "empty answers": [PAY, "", " ", "\n"],
    "unknown tools": [PAY, *[calls(("refund", "{}"))] * 3],
    "malformed arguments": [PAY, *[calls(("pay", '{"amount": "much"}'))] * 3],
    "the first answers": ["", "", ""],
}


class Bank:
    """A chat with a tool that must not be called twice by mistake."""

    def __init__(self, folder: Path, *answers: Any) -> None:
        self.paid: list[int] = []
        self.model = Chatty(*answers)
        self.runtime = OSRuntime.open(folder, model=self.model, journal=MemoryJournal())

        @tool(effect="unsafe")
        def pay(amount: int) -> str:
            """Pay an amount."""
            self.paid.append(amount)
            return f"paid {amount}"

        @llm_chat(runtime=self.runtime, toolkit=[pay], max_act_turns=2)
        async def chat(message: str, history: list[Any] | None = None) -> None:
            """You pay bills."""

        self.chat = chat

    def answer(self, *answers: Any) -> None:
        self.model.answers = [*self.model.answers[: len(self.model.requests)], *answers]


@pytest.mark.parametrize("key", [None, "ada"])
@pytest.mark.parametrize("end", ENDS)
def test_the_next_request_has_what_was_done(tmp_path: Path, end: str, key: str | None):
    async def scenario() -> None:
        bank = Bank(tmp_path, *ENDS[end])
        async with bank.runtime as runtime:
            chat = bank.chat.options(key=key) if key else bank.chat
            with pytest.raises(ChatStopped) as stopped:
                await chat("pay 5")
            history = stopped.value.history
            results = [message.text for message in history if message.role == "tool"]
            assert [message.role for message in history] == ["user", *["assistant", "tool"] * len(bank.paid)]
            assert [("paid 5" in text) for text in results] == [True] * len(bank.paid)
            bank.answer("It is paid.")
            reply = await (chat("done?") if key else chat("done?", history))
            assert reply.text == "It is paid."
            seen = [text for _, text in bank.model.seen()]
            assert seen[0] == "pay 5"
            assert seen[-1] == "done?"
            assert len([text for text in seen if "paid 5" in text]) == len(bank.paid)
            await runtime.runs.replay(reply.run_id)

    asyncio.run(scenario())


def test_a_second_turn_that_fails_keeps_the_first(tmp_path: Path):
    async def scenario() -> None:
        bank = Bank(tmp_path, "Hello.", PAY, "", "", "")
        async with bank.runtime:
            chat = bank.chat.options(key="ada")
            await chat("hi")
            with pytest.raises(ChatStopped) as stopped:
                await chat("pay 5")
            assert stopped.value.status == "waiting"
            assert [message.role for message in stopped.value.history] == [
                *["user", "assistant", "user", "assistant", "tool"]
            ]

    asyncio.run(scenario())


def test_a_retry_of_a_run_continues_the_turn_instead_of_repeating_it(tmp_path: Path):
    async def scenario() -> None:
        bank = Bank(tmp_path, PAY, "", "", "")
        async with bank.runtime as runtime:
            chat = bank.chat.options(run_id="one")
            with pytest.raises(ChatStopped) as stopped:
                await chat("pay 5")
            assert stopped.value.status == "failed"
            bank.answer("It is paid.")
            assert (await chat.resume()).text == "It is paid."
            assert [role for role, _ in bank.model.seen()] == ["user", "assistant", "tool"]
            assert bank.paid == [5]
            await runtime.runs.replay("one")

    asyncio.run(scenario())


def test_the_end_of_a_turn_is_returned_again(tmp_path: Path):
    async def scenario() -> None:
        bank = Bank(tmp_path, "Hello.", PAY, "", "", "")
        async with bank.runtime:
            chat = bank.chat.options(key="ada")
            first = await chat("hi")
            again = await chat.resume()
            assert (again.text, again.history) == (first.text, first.history)
            with pytest.raises(ChatStopped) as stopped:
                await chat("pay 5")
            with pytest.raises(ChatStopped) as repeated:
                await chat.resume()
            assert (str(repeated.value), repeated.value.history) == (str(stopped.value), stopped.value.history)
            assert (len(bank.model.requests), bank.paid) == (5, [5])
            bank.answer("It is paid.")
            assert (await chat("done?")).text == (await chat.resume()).text == "It is paid."

    asyncio.run(scenario())


def test_a_failed_compaction_leaves_older_turns_out_and_goes_on(tmp_path: Path):
    async def scenario() -> None:
        model = Chatty("x" * 3_000, "y" * 3_000, "no", "I would rather not.", "", "Fine.")
        async with OSRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as runtime:

            @llm_chat(runtime=runtime, max_tokens=1_000)
            async def chat(message: str) -> None:
                """Talk."""

            kept = chat.options(key="ada")
            await kept("one")
            await kept("two")
            reply = await kept("three")
            assert reply.text == "Fine."
            assert [message.text for message in reply.history][-2:] == ["three", "Fine."]
            texts = [text for _, text in model.seen()]
            assert texts[-1] == "three"
            assert not any("xxx" in text for text in texts)
            assert any("left out" in text for text in texts)
            assert kept.conversation is not None
            [event] = [one for one in runtime.runs.events(kept.conversation) if one.kind == "context_compacted"]
            assert b"no valid summary" in bytes(event.raw)
            await runtime.runs.replay(kept.conversation)

    asyncio.run(scenario())


def test_a_copy_of_a_conversation_executes_nothing(tmp_path: Path):
    async def scenario() -> None:
        bank = Bank(tmp_path, "Hello.", PAY)
        async with bank.runtime as runtime:
            chat = bank.chat.options(key="ada")
            await chat("hi")

            async def lost(_: Any) -> str:
                raise asyncio.CancelledError

            bank.answer(PAY, lost)
            with pytest.raises(asyncio.CancelledError):
                await chat("pay 5")
            requests = len(bank.model.requests)
            copy = await chat.fork("copy")
            assert len(bank.model.requests) == requests
            assert bank.paid == [5]
            bank.answer("In the copy.")
            reply = await copy("and?")
            kept = ["user", "assistant", "user", "assistant", "tool", "user", "assistant"]
            assert [message.role for message in reply.history] == kept
            assert "paid 5" in reply.history[4].text
            await runtime.runs.replay(reply.run_id)
            bank.answer("In the first one.")
            assert (await chat("and?")).history[2].text == "pay 5"

    asyncio.run(scenario())


def test_a_tool_can_copy_the_conversation_that_calls_it(tmp_path: Path):
    async def scenario() -> None:
        copies: list[str] = []

        @tool(effect="unsafe")
        async def branch() -> str:
            """Copy the conversation."""
            copies.append("copy")
            await chat.options(key="ada").fork("copy")
            return "copied"

        model = Chatty("Hello.", calls(("branch", "{}")), "Done.", "In the copy.")
        async with OSRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as runtime:

            @llm_chat(runtime=runtime, toolkit=[branch])
            async def chat(message: str) -> None:
                """Talk."""

            kept = chat.options(key="ada")
            await kept("hi")
            assert (await kept("copy this")).text == "Done."
            assert copies == ["copy"]
            reply = await chat.options(key="copy")("and?")
            assert [message.text for message in reply.history if message.role == "user"] == ["hi", "copy this", "and?"]
            assert [message.status for message in reply.history if message.role == "tool"] == ["unknown"]
            assert copies == ["copy"]

    asyncio.run(scenario())


def test_a_conversation_without_a_turn_cannot_be_copied(tmp_path: Path):
    step = "conversation: true\npreprocessor:\n  - run_op: {op: {kind: file, op: read, path: 'workspace:none'}}\n"
    write_skill(tmp_path, "talk", {"a": ["a"]}, inputs={"a": "user_message"}, phase_keys={"a": step})

    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, model=Chatty(), journal=MemoryJournal()) as runtime:
            result = await runtime.run("talk", "hi")
            assert result.status == "failed"
            with pytest.raises(ForkImpossible, match="no turn yet"):
                runtime.conversations.copy(result.run_id)

    asyncio.run(scenario())
