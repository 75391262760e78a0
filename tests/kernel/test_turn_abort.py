"""Aborting the turn of a conversation: before the model answers, in its answer, in a tool, between two tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import ModelUnavailable, RunNotResumable
from reyn.functions import tool
from reyn.journal import MemoryJournal, decode
from reyn.models import ModelAnswer, ToolCall
from tests.support import write_skill


class Chatty:
    """Answers with the items of a list; a callable item is awaited for its answer."""

    name = "chatty"
    takes_time = True
    answer_form = "tools"

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.requests: list[Any] = []

    async def complete(self, request: Any) -> ModelAnswer:
        self.requests.append(request)
        answer = self._answers[len(self.requests) - 1]
        answer = await answer() if callable(answer) else answer
        return ModelAnswer(answer) if isinstance(answer, str) else ModelAnswer("", tool_calls=tuple(answer))


def calls(*names: str) -> list[ToolCall]:
    return [ToolCall(f"id-{number}", name, "{}") for number, name in enumerate(names)]


class Talk:
    """A conversation `talk` whose tools are executed one after the other; it goes on unless `ends`."""

    def __init__(self, root: Path, model: Chatty, *, ends: bool = False, **tools: Callable[..., Any]) -> None:
        self.model = model
        self.tools = [
            tool(name=name, description="A tool.", effect="idempotent", permission=None)(one)
            for name, one in tools.items()
        ]
        write_skill(
            root,
            "talk",
            {"chat": ["end" if ends else "chat"]},
            inputs={"chat": "user_message"},
            phase_keys={"chat": "conversation: true\n"},
            ops={"chat": ", ".join(tools)},
        )
        self.rt = OSRuntime.open(root, model=model, journal=MemoryJournal(), ops=self.tools, trust=True)

    async def say(self, text: str) -> Any:
        found = self.rt.services.journal.find("k")
        if found is None:
            return await self.rt.run("talk", text, run_id="k")
        self.rt.answer("k", found.wait.id, text)
        return await self.rt.resume("k")

    def abort(self, reason: str = "enough", partial: str = "") -> None:
        self.rt.conversations.abort_turn("k", reason, partial=partial)

    def seen(self) -> list[tuple[str, str]]:
        """Role and text of what the last request contained, without the system message."""
        return [(message.role, message.text) for message in list(self.model.requests[-1].messages)[1:]]

    def bodies(self, kind: str) -> list[Any]:
        return [decode(event) for event in self.rt.runs.events("k") if event.kind == kind]

    async def check(self) -> None:
        assert (await self.rt.runs.replay("k")).events == self.rt.runs.verify("k").events


async def reached(event: asyncio.Event, turn: asyncio.Task[Any]) -> None:
    """Wait until a turn has set an event; fail if it ends before."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait([waiting, turn], return_when=asyncio.FIRST_COMPLETED)
    assert waiting.done(), turn.result()


def forever() -> Any:
    return asyncio.Event().wait()


def test_an_aborted_answer_stays_as_far_as_it_arrived_and_the_conversation_goes_on(tmp_path: Path):
    async def run() -> None:
        called = asyncio.Event()

        async def hang() -> str:
            called.set()
            await forever()
            return ""

        talk = Talk(tmp_path, Chatty(hang, "Fine."))
        turn = asyncio.create_task(talk.say("Tell me a story."))
        await reached(called, turn)
        talk.abort(partial="Once upon")
        assert (await turn).status == "waiting"
        assert (await talk.say("Shorter.")).status == "waiting"
        assert talk.seen() == [("user", "Tell me a story."), ("assistant", "Once upon"), ("user", "Shorter.")]
        [aborted] = talk.bodies("phase_aborted")
        assert (aborted.ends, aborted.reason) == (False, "the turn was aborted: enough")
        await talk.check()

    asyncio.run(run())


def test_nothing_is_added_if_nothing_of_the_answer_had_arrived(tmp_path: Path):
    async def run() -> None:
        called = asyncio.Event()

        async def hang() -> str:
            called.set()
            await forever()
            return ""

        talk = Talk(tmp_path, Chatty(hang, "Fine."))
        turn = asyncio.create_task(talk.say("one"))
        await reached(called, turn)
        talk.abort("")
        await turn
        await talk.say("two")
        assert talk.seen() == [("user", "one"), ("user", "two")]
        await talk.check()

    asyncio.run(run())


