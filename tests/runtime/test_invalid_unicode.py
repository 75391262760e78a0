"""A text that is not valid Unicode is refused where a program passes it, with a code; nothing of it is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from reyn import OSRuntime, SyncRuntime, llm_chat, llm_function, tool
from reyn.context import (
    AssistantMessage,
    AssistantTruncated,
    ContextReplace,
    ContextSummary,
    ExperienceForget,
    ExperienceRemember,
    ToolCancelled,
    ToolResult,
    UserMessage,
)
from reyn.errors import ReynError
from reyn.functions import AbortSignal, Image, Message
from reyn.journal import MemoryJournal
from reyn.journal.kinds import Part
from reyn.models.messages import ToolCall
from tests.functions.support import Answers, value
from tests.functions.test_chat import Chatty
from tests.support import write_skill

BAD = "x\ud800y"


@dataclass
class Order:
    what: str
    notes: dict[str, Any]


def function(rt: SyncRuntime, doc: str = "Do {it}.", returns: Any = int, **options: Any) -> Any:
    def f(order: Order, names: list[str]) -> Any: ...

    f.__doc__, f.__annotations__["return"] = doc, returns
    return llm_function(runtime=rt, **options)(f)


ORDER = Order("a", {})
FUNCTIONS: dict[str, Callable[[SyncRuntime], Any]] = {
    "docstring": lambda rt: function(rt, BAD)(ORDER, []),
    "template value": lambda rt: function(rt, template_params=["it"]).options(template_params={"it": BAD})(ORDER, []),
    "template default": lambda rt: function(rt, template_params={"it": BAD})(ORDER, []),
    "return type": lambda rt: function(rt, returns=Literal["a", "\ud800"])(ORDER, []),
    "advice": lambda rt: function(rt, toolkit=[tool(effect="pure", best_practices=[BAD])(look)])(ORDER, []),
    "argument": lambda rt: function(rt)(Order(BAD, {}), []),
    "key of an argument": lambda rt: function(rt)(Order("a", {BAD: 1}), []),
    "part of an argument": lambda rt: function(rt)(Order("a", {"a": [{"b": BAD}]}), []),
    "list": lambda rt: function(rt)(ORDER, ["a", BAD]),
    "run id": lambda rt: function(rt).options(run_id=BAD)(ORDER, []),
    "model": lambda rt: function(rt, llm_interface=BAD)(ORDER, []),
}


def look(at: str) -> str:
    """Look."""
    return at


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_refuses_it(tmp_path: Path, name: str):
    with SyncRuntime.open(tmp_path, model=Answers(value(1)), journal=MemoryJournal(), trust=True) as rt:
        with pytest.raises(ReynError) as raised:
            FUNCTIONS[name](rt)
        check(raised.value)
        assert not list(rt.runs.all())


def check(error: ReynError) -> None:
    """Check that an error is no fault of Reyn, and that anything can print it."""
    assert error.code not in ("RYN900", "RYN000")
    f"{error} {error.hint}".encode()


CALL = (Message("user", "a"), Message("assistant", "", tool_calls=(ToolCall("c", "f", f'"{BAD}"'),)))
CHATS: dict[str, tuple[Any, dict[str, Any]]] = {
    "message": ((BAD,), {}),
    "message with a key": ((BAD,), {"key": "k"}),
    "key": (("a",), {"key": BAD}),
    "run id": (("a",), {"run_id": BAD}),
    "template": (("a",), {"template_params": {"it": BAD}}),
    "template with a key": (("a",), {"template_params": {"it": BAD}, "key": "k"}),
    "address of an image": ((Message("user", "a", (Image(url=f"http://x/{BAD}"),)),), {}),
    "type of an image": ((Message("user", "a", (Image(BAD, "aGk="),)),), {}),
    "history": (("a", [{"role": "user", "content": BAD}]), {}),
    "system message": (("a", [{"role": "system", "content": BAD}]), {}),
    "call": (("a", [*CALL, Message("tool", "b", tool_call_id="c")]), {}),
    "image of a history": (("a", [Message("user", "a", (Image(url=f"http://x/{BAD}"),))]), {}),
}
HOOKS: dict[str, Any] = {
    "user": UserMessage(BAD),
    "part": UserMessage((Part(text=BAD),)),
    "image": UserMessage("a", (Image(url=f"http://x/{BAD}"),)),
    "assistant": AssistantMessage(BAD),
    "truncated": AssistantTruncated("a", BAD),
    "summary": ContextSummary(BAD),
    "remember in a summary": ContextSummary("a", 0, (BAD,)),
    "remember": ExperienceRemember(BAD),
    "forget": ExperienceForget(BAD),
    "result": ToolResult("c", BAD),
    "call": ToolResult(BAD, "a"),
    "cancelled": ToolCancelled("c", "f", BAD),
    "replacement": [{"role": "system", "content": BAD}],
}


async def chat(root: Path, args: Any, options: dict[str, Any], hooks: Any = ()) -> list[Any]:
    """Call a chat; return the runs that it started."""
    async with OSRuntime.open(root, model=Chatty("hi"), journal=MemoryJournal(), trust=True) as rt:

        @llm_chat(runtime=rt, hooks=hooks, template_params={"it": "it"})
        async def agent(message: str, history: Any = None) -> None:
            """Talk about {it}."""

        with pytest.raises(ReynError) as raised:
            await agent.options(**options)(*args)
        check(raised.value)
        return list(rt.runs.all())


@pytest.mark.parametrize("name", CHATS)
def test_a_chat_refuses_it(tmp_path: Path, name: str):
    assert not asyncio.run(chat(tmp_path, *CHATS[name]))


@pytest.mark.parametrize("name", HOOKS)
def test_a_run_refuses_it_from_a_hook(tmp_path: Path, name: str):
    def patch(turn: Any) -> Any:
        found = HOOKS[name]
        return [ContextReplace(found) if isinstance(found, list) else found]

    asyncio.run(chat(tmp_path, ("a",), {}, [patch]))


def test_the_error_of_a_hook_is_recorded_with_it_escaped(tmp_path: Path):
    def fail(turn: Any) -> Any:
        raise ValueError(BAD)

    asyncio.run(chat(tmp_path, ("a",), {}, [fail]))


RUNS: dict[str, Callable[[SyncRuntime], Any]] = {
    "text": lambda rt: rt.run("s", BAD),
    "data": lambda rt: rt.run("s", {"text": BAD}),
    "type": lambda rt: rt.run("s", {"type": BAD, "data": {}}),
    "skill": lambda rt: rt.run(BAD, "a"),
    "run id": lambda rt: rt.run("s", "a", run_id=BAD),
    "history": lambda rt: rt.run("s", "a", history=[{"role": "user", "content": BAD}]),
    "image": lambda rt: rt.run("s", "a", images=[Image(url=f"http://x/{BAD}")]),
    "reply": lambda rt: rt.answer("k", None, BAD),
    "part of a reply": lambda rt: rt.answer("k", None, {"a": BAD}),
    "question": lambda rt: rt.answer("k", BAD, "a"),
    "author": lambda rt: rt.answer("k", None, "a", by=BAD),
    "reason": lambda rt: rt.cancel("k", BAD),
    "run": lambda rt: rt.runs.state(BAD),
    "instructions": lambda rt: rt.fork("k", at=2, instructions={"a": BAD}),
    "input of a fork": lambda rt: rt.fork("k", at=2, input={"text": BAD}),
    "answer": lambda rt: rt.fork("k", at=5, answer=BAD),
    "part of an answer": lambda rt: rt.fork("k", at=5, answer={"a": BAD}),
    "label": lambda rt: rt.submit("s", "a", labels=[BAD]),
    "queue": lambda rt: rt.submit("s", "a", queue=BAD),
    "title": lambda rt: rt.conversations.rename("k", BAD),
    "conversation": lambda rt: rt.chat(run_id=BAD),
    "agent": lambda rt: rt.chat(BAD),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_runtime_refuses_it(tmp_path: Path, name: str):
    keys = {"a": "conversation: {stays_open: true}\n"}
    write_skill(tmp_path, "s", {"a": ["a"]}, inputs={"a": "user_message"}, phase_keys=keys)
    with SyncRuntime.open(tmp_path, model=Chatty("hi", "hi"), journal=MemoryJournal(), trust=True) as rt:
        rt.run("s", "hello", run_id="k")
        before = [(row.run_id, row.seq) for row in rt.runs.all()]
        with pytest.raises(ReynError) as raised:
            RUNS[name](rt)
        check(raised.value)
        assert [(row.run_id, row.seq) for row in rt.runs.all()] == before


def test_an_abort_happens_whatever_its_reason_is(tmp_path: Path):
    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, model=Chatty("hi"), journal=MemoryJournal(), trust=True) as rt:

            @llm_chat(runtime=rt)
            async def agent(message: str, history: Any = None) -> None:
                """Talk."""

            signal = AbortSignal()
            signal.abort(BAD)
            reply = await agent.options(abort=signal)("a")
            assert (reply.status, reply.reason) == ("aborted", "the turn was aborted: x\\ud800y")

    asyncio.run(scenario())
