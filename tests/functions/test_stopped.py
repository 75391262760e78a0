"""A turn that stops between the calls of one answer: its history has those that were completed."""

from __future__ import annotations

import asyncio
import json
import operator
import re
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import ChatStopped
from reyn.functions import llm_chat, tool
from reyn.journal import MemoryJournal
from tests.functions.test_chat import Chatty, calls

LONG = 100_000
DONE = {
    "control": {
        "type": "finish",
        "decision": "finish",
        "next_phase": None,
        "confidence": 1,
        "reason": {"summary": "done"},
    },
    "artifact": {"type": "reply", "data": {"text": "Shipped."}},
}


GO_ON = DONE | {
    "control": DONE["control"] | {"type": "transition", "decision": "continue", "next_phase": "chat"},
}


class Depot:
    """A chat with a tool that runs, and a tool that a person must approve."""

    def __init__(
        self,
        folder: Path,
        form: str,
        answer: list[tuple[str, dict[str, Any]]],
        *,
        size: int = 1,
        key: str | None = None,
    ) -> None:
        self.shipped: list[int] = []
        is_native = form == "tools"
        acts = calls(*[(name, json.dumps(args)) for name, args in answer])
        ops = json.dumps({"control_ir": [{"kind": name, **args} for name, args in answer]})
        self.model = Chatty(
            acts if is_native else ops, *["Shipped." if is_native else json.dumps(GO_ON if key else DONE)] * 3
        )
        self.model.answer_form = form
        rules = {"tool": [{"ask": "insure"}, {"allow": "*"}]}
        self.runtime = OSRuntime.open(folder, model=self.model, journal=MemoryJournal(), permissions=rules)

        @tool(effect="unsafe")
        def ship(crate: int) -> str:
            """Ship a crate."""
            self.shipped.append(crate)
            return f"crate {crate} left" + "." * size

        @tool(effect="unsafe")
        def insure(crate: int) -> str:
            """Insure a crate."""
            return f"crate {crate} is insured"

        @llm_chat(runtime=self.runtime, toolkit=[ship, insure])
        async def chat(message: str, history: list[Any] | None = None) -> None:
            """You ship crates."""

        self.chat = chat


ANSWERS = {
    "before the question": [("ship", {"crate": 1}), ("insure", {"crate": 1})],
    "two before, one after it": [
        *[("ship", {"crate": number}) for number in (1, 2)],
        *[("insure", {"crate": 1}), ("ship", {"crate": 3})],
    ],
    "none before it": [("insure", {"crate": 1}), ("ship", {"crate": 3})],
}


