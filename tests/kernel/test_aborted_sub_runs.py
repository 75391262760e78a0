"""What a conversation is told of a sub-run that its user aborted, or that ended without a result."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.functions import tool
from reyn.journal import MemoryJournal
from reyn.models import ModelAnswer, ToolCall
from tests.kernel.test_turn_abort import forever, reached
from tests.support import abort, act, finish, go, write_skill

SHIP = act({"kind": "ship", "item": "lamp"})
NOTHING, COMPLETED, UNKNOWN = "", "were completed", "may have taken effect"


class Warehouse:
    """A conversation `desk` that runs the skill `outer`, which runs `inner` and that an unsafe tool `ship`."""

    def __init__(self, root: Path, form: str) -> None:
        self.shipped: list[str] = []
        self.hangs = False
        self.reached = asyncio.Event()

        @tool(effect="unsafe", permission=None)
        async def ship(item: str) -> str:
            """Ship an item."""
            self.shipped.append(item)
            if self.hangs:
                await self.hang()
            return f"shipped {item}"

        chat = {"inputs": {"chat": "user_message"}, "phase_keys": {"chat": "conversation: true\n"}}
        write_skill(root, "desk", {"chat": ["chat"]}, ops={"chat": "run_skill, ship"}, **chat)
        write_skill(root, "outer", {"pass": ["end"]}, ops={"pass": "run_skill"})
        write_skill(root, "inner", {"work": ["end"]}, ops={"work": "ship"})
        self.answer_form, self.name, self.takes_time = form, "warehouse", True
        self.answers: list[Any] = []
        self.requests: list[Any] = []
        self.rt = OSRuntime.open(root, model=self, journal=MemoryJournal(), ops=[ship], trust=True)

    async def hang(self) -> Any:
        self.reached.set()
        await forever()

    async def complete(self, request: Any) -> ModelAnswer:
        self.requests.append(request)
        answer = self.answers.pop(0)
        answer = await answer() if callable(answer) else answer
        if self.answer_form == "tools" and "control_ir" in answer and "control" not in answer:
            ops = [dict(op) for op in answer["control_ir"]]
            calls = [ToolCall(f"id-{at}", op.pop("kind"), json.dumps(op)) for at, op in enumerate(ops)]
            return ModelAnswer("", tool_calls=tuple(calls))
        return ModelAnswer(json.dumps(answer))

    async def told(self) -> tuple[list[str], str]:
        """Say something more; return the status of the tool results and the texts of the next prompt."""
        self.answers = [go("chat")]
        self.rt.conversations.say("k", "what was shipped?")
        assert (await self.rt.resume("k")).status == "waiting"
        assert (await self.rt.runs.replay("k")).events == self.rt.runs.verify("k").events
        results = [message for message in self.rt.runs.transcript("k") if message.role == "tool"]
        return [message.status for message in results], "\n".join(one.text for one in self.requests[-1].messages)


def run(skill: str) -> dict[str, Any]:
    return {"kind": "run_skill", "skill": skill, "input": {"type": "note", "data": {"text": "go"}}}


@pytest.mark.parametrize("form", ["full", "tools"])
@pytest.mark.parametrize("skill", ["inner", "outer"])
@pytest.mark.parametrize("effect", [NOTHING, COMPLETED, UNKNOWN])
def test_an_aborted_sub_run_tells_which_unsafe_ops_it_performed(tmp_path: Path, form: str, skill: str, effect: str):
    async def scenario() -> None:
        house = Warehouse(tmp_path, form)
        async with house.rt as rt:
            house.hangs = effect == UNKNOWN
            begin = [
                act(run(skill), {"kind": "ship", "item": "never"}),
                *([act(run("inner"))] if skill == "outer" else []),
            ]
            house.answers = [*begin, *([] if effect == NOTHING else [SHIP]), house.hang]
            turn = asyncio.create_task(rt.run("desk", "go", run_id="k"))
            await reached(house.reached, turn)
            rt.conversations.abort_turn("k", "enough")
            assert (await turn).status == "waiting"
            statuses, prompt = await house.told()
            assert statuses == ([] if form == "full" else ["unknown", "cancelled"])
            assert house.shipped == ([] if effect == NOTHING else ["lamp"])
            assert "interrupted" in prompt
            assert (f'These ops {effect}: `ship` {{"item":"lamp"}}.' in prompt) == bool(effect)
            assert prompt.count("These ops") == bool(effect)

    asyncio.run(scenario())


@pytest.mark.parametrize("form", ["full", "tools"])
def test_a_sub_run_without_a_result_tells_which_unsafe_ops_it_completed(tmp_path: Path, form: str):
    async def scenario() -> None:
        house = Warehouse(tmp_path, form)
        async with house.rt as rt:
            house.answers = [act(run("inner")), SHIP, abort("no"), go("chat")]
            assert (await rt.run("desk", "go", run_id="k")).status == "waiting"
            _, prompt = await house.told()
            assert "is aborted: no. These ops were completed: `ship`" in prompt
            house.answers = [act(run("inner")), SHIP, finish("sent"), go("chat")]
            rt.conversations.say("k", "again")
            await rt.resume("k")
            assert (await house.told())[1].count("These ops") == 1  # a result says what it says

    asyncio.run(scenario())
