"""Answers of tests and of models in Python: helpers, texts, functions as models, scripts that start over or go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn import ModelAnswer, ModelRequest, OSRuntime, SyncRuntime, llm_chat, llm_function, tool
from reyn.errors import AdapterInvalid, CallStopped, FunctionInvalid, ScriptInvalid
from reyn.testing import MemoryJournal, ScriptedModel, act, finish, give_up, goto, reply
from tests.support import write_skill

FORMS = ("full", "short", "tools")


@dataclass
class Ticket:
    title: str
    urgent: bool


@tool(effect="pure", permission=None)
def look_up(item: str) -> str:
    """Look up an item."""
    return f"{item}: 3.10"


def call(root: Path, model: Any, returns: Any = str) -> Any:
    """Call a function with a tool and a return type on a model."""
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:

        def ask(question: str) -> Any:
            """Answer."""

        ask.__annotations__["return"] = returns
        return llm_function(runtime=rt, toolkit=[look_up])(ask)("How much?")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("returns", "answer", "value"),
    [
        (str, reply("3.10"), "3.10"),
        (str, finish("3.10"), "3.10"),
        (int, finish(3), 3),
        (list[int], finish([1, 2]), [1, 2]),
        (dict[str, int], finish({"a": 1}), {"a": 1}),
        (Ticket, finish(Ticket("Fails", urgent=True)), Ticket("Fails", urgent=True)),
        (Ticket, finish({"title": "Fails", "urgent": False}), Ticket("Fails", urgent=False)),
    ],
)
def test_helpers_answer_for_functions_in_every_form(tmp_path: Path, form: Any, returns: Any, answer: Any, value: Any):
    script = [act({"kind": "look_up", "item": "noodles"}), answer]
    assert call(tmp_path, ScriptedModel(script, answer_form=form), returns) == value


def test_an_answer_is_a_dict_in_the_shape_of_the_contract():
    assert finish({"a": 1}, type="note") == {
        "control": {
            "type": "finish",
            "decision": "finish",
            "next_phase": None,
            "confidence": 1,
            "reason": {"summary": "done"},
        },
        "artifact": {"type": "note", "data": {"a": 1}},
    }
    assert goto("send", {"a": 1})["control"]["next_phase"] == "send"
    assert act({"kind": "x"}) == {"control_ir": [{"kind": "x"}]}
    assert json.loads(json.dumps(give_up("no")))["control"]["type"] == "abort"


@pytest.mark.parametrize("form", FORMS)
def test_helpers_take_a_run_through_a_graph(tmp_path: Path, form: Any):
    write_skill(tmp_path, "pair", {"first": ["second"], "second": ["end", "first"]})
    script = [goto("second", {"text": "a"}), goto("first", "b"), goto("second", {"text": "c"}), finish("d")]
    with SyncRuntime.open(tmp_path, model=ScriptedModel(script, answer_form=form), journal=MemoryJournal()) as rt:
        result = rt.run("pair", {"text": "go"})
    assert (result.status, result.path) == ("finished", ("first", "second", "first", "second"))
    assert result.artifact is not None
    assert result.artifact["data"] == {"text": "d"}


def test_an_exit_that_does_not_exist_is_named_with_those_that_do(tmp_path: Path):
    write_skill(tmp_path, "pair", {"first": ["second"], "second": ["end"]})
    for answer, message in (
        (goto("secnd", "a"), "`goto('secnd', …)`: phase `first` has no such exit; it has goto 'second' with `note`"),
        (finish("a"), "`finish(…)`: phase `first` has no such exit"),
        (goto("second", "a", type="letter"), "has no such exit"),
    ):
        with SyncRuntime.open(tmp_path, model=ScriptedModel([answer]), journal=MemoryJournal()) as rt:
            result = rt.run("pair", {"text": "go"})
        assert (result.status, result.code) == ("failed", "RYN502")
        assert message in result.reason
    with pytest.raises(CallStopped, match="no exit that takes one text; it has finish with `result`"):
        call(tmp_path, ScriptedModel([reply("a")]), Ticket)
    with pytest.raises(CallStopped, match="is aborted: impossible"):
        call(tmp_path, ScriptedModel([give_up("impossible")]))


class Class:
    """A model of a user, who returns what is asked for."""

    name = "class"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def complete(self, request: ModelRequest) -> Any:
        return self.answer


def as_function(answer: Any) -> Callable[[ModelRequest], Any]:
    return lambda request: answer


def as_async_function(answer: Any) -> Callable[[ModelRequest], Any]:
    async def model(request: ModelRequest) -> Any:
        await asyncio.sleep(0)
        return answer

    return model


@pytest.mark.parametrize("make", [Class, as_function, as_async_function])
def test_a_model_in_python_may_return_text_or_an_answer(tmp_path: Path, make: Callable[[Any], Any]):
    assert call(tmp_path, make("Hello.")) == "Hello."
    assert call(tmp_path, make(finish(7)), int) == 7
    assert call(tmp_path, make(dict(finish({"value": 7}, type="result"))), int) == 7
    assert call(tmp_path, make(json.dumps(finish({"value": 7}, type="result"))), int) == 7
    assert call(tmp_path, make(ModelAnswer(json.dumps(finish({"value": "x"}, type="result"))))) == "x"
    with pytest.raises(CallStopped, match="not one JSON object"):
        call(tmp_path, make("seven"), int)
    with pytest.raises(CallStopped, match="must return a `ModelAnswer`, a text or a dict, not NoneType"):
        call(tmp_path, make(None))


@pytest.mark.parametrize("make", [Class, as_function, as_async_function])
def test_a_model_in_python_may_return_text_in_chats(tmp_path: Path, make: Callable[[Any], Any]):
    asyncio.run(chat_with(tmp_path, make("Hello.")))


async def chat_with(root: Path, model: Any) -> None:
    async with OSRuntime.open(root, model=model, journal=MemoryJournal()) as runtime:

        @llm_chat(runtime=runtime)
        async def talk(message: str) -> None:
            """Talk."""

        assert (await talk("hi")).text == "Hello."
        assert (await talk.options(key="a")("hi")).text == "Hello."
        async with runtime.chat() as chat:
            assert (await chat.say("hi")).text == "Hello."


@pytest.mark.parametrize("form", FORMS)
def test_a_reply_is_the_text_of_a_chat(tmp_path: Path, form: Any):
    asyncio.run(reply_twice(tmp_path, ScriptedModel([reply("One."), reply("Two.")], answer_form=form)))


async def reply_twice(root: Path, model: Any) -> None:
    async with OSRuntime.open(root, model=model, journal=MemoryJournal()) as runtime:

        @llm_chat(runtime=runtime)
        async def talk(message: str) -> None:
            """Talk."""

        assert [(await talk("hi")).text, (await talk("hi")).text] == ["One.", "One."]
        keyed = talk.options(key="a")
        assert [(await keyed("hi")).text, (await keyed("hi")).text] == ["One.", "Two."]


def test_a_new_run_starts_over_or_goes_on(tmp_path: Path):
    for starts_over, expected in ((True, ["one", "one"]), (False, ["one", "two"])):
        model = ScriptedModel([reply("one"), reply("two")], starts_over=starts_over)
        assert [call(tmp_path, model), call(tmp_path, model)] == expected
        assert ("starts over" if starts_over else "goes on") in repr(model)
    with pytest.raises(CallStopped, match="has 2 answers; call 3 needs another"):
        call(tmp_path, model)


JUNK = st.sampled_from(
    [None, 5, 1.5, True, b"x", "", " ", (), [], {}, object(), Class, {1: object()}, [None], {"kind": 1}]
)


@given(junk=JUNK)
def test_bad_input_is_an_error_that_says_what_to_do(junk: Any):
    for make in (
        lambda: finish(junk, type=junk),
        lambda: finish({}, reason=junk),
        lambda: finish({}, confidence=junk),
        lambda: finish({}, ops=junk),
        lambda: goto(junk, junk),
        lambda: reply(junk),
        lambda: give_up(junk),
        lambda: act(junk),
        lambda: ScriptedModel(junk),
        lambda: ScriptedModel([junk]),
    ):
        with suppress(ScriptInvalid):  # any other error fails the test
            make()


@pytest.mark.parametrize("junk", [5, b"x", object(), Class, [], {}])
def test_what_is_no_model_is_refused_where_it_is_passed(tmp_path: Path, junk: Any):
    with pytest.raises(AdapterInvalid, match="the model is"):
        OSRuntime.open(tmp_path, model=junk)
    with pytest.raises(FunctionInvalid, match="`llm_interface` is") as found:
        _decorate(junk)
    assert found.value.hint


def _decorate(model: Any) -> Any:
    @llm_function(llm_interface=model)
    def ask() -> str:
        """Answer."""
        raise NotImplementedError

    return ask
