"""Conversations that begin with a history, that have a name, and calls with bad input or options of other libraries."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, llm_chat, llm_function, tool
from reyn.errors import ArgumentsInvalid, CallImpossible, FunctionInvalid, MessageInvalid, ReynError
from reyn.functions import Image, LLMChat, Message, OpenAICompatible, Tool
from reyn.functions.chat_calls import ChatDecoration
from reyn.functions.definition import Decoration
from reyn.functions.option_names import INSTEAD
from reyn.testing import MemoryJournal, ScriptedModel, act, reply

SEED: list[Any] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "I am Ada.", "name": "ada"},
    {"role": "assistant", "content": "Hello.", "annotations": [{"type": "note"}]},
]


class Echo:
    """Replies with the number of messages of the user that it sees, and keeps the last request."""

    name = "echo"
    last: Any = None

    async def complete(self, request: Any) -> str:
        self.last = request
        return f"{sum(message.role == 'user' for message in request.messages)} messages"


def chat_of(runtime: Any, **options: Any) -> LLMChat[Any]:
    @llm_chat(runtime=runtime, **options)
    async def talk(message: Any, history: Any = None) -> None:
        """Talk."""

    return talk


def run(root: Path, scenario: Callable[[OSRuntime, Echo], Any]) -> None:
    async def main() -> None:
        model = Echo()
        async with OSRuntime.open(root, model=model) as runtime:
            await scenario(runtime, model)

    asyncio.run(main())


def test_a_conversation_with_a_key_can_begin_with_a_history(tmp_path: Path):
    async def scenario(runtime: OSRuntime, model: Echo) -> None:
        talk = chat_of(runtime).options(key="a")
        first = await talk("Who am I?", SEED)
        assert [message.text for message in first.history] == [
            "Be brief.", "I am Ada.", "Hello.", "Who am I?", "2 messages"
        ]  # fmt: skip
        assert [(message.name, message.annotations) for message in first.history][1:3] == [
            ("ada", ()),
            ("", ({"type": "note"},)),
        ]
        assert (model.last.messages[0].text, model.last.messages[1].name) != ("", "")
        second = await talk("And now?")
        assert second.text == "3 messages"
        assert (await talk("And then?", SEED)).text == "4 messages"  # the same seed may be passed each time
        with pytest.raises(CallImpossible, match="has a history of its own"):
            await talk("x", [*SEED[:2], {"role": "assistant", "content": "Other."}])
        assert (await talk("Still there?")).text == "5 messages"
        assert (await chat_of(runtime).options(key="b")("x")).text == "1 messages"

    run(tmp_path, scenario)


def test_a_stored_history_begins_another_conversation(tmp_path: Path):
    async def scenario(runtime: OSRuntime, model: Echo) -> None:
        talk = chat_of(runtime)
        first = await talk("hello", [Message("user", "look", (Image("image/png", "aGk="),)), *SEED[2:]])
        stored = json.dumps(first.history.to_dicts())
        seeded = await talk.options(key="a")("again", json.loads(stored))
        assert seeded.history.to_dicts()[: len(first.history)] == json.loads(stored)
        assert model.last.messages[1].role == "user"

    class Seeing(Echo):
        reads_images = True

    async def main() -> None:
        model = Seeing()
        async with OSRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as runtime:
            await scenario(runtime, model)

    asyncio.run(main())


MODULE = '''
from reyn import llm_chat, tool


@tool(permission="tool")
def look_up() -> str:
    """Look."""
    return "seen"


@llm_chat(toolkit=[look_up]{name})
async def {function}(message: str):
    """Talk."""
'''


@pytest.mark.parametrize("has_name", [True, False])
def test_a_conversation_with_a_name_goes_on_in_another_module(tmp_path: Path, monkeypatch: Any, has_name: bool):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    places = (("seeded_one", "talk"), ("seeded_two", "answer"))
    for module, function in places:
        text = MODULE.format(function=function, name=', name="support"' if has_name else "")
        (tmp_path / f"{module}.py").write_text(text)
    looks = [act({"kind": "look_up"}), reply("One."), act({"kind": "look_up"}), reply("Two.")]

    async def say(module: str, function: str) -> Any:
        async with OSRuntime.open(tmp_path, model=ScriptedModel(looks, answer_form="tools"), trust=True) as runtime:
            from reyn.functions import use_runtime

            with use_runtime(runtime):
                talk = getattr(__import__(module), function).options(key="ada")
                found = await talk("hi")
                events = runtime.runs.events(found.run_id)
                assert "permission_denied" not in {event.kind for event in events}
                return found

    first, second = (asyncio.run(say(*place)) for place in places)
    for module, _ in places:
        del sys.modules[module]
    if has_name:
        assert (first.run_id, first.text, second.text) == (second.run_id, "One.", "Two.")
        assert first.run_id.startswith("support-")
        assert len(second.history) == 8
    else:
        assert first.run_id != second.run_id


@pytest.mark.parametrize("name", [5, "", " ", "a b", "end", "\ud800", "x" * 100])
def test_a_name_that_is_none_is_refused(name: Any):
    with pytest.raises(FunctionInvalid, match="`name` is"):
        chat_of(None, name=name)


def test_dicts_are_messages_wherever_messages_are(tmp_path: Path):
    said = {"role": "user", "name": "ada", "content": [{"type": "text", "text": "hi"}]}

    async def scenario(runtime: OSRuntime, model: Echo) -> None:
        talk = chat_of(runtime)
        assert (await talk(said)).history[0].text == "hi"
        assert (await talk.options(key="a")(said)).text == "1 messages"
        async with runtime.chat() as chat:
            assert (await chat.say(said)).text
            async for _ in chat.stream(said):
                pass
            chat.post(said)

    run(tmp_path, scenario)


def bad_messages() -> Iterator[Any]:
    yield from (None, 5, b"x", object(), [], {}, ("x",), {"role": "user"}, {"role": "user", "content": 5})
    yield from ({"role": "assistant", "content": "x"}, Message("assistant", "x"), {1: 2}, [SEED[1]])
    for text in (None, 5, b"x", []):
        yield Message("user", text)  # type: ignore[arg-type]  # bad input
        yield {"role": "user", "content": [{"type": "text", "text": text}]}
    for image in (None, 5, "x", {}):
        yield Message("user", "x", (image,))  # type: ignore[arg-type]  # bad input


def test_bad_messages_and_histories_are_errors_with_a_hint_everywhere(tmp_path: Path):
    async def scenario(runtime: OSRuntime, model: Echo) -> None:
        talk = chat_of(runtime)
        llm = OpenAICompatible("m", base_url="http://127.0.0.1:1/v1", api_key="sk-0123456789")
        async with runtime.chat() as chat:
            for bad in bad_messages():
                is_message = isinstance(bad, Message | dict)
                for attempt in (
                    lambda: talk(bad),  # noqa: B023 - called in the loop
                    lambda: talk.options(key="a")(bad),  # noqa: B023
                    lambda: talk("hi", bad if not is_message else [bad, 5]),  # noqa: B023
                    lambda: chat.say(bad),  # noqa: B023
                    lambda: chat.stream(bad) if bad is not None else None,  # noqa: B023
                    lambda: llm.chat(bad if not is_message else [bad, 5]),  # noqa: B023
                ):
                    try:
                        found = attempt()
                        if hasattr(found, "__aiter__") and bad is not None:
                            async for _ in found:
                                pass
                        elif found is not None:
                            await found
                    except ReynError as error:
                        assert error.hint  # noqa: PT017 - any other error fails the test
        await llm.aclose()

    run(tmp_path, scenario)


@llm_function
def count(text: str) -> int:
    """Count."""
    raise NotImplementedError


DECORATORS = {
    llm_function: {one.name for one in fields(Decoration)},
    llm_chat: {one.name for one in fields(ChatDecoration)},
    tool: set(signature(Tool).parameters),
}
"""The options of each decorator."""


@pytest.mark.parametrize("name", [*INSTEAD, "max_act_turn", "whatever"])
def test_options_of_other_libraries_name_what_to_use(name: str):
    given: Any = {name: 1}
    for use, known in DECORATORS.items():
        if name not in known:
            with pytest.raises(FunctionInvalid, match=f"no option `{name}`") as found:
                use(**given)
            assert found.value.hint
    talk = chat_of(None)
    calls: list[Any] = [lambda: count("x", **given), *([lambda: talk("x", **given)] if name != "history" else [])]
    for call in calls:
        with pytest.raises(ArgumentsInvalid) as wrong:
            call()
        assert wrong.value.hint
        assert isinstance(wrong.value, TypeError)
    for options in (talk.options, count.options):
        if name not in signature(options).parameters:
            with pytest.raises(FunctionInvalid, match=f"no option `{name}`"):
                options(**given)


@pytest.mark.parametrize("name", ["api_key_pool", "max_retries", "retry_delay", "stream", "top_p"])
def test_arguments_of_other_interfaces_name_what_to_use(name: str):
    with pytest.raises(FunctionInvalid, match=f"`OpenAICompatible` has no option `{name}`") as found:
        OpenAICompatible("m", **{name: 1})
    assert found.value.hint


def test_a_message_that_is_no_message_says_so():
    with pytest.raises(MessageInvalid, match="the message is a int"):
        chat_of(None)(5)