@pytest.mark.parametrize("size", [1, LONG])
@pytest.mark.parametrize("form", ["tools", "full"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_the_history_has_the_completed_calls_of_the_answer(tmp_path: Path, answer: str, form: str, size: int):
    async def scenario() -> None:
        depot = Depot(tmp_path, form, ANSWERS[answer], size=size)
        async with depot.runtime as runtime:
            with pytest.raises(ChatStopped) as stopped:
                await depot.chat("ship it")
            assert stopped.value.status == "waiting"
            history, shipped = stopped.value.history, list(depot.shipped)
            told = "\n".join(message.text for message in history if message.role != "assistant")
            assert [number for number in (1, 2, 3) if f"crate {number} left" in told] == shipped
            assert "is insured" not in told
            recorded = runtime.runs.transcript(stopped.value.run_id)
            assert [(one.role, one.status) for one in recorded] == [(one.role, one.status) for one in history]
            assert "\n".join(message.text for message in recorded if message.role != "assistant") == told
            await depot.chat("and?", history)
            seen = "\n".join(message.text for message in depot.model.requests[-1].messages)
            assert [number for number in (1, 2, 3) if f"crate {number} left" in seen] == shipped == depot.shipped

            run = runtime.runs.find(stopped.value.run_id)
            assert run.wait is not None
            runtime.answer(run.run_id, run.wait.id, "approve")
            reply = await depot.chat.options(run_id=run.run_id).resume()
            told = "\n".join(message.text for message in reply.history)
            assert [number for number in (1, 2, 3) if f"crate {number} left" in told] == depot.shipped
            assert "crate 1 is insured" in told
            await runtime.runs.replay(run.run_id)

    asyncio.run(scenario())


HINT = re.compile(r"`rt\.(\w+(?:\.\w+)?)\(([^`]*)\)`")


@pytest.mark.parametrize("form", ["tools", "full"])
@pytest.mark.parametrize("step", ["answer", "conversations.abort_turn"])
@pytest.mark.parametrize("resumes", [True, False])
def test_a_message_while_a_question_is_open_is_not_sent(tmp_path: Path, step: str, form: str, resumes: bool):
    """The error says so, and what to do; afterwards, the conversation goes on."""

    async def scenario() -> None:
        depot = Depot(tmp_path, form, ANSWERS["two before, one after it"], key="ada")
        async with depot.runtime as runtime:
            chat = depot.chat.options(key="ada")
            with pytest.raises(ChatStopped) as stopped:
                await chat("ship it")
            with pytest.raises(ChatStopped, match="Approve `insure`") as refused:
                await chat("forget it")
            with pytest.raises(ChatStopped) as again:
                await chat.resume()
            assert refused.value.hint == f"The message was not sent. {stopped.value.hint}"
            assert (again.value.hint, again.value.status) == (stopped.value.hint, "waiting")
            assert list(refused.value.history) == list(stopped.value.history)

            steps = {name: json.loads(f"[{args}]".replace("'", '"')) for name, args in HINT.findall(refused.value.hint)}
            operator.attrgetter(step)(runtime)(*steps[step])
            if resumes:
                await chat.resume()
            reply = await chat("and now?")
            assert depot.shipped == ([1, 2, 3] if step == "answer" else [1, 2])
            said = [message.text for message in reply.history if message.role == "user"]
            assert (said[0], said[-1]) == ("ship it", "and now?")
            assert "forget it" not in said
            seen = "\n".join(message.text for message in depot.model.requests[-1].messages)
            assert ("crate 1 is insured" in seen) == (step == "answer")
            assert ("The turn was aborted" in seen) == (step != "answer" and form == "full")
            await runtime.runs.replay(reply.run_id)

    asyncio.run(scenario())


def test_the_model_is_told_why_a_turn_ended(tmp_path: Path):
    async def scenario() -> None:
        depot = Depot(tmp_path, "full", ANSWERS["before the question"], key="ada")
        async with depot.runtime as runtime:
            chat = depot.chat.options(key="ada")
            with pytest.raises(ChatStopped) as stopped:
                await chat("ship it")
            note = "The turn was aborted: the turn has no reply; it had stopped: Approve `insure`? (permissions.tool: "
            assert note in stopped.value.history[-1].text
            copy = await chat.fork("copy")
            await copy("and?")
            seen = "\n".join(message.text for message in depot.model.requests[-1].messages)
            assert "The turn was aborted: the conversation was copied before the reply. The other ops" in seen
            runtime.conversations.abort_turn(str(chat.conversation), "the customer left")
            await chat("and?")
            seen = "\n".join(message.text for message in depot.model.requests[-1].messages)
            assert "The turn was aborted: the customer left. The other ops were not executed." in seen

    asyncio.run(scenario())


def test_a_cancelled_turn_has_them_too(tmp_path: Path):
    async def scenario() -> None:
        depot = Depot(tmp_path, "tools", ANSWERS["before the question"])
        async with depot.runtime as runtime:
            with pytest.raises(ChatStopped) as stopped:
                await depot.chat("ship it")
            runtime.cancel(stopped.value.run_id)
            with pytest.raises(ChatStopped) as cancelled:
                await depot.chat.options(run_id=stopped.value.run_id).resume()
            assert cancelled.value.status == "cancelled"
            assert [message.status for message in cancelled.value.history] == ["", "", "", "cancelled"]

    asyncio.run(scenario())