def test_an_abort_between_two_tools_keeps_the_first_result_and_cancels_the_second(tmp_path: Path):
    async def run() -> None:
        executed: list[str] = []

        async def first() -> str:
            executed.append("first")
            talk.abort()
            return "done"

        async def second() -> str:
            executed.append("second")
            return "done, too"

        talk = Talk(tmp_path, Chatty(calls("first", "second"), "Fine."), first=first, second=second)
        assert (await talk.say("one")).status == "waiting"
        assert executed == ["first"]
        await talk.say("two")
        sent = list(talk.model.requests[-1].messages)[1:]
        assert [message.role for message in sent] == ["user", "assistant", "tool", "tool", "user"]
        assert [message.tool_call_id for message in sent[2:4]] == ["id-0", "id-1"]
        assert "done" in sent[2].text
        assert "cancelled" in sent[3].text
        assert [call.arguments for call in sent[1].tool_calls] == ["{}", "{}"]
        await talk.check()

    asyncio.run(run())


def test_an_abort_in_a_tool_cancels_it(tmp_path: Path):
    async def run() -> None:
        called = asyncio.Event()

        async def first() -> str:
            called.set()
            await forever()
            return "never"

        async def second() -> str:
            raise AssertionError("it must not run")

        talk = Talk(tmp_path, Chatty(calls("first", "second"), "Fine."), first=first, second=second)
        turn = asyncio.create_task(talk.say("one"))
        await reached(called, turn)
        talk.abort()
        assert (await turn).status == "waiting"
        await talk.say("two")
        assert [text for role, text in talk.seen() if role == "tool"] == [
            "The call was interrupted before it had a result. It may have taken effect: check before you repeat it.",
            "The call was cancelled before it had a result.",
        ]
        await talk.check()

    asyncio.run(run())


def test_a_conversation_that_does_not_go_on_ends_with_the_abort(tmp_path: Path):
    async def run() -> None:
        async def first() -> str:
            talk.abort("stop")
            return "done"

        talk = Talk(tmp_path, Chatty(calls("first", "first")), ends=True, first=first)
        result = await talk.say("one")
        assert (result.status, result.reason) == ("aborted", "the turn was aborted: stop")
        with pytest.raises(RunNotResumable):
            talk.abort()
        await talk.check()

    asyncio.run(run())


def test_an_abort_without_a_turn_is_refused(tmp_path: Path):
    async def run() -> None:
        talk = Talk(tmp_path, Chatty("Hello.", "Fine."))
        await talk.say("one")
        talk.abort()
        assert (await talk.say("two")).status == "waiting"
        [refused] = talk.bodies("message_refused")
        assert (refused.type, refused.reason) == ("abort_turn", "no turn of a conversation is in progress")
        await talk.check()

    asyncio.run(run())


def test_a_second_abort_of_the_same_turn_is_refused(tmp_path: Path):
    async def run() -> None:
        async def first() -> str:
            talk.abort()
            talk.abort()
            return "done"

        talk = Talk(tmp_path, Chatty(calls("first"), "Fine."), first=first)
        assert (await talk.say("one")).status == "waiting"
        assert len(talk.bodies("turn_aborted")) == len(talk.bodies("message_refused")) == 1
        await talk.check()

    asyncio.run(run())


def test_after_an_error_of_the_provider_the_turn_can_be_aborted_and_keeps_the_message(tmp_path: Path):
    async def run() -> None:
        async def fail() -> str:
            raise ModelUnavailable("no answer")

        talk = Talk(tmp_path, Chatty(fail, "Fine."))
        assert (await talk.say("one")).status == "failed"
        talk.abort("the model failed")
        assert (await talk.rt.resume("k", retry=True)).status == "waiting"
        await talk.say("two")
        assert talk.seen() == [("user", "one"), ("user", "two")]
        await talk.check()

    asyncio.run(run())


def test_a_turn_is_aborted_while_a_tool_waits_for_approval(tmp_path: Path):
    async def run() -> None:
        talk = Talk(tmp_path, Chatty(calls("ask_user"), "Fine."))
        folder = tmp_path / "reyn" / "project" / "talk" / "phases" / "chat.md"
        folder.write_text(folder.read_text().replace("allowed_ops: []", "allowed_ops: [ask_user]"))
        talk.model._answers[0] = [ToolCall("x", "ask_user", '{"question": "Which one?"}')]
        result = await talk.say("one")
        assert result.question.message == "Which one?"
        talk.abort()
        result = await talk.rt.resume("k")
        assert result.status == "waiting"
        assert result.question.id.endswith(".message")
        await talk.say("two")
        assert [role for role, _ in talk.seen()] == ["user", "assistant", "tool", "user"]
        await talk.check()

    asyncio.run(run())


def test_the_recorded_frame_shows_the_aborted_turn(tmp_path: Path):
    async def run() -> None:
        async def first() -> str:
            talk.abort()
            return "done"

        talk = Talk(tmp_path, Chatty(calls("first", "first"), "Fine."), first=first)
        await talk.say("one")
        await talk.say("two")
        messages = talk.rt.runs.prompt_at("k")
        assert [role for role, _ in messages] == [
            "system", "user", "assistant", "tool", "tool", "user", "tools", "answer",
        ]  # fmt: skip

    asyncio.run(run())
