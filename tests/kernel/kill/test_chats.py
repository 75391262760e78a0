"""Chats that are killed at any point: nothing that was said or done is lost, and no unsafe tool runs twice."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.context import NormalizedMessageList
from reyn.errors import ChatStopped, ForkImpossible, RunIdTaken, RunNotFound
from reyn.functions import llm_chat, tool
from reyn.journal.sqlite import SqliteJournal
from reyn.kernel.world.inbox import InboxPolling
from reyn.models import ModelAnswer, ToolCall
from reyn.testing.crash import KILLED, Failpoints, in_child
from tests.kernel.kill.scenario import kill_points

PAY = (ToolCall("a", "pay", '{"amount": 5}'),)
STEP = 23
Answers = Callable[[list[str], list[str]], "str | tuple[ToolCall, ...]"]
"""The answer of a model to the texts of a user and the results of tools."""


class Teller:
    """Answers by what it sees, so that a call that is repeated gets the same answer. Writes its calls to a file."""

    name = "teller"
    takes_time = True
    answer_form = "tools"

    def __init__(self, answers: Answers, calls: Path) -> None:
        self._answers, self._calls = answers, calls

    async def complete(self, request: Any) -> ModelAnswer:
        with self._calls.open("a") as file:
            file.write(f"{request.run_id} {request.call}\n")
        said, results = ([one.text for one in request.messages if one.role == role] for role in ("user", "tool"))
        answer = self._answers(said, results)
        return ModelAnswer(answer) if isinstance(answer, str) else ModelAnswer("", tool_calls=answer)


class Bank:
    """A chat with a tool that must not be repeated. `paid` has a line for each payment, from all processes."""

    def __init__(self, folder: Path, answers: Answers) -> None:
        self.root, self.calls, self._paid, self._answers = (
            folder / "project",
            folder / "calls",
            folder / "paid",
            answers,
        )

    def reset(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        self.calls.write_text("")
        self._paid.write_text("")

    @property
    def payments(self) -> int:
        return len(self._paid.read_text().splitlines())

    @asynccontextmanager
    async def open(self, points: Failpoints) -> AsyncIterator[tuple[Any, OSRuntime]]:
        """Open the project; return the conversation of a key, and the runtime."""
        model = points.wrap(Teller(self._answers, self.calls), "model")
        journal = points.wrap(SqliteJournal(self.root / ".reyn"), "journal")
        runtime = OSRuntime.open(self.root, journal=journal, model=model)
        runtime.services.polling = InboxPolling(seconds=0, busy_seconds=3600)  # the same points every time

        @tool(effect="unsafe")
        def pay(amount: int) -> str:
            """Pay an amount."""
            points.reach("pay before")
            with self._paid.open("a") as file:
                file.write(f"{amount}\n")
            points.reach("pay after")
            return f"paid {amount}"

        @llm_chat(runtime=runtime, toolkit=[pay], max_tokens=1_000)
        async def chat(message: str) -> None:
            """You pay bills."""

        async with runtime:
            yield chat.options(key="ada"), runtime

    async def settle(self, chat: Any, runtime: OSRuntime) -> list[str]:
        """Continue what was interrupted, decide about a payment whose outcome is unknown; return what was said."""
        if runtime.services.journal.find(chat.conversation) is None:
            return []
        while True:
            try:
                return said_in((await chat.resume()).history)
            except ChatStopped as stopped:
                question = runtime.runs.result(stopped.run_id).question
                if question is None or question.is_message:
                    return said_in(stopped.history)
                assert question.reason == "unsafe"
                runtime.answer(stopped.run_id, question.id, "done" if self.payments else "again")

    async def talk(self, points: Failpoints, *texts: str) -> NormalizedMessageList:
        """Say what was not said yet; return the conversation."""
        async with self.open(points) as (chat, runtime):
            said = await self.settle(chat, runtime)
            history = NormalizedMessageList()
            for text in texts[len(said) :] or [None]:
                try:
                    history = (await (chat(text) if text else chat.resume())).history
                except ChatStopped as stopped:
                    history = stopped.history
            return history

    async def check(self, kills: int) -> None:
        """Check that all runs verify and replay, and that a kill repeated at most the call that it interrupted."""
        async with self.open(Failpoints()) as (_, runtime):
            for row in runtime.runs.all():
                runtime.runs.verify(row.run_id)
                await runtime.runs.replay(row.run_id)
        repeated = sum(count - 1 for count in Counter(self.calls.read_text().splitlines()).values())
        assert repeated <= kills

    def kill_everywhere(self, work: Callable[[Failpoints], Awaitable[Any]]) -> Iterator[str]:
        """Do the work in a process that is killed at one point, then yield the point; go on with the next one."""
        self.reset()
        points = Failpoints()
        asyncio.run(work(points))
        names = points.reached
        always = {number + more for number, name in enumerate(names) if name.startswith("pay") for more in (1, 2, 3)}
        for number in sorted(always.union(kill_points(names, STEP))):
            self.reset()
            code = in_child(lambda number=number: asyncio.run(work(Failpoints(number))))
            assert code == KILLED, names[number - 1]
            yield f"{number} {names[number - 1]}"


def said_in(history: NormalizedMessageList) -> list[str]:
    return [message.text for message in history if message.role == "user"]


def never_usable(said: list[str], results: list[str]) -> str | tuple[ToolCall, ...]:
    """Pay, then answer nothing that can be used until the user asks again."""
    if "done?" in said:
        return "It is paid."
    return "" if results else PAY


@pytest.mark.parametrize("goes_on", [False, True], ids=["resumed", "next message"])
def test_a_turn_without_a_usable_answer_keeps_what_was_done(arena: Path, goes_on: bool):
    bank = Bank(arena, never_usable)
    unknown = 0
    for point in bank.kill_everywhere(lambda points: bank.talk(points, "pay 5", "done?")):
        history = asyncio.run(next_message(bank) if goes_on else bank.talk(Failpoints(), "pay 5", "done?"))
        said, results = said_in(history), [message.text for message in history if message.role == "tool"]
        assert (said[0], said[-1], history[-1].text) == ("pay 5", "done?", "It is paid."), point
        assert bank.payments <= 1, point
        told = [text for text in results if "paid 5" in text or "taken effect" in text or "took effect" in text]
        assert len(told) >= bank.payments, point
        unknown += any("paid 5" not in text for text in told)
        if not goes_on:
            assert [message.role for message in history] == ["user", "assistant", "tool", "user", "assistant"], point
            assert bank.payments == 1, point
        asyncio.run(bank.check(kills=1))
    assert unknown


async def next_message(bank: Bank) -> NormalizedMessageList:
    """Say the next message after a kill, without a look at the turn that was interrupted."""
    async with bank.open(Failpoints()) as (chat, runtime):
        if runtime.services.journal.find(chat.conversation) is None:
            with pytest.raises(ChatStopped):
                await chat("pay 5")
        return (await chat("done?")).history


def obedient(said: list[str], results: list[str]) -> str | tuple[ToolCall, ...]:
    """Pay when the user says so."""
    if said[-1] == "and?":
        return "In the copy."
    if said[-1] == "pay 5":
        return "Paid." if results else PAY
    return "Hello."


def test_a_copy_of_a_killed_chat_executes_nothing(arena: Path):
    bank = Bank(arena, obedient)
    for point in bank.kill_everywhere(lambda points: bank.talk(points, "hi", "pay 5")):
        asyncio.run(copy_after_kill(bank, point))
        asyncio.run(bank.talk(Failpoints(), "hi", "pay 5"))
        assert bank.payments == 1, point
        asyncio.run(bank.check(kills=1))


async def copy_after_kill(bank: Bank, point: str) -> None:
    async with bank.open(Failpoints()) as (chat, runtime):
        run, before = chat.conversation, (bank.calls.read_text(), bank.payments)
        events = list(runtime.runs.events(run)) if runtime.runs.is_recorded(run) else []
        try:
            copy = await chat.fork("copy")
        except (RunNotFound, ForkImpossible):
            assert not [event for event in events if event.kind == "phase_completed"], point
            return
        assert (bank.calls.read_text(), bank.payments) == before, point
        assert list(runtime.runs.events(run)) == events, point
        history = (await copy("and?")).history
        assert said_in(history) in (["hi", "and?"], ["hi", "pay 5", "and?"]), point
        assert bank.payments == before[1], point


def test_a_killed_copy_is_complete_or_does_not_exist(arena: Path):
    bank = Bank(arena, obedient)

    async def make(points: Failpoints) -> None:
        await bank.talk(Failpoints(), "hi")
        async with bank.open(Failpoints()) as (chat, runtime):
            runtime.conversations.remember(chat.conversation, "The user is polite.")
        async with bank.open(points) as (chat, _):
            await chat.fork("copy")

    async def again() -> tuple[str, ...]:
        async with bank.open(Failpoints()) as (chat, runtime):
            try:
                copy = await chat.fork("copy")
            except RunIdTaken:
                copy = chat.options(key="copy")
            assert said_in((await copy("and?")).history) == ["hi", "and?"]
            return tuple(one.text for one in runtime.runs.memory(copy.conversation))

    for point in bank.kill_everywhere(make):
        assert asyncio.run(again()) == ("The user is polite.",), point


def never_summarised(said: list[str], results: list[str]) -> str:
    """Answer at length, and never with a summary."""
    if any("Summarise the conversation" in text for text in said):
        return "I would rather not."
    return {"one": "x" * 3_000, "two": "y" * 3_000}.get(said[-1], "Fine.")


def test_a_failed_compaction_blocks_nothing(arena: Path):
    bank = Bank(arena, never_summarised)
    for point in bank.kill_everywhere(lambda points: bank.talk(points, "one", "two", "three")):
        history = asyncio.run(bank.talk(Failpoints(), "one", "two", "three"))
        assert [message.text for message in history][-2:] == ["three", "Fine."], point
        assert asyncio.run(failed_compactions(bank)) == 1, point
        asyncio.run(bank.check(kills=1))


async def failed_compactions(bank: Bank) -> int:
    async with bank.open(Failpoints()) as (chat, runtime):
        events = runtime.runs.events(chat.conversation)
        return len([event for event in events if event.kind == "context_compacted" and event.data.get("error")])
