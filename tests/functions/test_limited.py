"""A turn that a limit stops: nothing is lost, the error says how to go on, and that works, for every limit."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from reyn import OSRuntime
from reyn.errors import ChatStopped, LimitUnknown, OpMissing
from reyn.functions import llm_chat, tool
from reyn.journal.kinds import Usage
from reyn.models import ModelAnswer
from reyn.runtime import function_tools
from reyn.testing import MemoryJournal, SteppingClock
from tests.functions.test_chat import Chatty, calls


class Limit(NamedTuple):
    """A limit that stops a turn.

    Attributes:
        settings: The settings of the project.
        enough: A value that lets the turn end.
        is_of_turn: Whether the next turn is within the limit.
        tool: The tool that leads to it.
        output: The output tokens of each model call.
    """

    settings: dict[str, Any]
    enough: int
    is_of_turn: bool = False
    tool: str = "weigh"
    output: int = 100


LIMITS = {
    "tokens": Limit({"limits": {"tokens": 1_000}}, 90_000),
    "run_seconds": Limit({"limits": {"run_seconds": 50}}, 9_000),
    "run_tokens": Limit({"budgets": {"run": {"tokens": 2_600}}}, 900_000, output=500),
    "skill_tokens": Limit({"budgets": {"skill": {"scale": {"run": {"tokens": 2_600}}}}}, 900_000, output=500),
    "day_tokens": Limit({"budgets": {"day": {"tokens": 2_600}}}, 900_000, output=500),
    "phase_seconds": Limit({"limits": {"phase_seconds": 50}}, 9_000, is_of_turn=True),
    "no_progress": Limit({}, 50, is_of_turn=True, tool="jam"),
    "max_act_turns": Limit({"limits": {"on_limit": "stop"}, "max_act_turns": 2}, 50, is_of_turn=True),
    "overrun": Limit({"budgets": {"run": {"tokens": 900_000}}}, 90_000, is_of_turn=True, output=5_000),
}
FORMS = ["tools", "short", "full"]


class Scale:
    """A chat whose tools take time and tokens."""

    def __init__(self, folder: Path, form: str, limit: Limit) -> None:
        self.weighed: list[int] = []
        self.form, self.limit = form, limit
        self.clock = SteppingClock()
        self.model = Metered(limit.output, *[self.act(number) for number in range(3)])
        self.model.answer_form = form
        self.runtime = OSRuntime.open(
            folder, model=self.model, journal=MemoryJournal(), clock=self.clock, **limit.settings
        )

        @tool(effect="unsafe")
        def weigh(crate: int) -> str:
            """Weigh a crate."""
            self.clock.advance(30)
            self.weighed.append(crate)
            return f"crate {crate} weighs 5"

        @tool(effect="unsafe")
        def jam(crate: int) -> str:
            """Jam the scale."""
            self.weighed.append(crate)
            raise ValueError(f"crate {crate} weighs nothing")

        @llm_chat(runtime=self.runtime, toolkit=[weigh, jam])
        async def scale(message: str, history: list[Any] | None = None) -> None:
            """You weigh crates."""

        self.chat = scale

    def act(self, number: int) -> Any:
        args = {"crate": 0 if self.limit.tool == "jam" else number}
        if self.form == "tools":
            return calls((self.limit.tool, json.dumps(args)))
        return json.dumps({"control_ir": [{"kind": self.limit.tool, **args}]})

    def reply(self, text: str, *, key: str | None) -> str:
        if self.form == "tools":
            return text
        kind, decision, phase = ("transition", "continue", "scale") if key else ("finish", "finish", None)
        control = {"type": kind, "decision": decision, "next_phase": phase, "confidence": 1}
        return json.dumps(
            {"control": control | {"reason": {"summary": ""}}, "artifact": {"type": "reply", "data": {"text": text}}}
        )

    def answer(self, *answers: str, key: str | None) -> None:
        """From here on, the model replies with these texts."""
        asked = len(self.model.requests)
        self.model.answers = [*self.model.answers[:asked], *[self.reply(text, key=key) for text in answers]]

    def seen(self) -> str:
        return "\n".join(message.text for message in self.model.requests[-1].messages)


class Metered(Chatty):
    """A model that reports its usage."""

    def __init__(self, output: int, *answers: Any) -> None:
        super().__init__(*answers)
        self._output = output

    async def complete(self, request: Any) -> ModelAnswer:
        return replace(await super().complete(request), usage=Usage(300, self._output))


def done(scale: Scale, history: Any) -> bool:
    """Whether a history has every call that was executed."""
    told = "\n".join(message.text for message in history if message.role != "assistant")
    return told.count("weighs") == len(scale.weighed)


async def stop(scale: Scale, chat: Any, text: str) -> ChatStopped:
    with pytest.raises(ChatStopped) as stopped:
        await chat(text)
    error = stopped.value
    assert error.status == "limited"
    assert text in [message.text for message in error.history if message.role == "user"]
    assert done(scale, error.history)
    return error


def in_chat(
    folder: Path, scenario: Callable[[Scale, Any], Awaitable[None]], name: str = "tokens", form: str = "tools"
) -> None:
    """Execute a scenario with a chat under a limit."""

    async def execute() -> None:
        scale = Scale(folder, form, LIMITS[name])
        async with scale.runtime:
            await scenario(scale, scale.chat.options(key="ada"))

    asyncio.run(execute())


@pytest.mark.parametrize("key", [None, "ada"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LIMITS)
def test_the_turn_goes_on_when_the_limit_is_raised(tmp_path: Path, name: str, form: str, key: str | None):
    async def scenario(scale: Scale, keyed: Any) -> None:
        limit = LIMITS[name]
        chat = keyed if key else scale.chat
        error = await stop(scale, chat, "weigh all")
        again = chat if key else scale.chat.options(run_id=error.run_id)
        with pytest.raises(ChatStopped) as stopped:
            await again.resume()
        assert stopped.value.hint == error.hint
        assert f'resume(raise_limits={{"{name}": ' in error.hint
        scale.answer("All weighed.", "You are welcome.", key=key)
        reply = await again.resume(raise_limits={name: limit.enough})
        assert (reply.text, done(scale, reply.history)) == ("All weighed.", True)
        assert scale.seen().count("weighs") == len(scale.weighed)
        await scale.runtime.runs.replay(reply.run_id)
        if key:  # a call without a key is a run with limits of its own
            reply = await chat("thanks")
            assert (reply.text, done(scale, reply.history)) == ("You are welcome.", True)

    in_chat(tmp_path, scenario, name, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LIMITS)
def test_the_next_message_ends_the_turn(tmp_path: Path, name: str, form: str):
    async def scenario(scale: Scale, chat: Any) -> None:
        limit = LIMITS[name]
        await stop(scale, chat, "weigh all")
        scale.model._output = 100
        scale.answer("I stopped.", key="ada")
        if not limit.is_of_turn:
            await stop(scale, chat, "first")
            error = await stop(scale, chat, "second")
            assert [message.text for message in error.history][-2:] == ["first", "second"]
            reply = await chat.resume(raise_limits={name: limit.enough})
        else:
            reply = await chat("second")
        assert (reply.text, done(scale, reply.history)) == ("I stopped.", True)
        assert "second" in scale.seen()
        assert scale.seen().count("weighs") == len(scale.weighed)
        await scale.runtime.runs.replay(reply.run_id)

    in_chat(tmp_path, scenario, name, form)


def test_the_value_in_the_hint_is_enough(tmp_path: Path):
    async def scenario(scale: Scale, chat: Any) -> None:
        error = await stop(scale, chat, "weigh all")
        scale.answer("All weighed.", "Yes.", key="ada")
        [value] = {int(found) for found in re.findall(r'"tokens": (\d+)', error.hint)}
        # The tools come from the decorator alone.
        result = await scale.runtime.resume(error.run_id, raise_limits={"tokens": value})
        assert result.reason == "All weighed."
        assert (await chat("sure?")).text == "Yes."

    in_chat(tmp_path, scenario)


def test_a_limit_can_be_raised_between_two_turns(tmp_path: Path):
    async def scenario(scale: Scale, chat: Any) -> None:
        scale.answer("Hello.", "Yes.", "Still here.", key="ada")
        await chat("hi")
        assert (await chat.resume(raise_limits={"tokens": 1_100})).text == "Hello."
        with pytest.raises(LimitUnknown):
            await chat.resume(raise_limits={"tokens": 1_000})
        assert scale.runtime.runs.state(str(chat.conversation)).raised == {"tokens": 1_100}
        await chat("sure?")
        assert (await chat("there?")).text == "Still here."

    in_chat(tmp_path, scenario)


def test_a_message_at_a_limit_that_is_used_up_is_part_of_the_history(tmp_path: Path):
    async def scenario(scale: Scale, chat: Any) -> None:
        scale.answer("One.", "Two.", "Three.", "Four.", key="ada")
        for text in ("a", "b", "c"):
            await chat(text)
        error = await stop(scale, chat, "d")
        assert [message.text for message in error.history] == ["a", "One.", "b", "Two.", "c", "Three.", "d"]
        assert scale.runtime.runs.transcript(error.run_id) == error.history
        assert (await chat.resume(raise_limits={"tokens": 9_000})).text == "Four."

    in_chat(tmp_path, scenario)


def test_a_run_of_a_function_that_the_process_does_not_have_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def scenario(scale: Scale, chat: Any) -> None:
        error = await stop(scale, chat, "weigh all")
        monkeypatch.setattr(function_tools, "_functions", {})
        with pytest.raises(OpMissing) as missing:
            await scale.runtime.resume(error.run_id, raise_limits={"tokens": 9_000})
        assert "Scale.__init__.<locals>.scale`" in missing.value.hint
        assert "ops=[" in missing.value.hint
        assert not scale.runtime.runs.state(error.run_id).raised
        assert not scale.runtime.services.journal.drain(error.run_id, 0)

    in_chat(tmp_path, scenario)


def test_a_fork_of_an_imported_run_gets_no_tools_by_the_name_of_a_function(tmp_path: Path):
    async def scenario() -> None:
        scale = Scale(tmp_path, "tools", LIMITS["tokens"])
        async with scale.runtime as runtime:
            error = await stop(scale, scale.chat.options(key="ada"), "weigh all")
            archive = list(runtime.runs.export(error.run_id))
        async with OSRuntime.open(tmp_path, model=Chatty(), journal=MemoryJournal()) as other:
            other.runs.import_(archive)
            tools = scale.chat._definition.decoration.toolkit
            forked = await other.derive(ops=tools).fork(error.run_id, run_id="fork")
            assert (forked.status, other.runs.state("fork").started.imported) == ("failed", True)
            with pytest.raises(OpMissing):
                await other.resume("fork", retry=True)

    asyncio.run(scenario())
