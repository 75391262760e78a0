"""Conversations with a key: aborts by the model, copies, and calls that return an earlier run."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import ChatStopped, ModelAborted, RunIdTaken
from reyn.functions import LLMChat, llm_chat, llm_function, tool
from reyn.journal import MemoryJournal
from reyn.models import Message, ModelAnswer
from tests.functions.test_chat import Chatty, calls, unavailable

SHORT_ABORT = {"reason": "no funds", "choice": "abort", "confidence": 1}
FULL_ABORT = {
    "control": {
        "type": "abort",
        "decision": "abort",
        "next_phase": None,
        "confidence": 1,
        "reason": {"summary": "no funds"},
    }
}


class Till:
    """A chat with a tool that must not be called twice by mistake, whose model answers in a form."""

    def __init__(self, folder: Path, *answers: Any, form: str = "tools", key: str | None = "till") -> None:
        self.paid: list[int] = []
        self.inside = asyncio.Event()
        self.model = Chatty(*answers)
        self.model.answer_form = form
        self.runtime = OSRuntime.open(folder, model=self.model, journal=MemoryJournal())

        @tool(effect="unsafe")
        async def settle(amount: int) -> str:
            """Pay an amount; the amount 0 never arrives."""
            if not amount:
                self.inside.set()
                await asyncio.Event().wait()
            self.paid.append(amount)
            return f"paid {amount}"

        @llm_chat(runtime=self.runtime, toolkit=[settle])
        async def till(message: str, history: list[Any] | None = None) -> None:
            """You pay bills."""

        self.chat = till.options(key=key) if key else till

    def answer(self, *answers: Any) -> None:
        """Set the next answers."""
        self.model.answers = [*self.model.answers[: len(self.model.requests)], *answers]


def settle(*amounts: int) -> Any:
    return calls(*(("settle", json.dumps({"amount": amount})) for amount in amounts))


# -- aborts of the model ----------------------------------------------------------------------------------


def answers_of(form: str, abort: dict[str, Any], *, has_key: bool) -> list[Any]:
    """A payment, an abort, then a reply."""
    if form == "beside":
        return [settle(7), ModelAnswer(json.dumps(abort), tool_calls=tuple(settle(9))), "Fine."]
    if form == "tools":
        return [settle(7), json.dumps(abort), "Fine."]
    act = {"reason": "x", "ops": [{"kind": "settle", "amount": 7}]}
    reply = {"reason": "x", "choice": "till" if has_key else "end", "confidence": 1, "data": {"text": "Fine."}}
    return [*map(json.dumps, (act, abort, reply))]


WRAPPED = {
    "fence": "```json\n{}\n```",
    "text before": "I must stop: {}",
    "text around a fence": "Sorry.\n```\n{}\n```\nPlease ask the owner.",
    "reasoning": "<think>7 {{or}} 8?</think>{}",
}


@pytest.mark.parametrize("form", ["tools", "short", "full"])
@pytest.mark.parametrize("wrapping", WRAPPED)
def test_a_decision_inside_other_text_is_a_decision_and_no_text_of_a_reply(tmp_path: Path, form: str, wrapping: str):
    control = FULL_ABORT["control"] | {"type": "transition", "decision": "continue", "next_phase": "till"}
    reply = {"control": control, "artifact": {"type": "reply", "data": {"text": "Paid."}}}
    answers = [WRAPPED[wrapping].format(json.dumps(answer)) for answer in (FULL_ABORT, reply, reply)]

    async def scenario() -> None:
        till = Till(tmp_path, *answers, form=form)
        async with till.runtime as runtime:
            with pytest.raises(ChatStopped, match="no funds") as stopped:
                await till.chat("pay 7")
            assert [message.text for message in stopped.value.history] == ["pay 7"]
            for message in ("and now?", "again"):
                last = await till.chat(message)
                assert last.text == "Paid."
            assert [one.text for one in last.history] == ["pay 7", "and now?", "Paid.", "again", "Paid."]
            await runtime.runs.replay(last.run_id)

    asyncio.run(scenario())


@pytest.mark.parametrize("key", [None, "till"])
@pytest.mark.parametrize(
    ("form", "abort"), list(itertools.product(("tools", "beside", "short"), (SHORT_ABORT, FULL_ABORT)))
)
def test_an_abort_ends_the_turn_and_the_next_message_goes_on(
    tmp_path: Path, form: str, abort: dict[str, Any], key: str | None
):
    async def scenario() -> None:
        answers = answers_of(form, abort, has_key=key is not None)
        till = Till(tmp_path, *answers, form=form.replace("beside", "tools"), key=key)
        async with till.runtime as runtime:
            with pytest.raises(ChatStopped, match="no funds") as stopped:
                await till.chat("pay 7")
            history = stopped.value.history
            assert "abort" in till.model.requests[0].messages[0].text  # the prompt says how
            assert [message.text for message in history if "paid 7" in message.text]
            assert not [message for message in history if "no funds" in message.text]
            if key:
                assert stopped.value.status == "waiting"
                assert ModelAborted.code in str(stopped.value)
                with pytest.raises(ChatStopped, match="no funds"):
                    await till.chat.resume()
            reply = await (till.chat("and now?") if key else till.chat("and now?", history))
            assert (reply.text, till.paid) == ("Fine.", [7])
            assert list(reply.history)[: len(history)] == list(history)
            if key:
                kinds = {event.kind for event in runtime.runs.events(reply.run_id)}
                assert kinds & {"phase_aborted", "skill_aborted"} == {"phase_aborted"}
            await runtime.runs.replay(reply.run_id)

    asyncio.run(scenario())


def test_an_abort_in_the_first_turn_and_after_a_reply_leaves_a_conversation(tmp_path: Path):
    async def scenario() -> None:
        abort = json.dumps(SHORT_ABORT)
        till = Till(tmp_path, abort, abort, "One.", abort, "Two.")
        async with till.runtime as runtime:
            for message, is_answered in (("a", False), ("b", False), ("c", True), ("d", False), ("e", True)):
                if is_answered:
                    reply = await till.chat(message)
                else:
                    with pytest.raises(ChatStopped):
                        await till.chat(message)
            assert [message.text for message in reply.history] == ["a", "b", "c", "One.", "d", "e", "Two."]
            await runtime.runs.replay(reply.run_id)

    asyncio.run(scenario())


def test_an_abort_between_two_turns_changes_nothing(tmp_path: Path):
    """Also after a change of the memory, which is part of the conversation but of no turn."""

    async def scenario() -> None:
        till = Till(tmp_path, "One.", "Two.")
        async with till.runtime as runtime:
            run = (await till.chat("a")).run_id
            runtime.conversations.remember(run, "The user is polite.")
            runtime.conversations.abort_turn(run, "too late")
            reply = await till.chat("b")
            assert (reply.status, reply.text) == ("replied", "Two.")
            await runtime.runs.replay(run)

    asyncio.run(scenario())


# -- copies -----------------------------------------------------------------------------------------------


async def lost(_: Any) -> str:
    raise asyncio.CancelledError


UNFINISHED: dict[str, tuple[list[Any], list[tuple[str, str]]]] = {
    "the model fails": ([settle(7), unavailable], [("paid 7", "")]),
    "no usable answer": ([settle(7), "", "", ""], [("paid 7", "")]),
    "the model aborts": ([settle(7), json.dumps(SHORT_ABORT)], [("paid 7", "")]),
    "interrupted in a call of the model": ([settle(7), lost], [("paid 7", "")]),
    "interrupted in a tool": ([settle(7, 0, 8)], [("paid 7", ""), ("may have taken", "unknown"), ("", "cancelled")]),
    "without a tool": ([unavailable], []),
}


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize(
    ("case", "is_running"), [*((case, False) for case in UNFINISHED), ("interrupted in a tool", True)]
)
def test_a_copy_keeps_what_an_unfinished_turn_has_completed(tmp_path: Path, case: str, before: int, is_running: bool):
    answers, results = UNFINISHED[case]

    async def scenario() -> None:
        till = Till(tmp_path, *["Hello."] * before, *answers)
        async with till.runtime as runtime:
            for _ in range(before):
                await till.chat("hi")
            turn = asyncio.ensure_future(till.chat("pay"))
            inside = asyncio.ensure_future(till.inside.wait())
            await asyncio.wait([turn, inside], return_when=asyncio.FIRST_COMPLETED)
            if not is_running:
                turn.cancel()
                await asyncio.gather(turn, return_exceptions=True)
            requests, paid = len(till.model.requests), list(till.paid)
            copy = await till.chat.fork("copy")
            # The runtime itself does not have the tools of the decorator.
            other = runtime.conversations.copy(str(till.chat.conversation))
            assert (len(till.model.requests), till.paid) == (requests, paid)
            for run in (str(copy.conversation), other, *([] if is_running else [str(till.chat.conversation)])):
                found = [message for message in runtime.runs.transcript(run) if message.role == "tool"]
                assert [message.status for message in found] == [status for _, status in results]
            turn.cancel()
            inside.cancel()
            await asyncio.gather(turn, inside, return_exceptions=True)
            till.answer("In the copy.", "In the first one.")
            for chat, text in ((copy, "In the copy."), (till.chat, "In the first one.")):
                reply = await chat("and?")
                found = [message for message in reply.history if message.role == "tool"]
                assert [message.status for message in found] == [status for _, status in results]
                assert all(text in message.text for message, (text, _) in zip(found, results, strict=True))
                said = [message.text for message in reply.history if message.role == "user"]
                assert (said, reply.text) == (["hi"] * before + ["pay", "and?"], text)
                await runtime.runs.replay(reply.run_id)
            assert till.paid == paid

    asyncio.run(scenario())


# -- the id of an earlier run -----------------------------------------------------------------------------

HISTORY = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
SYSTEM = [{"role": "system", "content": "Be brief."}]
OTHER_CALLS: dict[str, tuple[Any, Any]] = {
    "another message": ({"message": "b"}, "input"),
    "no history": ({"history": []}, "history"),
    "another text in the history": ({"history": [HISTORY[0], {"role": "assistant", "content": "three"}]}, "history"),
    "a longer history": ({"history": [*HISTORY, {"role": "user", "content": "one"}]}, "history"),
    "an image in the message": ({"images": True}, "input"),
    "a system message": ({"history": [*SYSTEM, *HISTORY]}, "instructions"),
    "another value of the template": ({"params": {"tone": "dry"}}, "instructions"),
}


@pytest.mark.parametrize("case", OTHER_CALLS)
def test_another_call_with_the_id_of_a_run_is_refused(tmp_path: Path, case: str):
    from reyn.functions import Image

    png = Image("image/png", "iVBORw0KGgo=")
    changes, what = OTHER_CALLS[case]

    async def scenario() -> None:
        model = Chatty("Reply.", "Never.")
        async with OSRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as runtime:

            @llm_chat(runtime=runtime, template_params={"tone": "kind"})
            async def talk(message: str, history: list[Any] | None = None) -> None:
                """Be {tone}."""

            async def call(message: str = "a", history: Any = HISTORY, params: Any = None, images: bool = False) -> str:
                said = Message("user", message, (png,) if images else ())
                chat = talk.options(run_id="z", template_params=params)
                return (await chat(said, history)).text

            assert await call() == "Reply."
            assert await call(params={"tone": "kind"}) == "Reply."
            assert await call(history=list(map(dict, HISTORY))) == "Reply."
            with pytest.raises(RunIdTaken, match=f"different {what}"):
                await call(**changes)
            assert len(model.requests) == 1

    asyncio.run(scenario())


@asynccontextmanager
async def kind_chat(folder: Path, *replies: str) -> AsyncIterator[LLMChat]:
    async with OSRuntime.open(folder, model=Chatty(*replies), journal=MemoryJournal()) as runtime:

        @llm_chat(runtime=runtime)
        async def talk(message: str, history: list[Any] | None = None) -> None:
            """Be kind."""

        yield talk


def test_a_system_message_that_is_left_out_is_another_call(tmp_path: Path):
    async def scenario() -> None:
        async with kind_chat(tmp_path, "Reply.", "Never.") as talk:
            chat = talk.options(run_id="z")
            assert (await chat("a", SYSTEM)).text == (await chat("a", SYSTEM)).text == "Reply."
            for history in ([], [{"role": "system", "content": "Be long."}]):
                with pytest.raises(RunIdTaken, match="different instructions"):
                    await chat("a", history)

    asyncio.run(scenario())


def test_another_value_of_the_template_of_a_function_is_another_call(tmp_path: Path):
    async def scenario() -> None:
        model = Chatty("fine", "never")
        async with OSRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as runtime:

            @llm_function(runtime=runtime, template_params=["tone"])
            async def answer(question: str) -> str:
                """Be {tone}."""
                raise NotImplementedError

            for tone in ("kind", "kind"):
                assert await answer.options(run_id="z", template_params={"tone": tone})("a") == "fine"
            with pytest.raises(RunIdTaken, match="different instructions"):
                await answer.options(run_id="z", template_params={"tone": "dry"})("a")

    asyncio.run(scenario())


def test_a_run_that_starts_with_a_history_is_the_same_in_other_parts(tmp_path: Path):
    """The history of a reply is stored in parts, and the same messages as dicts are stored as one."""

    async def scenario() -> None:
        async with kind_chat(tmp_path, "One.", "Two.") as talk:
            first = await talk("a")
            chat = talk.options(run_id="z")
            second = await chat("b", first.history)
            as_dicts = [{"role": message.role, "content": message.text} for message in first.history]
            assert (await chat("b", as_dicts)).text == second.text == "Two."

    asyncio.run(scenario())
