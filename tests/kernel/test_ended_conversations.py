"""What stays of a conversation that has ended or stopped, however it did: the turns in its copies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import ModelUnavailable
from reyn.functions import tool
from reyn.journal import MemoryJournal
from reyn.models import ModelAnswer, ToolCall
from tests.support import abort, act, finish, go, question, write_skill

STEP = "run_op: {op: {kind: file, op: read, path: 'workspace:none'}}"
POST = f"postprocessor:\n  output_schema: note\n  steps:\n    - {STEP}\n"
GRAPH = {"chat": ["chat", "end"]}


class Clerk:
    """Answers with the items of a list, in the form that it is asked for; a callable item is called first."""

    name = "clerk"

    def __init__(self, form: str, *answers: Any) -> None:
        self.answer_form = form
        self.answers = list(answers)
        self.requests: list[Any] = []

    async def complete(self, request: Any) -> ModelAnswer:
        self.requests.append(request)
        answer = self.answers.pop(0)
        answer = answer() if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        if self.answer_form == "tools" and "control_ir" in answer and "control" not in answer:
            ops = [dict(op) for op in answer["control_ir"]]
            calls = [ToolCall(f"id-{at}", op.pop("kind"), json.dumps(op)) for at, op in enumerate(ops)]
            return ModelAnswer("", tool_calls=tuple(calls))
        return ModelAnswer(json.dumps(answer))


class Desk:
    """A conversation `desk` with an unsafe tool `sign`, which can end; its first turn is over."""

    def __init__(self, root: Path, form: str, *, skill_keys: str = "", **settings: Any) -> None:
        self.signed: list[str] = []

        @tool(effect="unsafe", permission=None)
        def sign(paper: str) -> str:
            """Sign a paper."""
            self.signed.append(paper)
            return f"signed {paper}"

        write_skill(
            root,
            "desk",
            GRAPH,
            inputs={"chat": "user_message"},
            phase_keys={"chat": "conversation: true\n"},
            ops={"chat": "sign, ask_user"},
            skill_keys=skill_keys,
        )
        self.model = Clerk(form)
        journal = MemoryJournal()
        self.rt = OSRuntime.open(root, model=self.model, journal=journal, ops=[sign], trust=True, **settings)

    async def talk(self, run: str, *texts: str, answers: list[Any]) -> Any:
        """Say texts to a run, then let it continue."""
        self.model.answers = answers
        for text in texts:
            self.rt.conversations.say(run, text)
        return await self.rt.resume(run)

    async def begin(self) -> None:
        self.model.answers = [go("chat", "welcome")]
        assert (await self.rt.run("desk", "hello", run_id="k")).status == "waiting"

    def texts(self) -> list[str]:
        """The last prompt, without its system message."""
        return [f"{message.role}: {message.text}" for message in list(self.model.requests[-1].messages)[1:]]


def cancel_during(desk: Desk) -> Callable[[], Any]:
    def answer() -> Any:
        desk.rt.cancel("k", "enough")
        return go("chat", "too late")

    return answer


ENDS: dict[str, tuple[str, list[Any]]] = {
    "finish": ("finished", [finish("the reply")]),
    "abort": ("aborted", [abort("no more")]),
    "outage": ("failed", [ModelUnavailable("down")]),
    "rejected": ("waiting", [{}, {}, {}]),
    "question": ("waiting", [act(question("which one?"))]),
    "reply": ("waiting", [go("chat", "the reply")]),
    "cancelled": ("cancelled", [cancel_during]),
    "limit": ("limited", []),
}


@pytest.mark.parametrize("form", ["full", "tools"])
@pytest.mark.parametrize("end", [*ENDS, "postprocessor"])
def test_a_copy_has_everything_that_was_completed_whatever_ended_the_conversation(tmp_path: Path, end: str, form: str):
    status, last = ENDS.get(end, ("failed", [finish("the reply")]))

    async def scenario() -> None:
        settings = {"max_act_turns": 1, "limits": {"on_limit": "stop"}} if end == "limit" else {}
        desk = Desk(tmp_path, form, skill_keys=POST if end == "postprocessor" else "", **settings)
        async with desk.rt as rt:
            await desk.begin()
            answers = [cancel_during(desk) if answer is cancel_during else answer for answer in last]
            result = await desk.talk("k", "sign it", answers=[act({"kind": "sign", "paper": "deed"}), *answers])
            assert result.status == status
            copy = rt.conversations.copy("k")
            await desk.talk(copy, "and?", answers=[go("chat", "in the copy")])
            seen = "\n".join(desk.texts())
            assert [desk.texts()[0], desk.texts()[-1]] == ["user: hello", "user: and?"]
            for part in ("welcome", "sign it", "signed deed", *(["the reply"] if "the reply" in str(last) else [])):
                assert seen.count(part) == 1, (part, seen)
            assert desk.signed == ["deed"]
            assert (await desk.talk(copy, "bye", answers=[finish("end of the copy")])).status in ("finished", "failed")
            assert (await rt.runs.replay(copy)).events == rt.runs.verify(copy).events

    asyncio.run(scenario())
