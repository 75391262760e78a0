"""Messages to one key at the same time: each caller gets its own reply, and no message is stored that is refused."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import ChatStopped, ModelUnavailable, RunBusy
from reyn.functions import AbortSignal, LLMChat, llm_chat, tool
from reyn.models import ModelAnswer, ToolCall


class Clerk:
    """Answers each message with itself; pays first if the message says so, and fails if it says so."""

    takes_time = True
    answer_form = "tools"
    reads_images = False
    name = "clerk"

    def __init__(self) -> None:
        self.inside, self.go_on = asyncio.Event(), asyncio.Event()
        self.calls = 0

    async def complete(self, request: Any) -> ModelAnswer:
        self.calls += 1
        last = list(request.messages)[-1]
        said = [message.text for message in request.messages if message.role == "user"][-1]
        await asyncio.sleep(0)
        if said == "wait" and last.role == "user":
            self.inside.set()
            await self.go_on.wait()
        if said == "fail":
            raise ModelUnavailable("no answer")
        if said == "abort":
            return ModelAnswer(json.dumps({"reason": "no", "choice": "abort", "confidence": 1}))
        kind, _, value = said.partition(" ")
        if last.role == "user" and kind in ("pay", "nest"):
            return ModelAnswer("", tool_calls=(ToolCall(f"id-{self.calls}", kind, json.dumps({"value": value})),))
        return ModelAnswer(f"{said}!")


class Office:
    """Chats with one key, of several runtimes of one project."""

    def __init__(self, root: Path, runtimes: int = 1) -> None:
        self.model, self.paid = Clerk(), list[str]()
        self.nested: list[Any] = []
        self.runtimes = [OSRuntime.open(root, model=self.model) for _ in range(runtimes)]
        self.chats = [self._chat(runtime) for runtime in self.runtimes]

    def _chat(self, runtime: OSRuntime) -> LLMChat[Any]:
        @tool(effect="unsafe")
        async def pay(value: str) -> str:
            """Pay."""
            self.paid.append(value)
            return f"paid {value}"

        @tool(effect="unsafe")
        async def nest(value: str) -> str:
            """Say something with the key of the value."""
            try:
                self.nested.append((await desk.options(key=value)("inside")).text)
            except RunBusy as error:
                self.nested.append(error.code)
            return "said"

        @llm_chat(runtime=runtime, toolkit=[pay, nest], memory=False)
        async def desk(message: str) -> None:
            """You pay."""

        return desk.options(key="ada")

    def said(self, key: str = "ada") -> list[str]:
        run = self.chats[0].options(key=key).conversation
        return [message.text for message in self.runtimes[0].runs.transcript(run) if message.role == "user"]

    async def check(self) -> None:
        for row in self.runtimes[0].runs.all():
            await self.runtimes[0].runs.replay(row.run_id)


def in_office(root: Path, scenario: Any, runtimes: int = 1) -> None:
    async def execute() -> None:
        office = Office(root, runtimes)
        async with AsyncExitStack() as stack:
            for runtime in office.runtimes:
                await stack.enter_async_context(runtime)
            await scenario(office)
            await office.check()

    asyncio.run(execute())


def task(stream: Any) -> asyncio.Task[Any]:
    async def reply() -> Any:
        return await stream

    return asyncio.ensure_future(reply())


MESSAGES = {
    "different messages": ["a", "pay 5"],
    "the same message twice": ["pay 5", "pay 5"],
    "many": ["pay 1", "b", "pay 2", "c", "b", "pay 3"],
    "turns without a reply": ["fail", "pay 1", "abort", "pay 2", "fail", "c"],
}


@pytest.mark.parametrize("runtimes", [1, 2])
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("case", MESSAGES)
def test_messages_at_the_same_time_are_all_answered_once(tmp_path: Path, case: str, is_new: bool, runtimes: int):
    messages = MESSAGES[case]

    async def scenario(office: Office) -> None:
        if not is_new:
            await office.chats[0]("hi")
        chats = (office.chats[number % runtimes] for number in range(len(messages)))
        streams = [task(chat(message)) for chat, message in zip(chats, messages, strict=False)]
        found = await asyncio.gather(*streams, return_exceptions=True)
        for message, reply in zip(messages, found, strict=True):
            if message in ("fail", "abort"):
                assert isinstance(reply, ChatStopped), (message, reply)
                history = reply.history
            else:
                assert reply.text == f"{message}!"
                history = reply.history
            assert [one.text for one in history if one.role == "user"][-1] == message  # no later turn
        before = [] if is_new else ["hi"]
        paid = [message.removeprefix("pay ") for message in messages if message.startswith("pay")]
        if runtimes == 1:
            assert (office.said(), office.paid) == ([*before, *messages], paid)
        assert Counter(office.said()) == Counter([*before, *messages])
        assert Counter(office.paid) == Counter(paid)

    in_office(tmp_path, scenario, runtimes)


def test_a_caller_that_leaves_while_it_waits_has_sent_nothing(tmp_path: Path):
    async def scenario(office: Office) -> None:
        [chat] = office.chats
        first = task(chat("wait"))
        await office.model.inside.wait()
        second, third = task(chat("pay 5")), task(chat("b"))
        await asyncio.sleep(0)
        second.cancel()
        assert isinstance((await asyncio.gather(second, return_exceptions=True))[0], asyncio.CancelledError)
        assert not first.done()
        office.model.go_on.set()
        assert [(await first).text, (await third).text] == ["wait!", "b!"]
        assert (office.said(), office.paid) == (["wait", "b"], [])

    in_office(tmp_path, scenario)


def test_an_abort_ends_only_the_turn_of_its_call(tmp_path: Path):
    async def scenario(office: Office) -> None:
        [chat] = office.chats
        signal = AbortSignal()
        first = task(chat("wait"))
        await office.model.inside.wait()
        second = task(chat.options(abort=signal)("pay 5"))
        await asyncio.sleep(0)
        signal.abort("never mind")
        await asyncio.sleep(0)
        office.model.go_on.set()
        assert ((await first).status, (await second).status) == ("replied", "aborted")
        assert office.paid == []

    in_office(tmp_path, scenario)


def test_to_resume_waits_for_the_turn_in_progress_and_returns_its_reply(tmp_path: Path):
    async def scenario(office: Office) -> None:
        [chat] = office.chats
        first = task(chat("wait"))
        await office.model.inside.wait()
        again = task(chat.resume())
        await asyncio.sleep(0)
        office.model.go_on.set()
        assert (await first).text == (await again).text == "wait!"
        assert office.model.calls == 1

    in_office(tmp_path, scenario)


def test_calls_with_one_run_id_at_the_same_time_are_one_call(tmp_path: Path):
    async def scenario(office: Office) -> None:
        chat = office.chats[0].options(run_id="z")
        single = LLMChat(chat._definition, chat._options.__class__(run_id="z"))
        found = await asyncio.gather(*(task(single("pay 5")) for _ in range(3)))
        assert [reply.text for reply in found] == ["pay 5!"] * 3
        assert office.paid == ["5"]

    in_office(tmp_path, scenario)


def test_a_tool_does_not_wait_for_a_conversation_that_may_wait_for_the_tool(tmp_path: Path):
    """The message is refused before it is stored, sent directly or through a second conversation."""

    async def scenario(office: Office) -> None:
        [chat] = office.chats
        assert (await chat("nest ada")).text == "nest ada!"
        assert (office.nested, office.said()) == ([RunBusy.code], ["nest ada"])
        assert (await chat("nest bob")).text == "nest bob!"
        assert (office.nested[1:], office.said("bob")) == (["inside!"], ["inside"])

    in_office(tmp_path, scenario)


PROGRAM = """
import asyncio, sys
sys.path.insert(0, sys.argv[3])
from reyn import OSRuntime, llm_chat
from tests.functions.test_turns import Clerk

async def main(name, count):
    async with OSRuntime.open(".", model=Clerk()) as runtime:
        @llm_chat(runtime=runtime)
        async def desk(message: str):
            "You talk."
        chat = desk.options(key="ada")
        for number in range(count):
            print((await chat(f"{name}-{number}")).text, flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def test_processes_that_talk_with_one_key_take_turns(tmp_path: Path):
    count, root = 4, str(Path(__file__).parents[2])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, name, str(count), root], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        for name in ("x", "y")
    ]
    replies = [process.communicate(timeout=120)[0].split() for process in processes]
    assert replies == [[f"{name}-{number}!" for number in range(count)] for name in ("x", "y")]

    async def check() -> None:
        async with OSRuntime.open(tmp_path) as runtime:
            [row] = runtime.runs.all()
            said = [message.text for message in runtime.runs.transcript(row.run_id) if message.role == "user"]
            assert Counter(said) == Counter(f"{name}-{number}" for name in ("x", "y") for number in range(count))
            await runtime.runs.replay(row.run_id)

    asyncio.run(check())
