"""However a visit ends, its repetition does not repeat what cannot be undone, and finds the files as they were.

A visit pays and writes a file. It ends in every way that another visit of its phase can follow, and then it follows.
The model pays unless its prompt names the payment, and no user answers a question.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import ModelTimeout
from reyn.functions import tool
from reyn.journal import MemoryJournal
from reyn.models import ModelAnswer
from tests.support import abort, act, finish, go, write_skill

OPEN = {"type": "object", "additionalProperties": True}
PAY = {"kind": "pay", "to": "ada"}
WRITE = {"kind": "file", "op": "write", "path": "output/half.txt", "content": "half"}
RUN = {"kind": "run_skill", "skill": "leaf", "input": {"text": "hi"}}
STEPS = {
    "step": "run_op: {op: {kind: pay, to: ada}}",
    "child of a step": "run_skill: {skill: leaf, input: {text: hi}, into: data.paid}",
    "children of a step": (
        "iterate: {over: data.people, apply: {run_skill: {skill: leaf, input: {text: _iter.item}}}, "
        "into: data.paid, concurrency: 2}"
    ),
}
OPS = {"op": PAY, "child of an op": RUN}
NODES = {
    "retry": "retry: {max: 1, on: ['*', limit]}",
    "retry, rollback": "retry: {max: 1, on: ['*', limit]}",
    "earlier": "on_error: {'*': a, limit: a}",
    "handler": "on_error: {'*': h, limit: h}",
}
"""What the node says about its errors, by what follows."""
NAMES = {"rejected": "rejected", "aborted": "aborted", "step": "failed", "limit": "limit", "model": "timeout"}
"""The names of the errors, by how the visit ends."""


class Payer:
    """The model of a run whose phase `b` pays and ends badly once, and of the run that pays for it.

    Attributes:
        paid: The payments.
        found: For each visit of `b` after the first, whether the file of the visit before is there.
    """

    name, takes_time, answer_form = "payer", False, "full"

    def __init__(self, root: Path, effect: str, end: str) -> None:
        self.root, self.effect, self.end = root, effect, end
        self.paid: list[str] = []
        self.found: list[bool] = []
        self._visits = 0
        self._broken = ""

    async def complete(self, request: Any) -> ModelAnswer:
        text = "\n".join(message.text or "" for message in request.messages).replace("\\", "")
        answer = self._answer(request, is_named='"to":"ada"' in text or "paid ada" in text)
        return ModelAnswer(answer if isinstance(answer, str) else json.dumps(answer))

    def _answer(self, request: Any, *, is_named: bool) -> Any:
        match request.phase:
            case "lf":
                return finish("paid ada") if is_named else act(PAY)
            case "b":
                return self._pay(*request.call.split("."), is_named=is_named)
            case "use":
                return finish()
        self._visits += 1
        note = {"type": "note", "data": {"text": f"in {self._visits}", "people": ["hi"]}}
        return go("b") | {"artifact": note}

    def _pay(self, visit: str, call: str, *, is_named: bool) -> Any:
        self._broken = self._broken or visit
        is_broken = visit == self._broken and self.end != "step"
        is_written = (self.root / "output" / "half.txt").exists()
        if not is_broken and call == "1":
            self.found.append(is_written)
        if self.effect in OPS and not is_named:
            return act(OPS[self.effect])
        if not is_broken:
            return finish()
        if not is_written:
            return act(WRITE)
        match self.end:
            case "limit":
                return act({"kind": "file", "op": "read", "path": "output/half.txt"})
            case "model":
                raise ModelTimeout("slow")
        return abort() if self.end == "aborted" else "no"


def write(root: Path, effect: str, end: str, follow: str, *, is_branch: bool, is_conversation: bool) -> None:
    """Write a skill whose phase `b` pays, and one that runs it as a branch."""
    steps = f"preprocessor:\n  - {STEPS[effect]}\n  - run_op: {{op: {{kind: shaky}}}}\n" if effect in STEPS else ""
    keys = "conversation: true\n" if is_conversation else "max_act_turns: 2\n" if end == "limit" else ""
    write_skill(root, "leaf", {"lf": ["end"]}, ops={"lf": "pay"}, artifacts={"note": OPEN})
    rolls_back = "on_phase_failure: rollback\n" if "rollback" in follow else ""
    node = f"nodes: {{b: {{{NODES[follow]}}}}}\n" if follow in NODES else ""
    write_skill(
        root,
        "top",
        {"a": ["b"], "b": ["end"]} | ({"h": ["b"]} if follow == "handler" else {}),
        ops={"b": "pay, run_skill, file"},
        artifacts={"note": OPEN},
        inputs={
            "h": "node_error",
            "a": "note | node_error" if follow == "earlier" else "note",
            "b": "note | user_message" if is_conversation else "note",
        },
        phase_keys={"b": f"{keys}{steps}"},
        skill_keys=rolls_back + node,
    )
    if is_branch:
        folder = write_skill(
            root,
            "many",
            {"fan": ["use"], "use": ["end"]},
            inputs={"fan": "list", "use": "notes"},
            artifacts={"list": OPEN, "notes": OPEN},
            skill_keys="nodes: {fan: {each: {in: data.items, do: '@top', max_parallel: 2}, as: notes}}\n",
        )
        (folder / "phases" / "fan.md").write_text("---\ntype: phase\nname: fan\ninput: list\n---\n")


def cases() -> Iterator[Any]:
    """Yield every effect with every end and everything that can follow it, some of them in a branch."""
    for at, (effect, end, follow) in enumerate(product((*STEPS, *OPS), NAMES, (*NODES, "rollback", "resume"))):
        if end == "step" and effect not in STEPS:
            continue
        if follow in NODES or end in ("rejected", "step"):
            yield pytest.param(effect, end, follow, follow != "resume" and at % 3 == 0, False)
        if follow not in NODES and end == "rejected":
            yield pytest.param(effect, end, follow, False, True)


@pytest.mark.sampled(24)
@pytest.mark.parametrize(("effect", "end", "follow", "is_branch", "is_conversation"), [*cases()])
def test_a_visit_does_not_repeat_what_the_one_before_did(
    tmp_path: Path, effect: str, end: str, follow: str, is_branch: bool, is_conversation: bool
):
    model, failures = Payer(tmp_path, effect, end), ["once"] if end == "step" else []
    write(tmp_path, effect, end, follow, is_branch=is_branch, is_conversation=is_conversation)

    @tool(effect="unsafe", permission=None)
    async def pay(to: str) -> str:
        """Pay someone."""
        model.paid.append(to)
        return f"paid {to}"

    @tool(effect="pure", permission=None)
    async def shaky() -> str:
        """Fail once."""
        if failures:
            raise ValueError(failures.pop())
        return "ok"

    async def scenario() -> None:
        journal, limits = MemoryJournal(), {"on_limit": "stop"}
        options: dict[str, Any] = {"ops": [pay, shaky], "trust": True, "max_phase_retries": 0, "limits": limits}
        async with OSRuntime.open(tmp_path, model=model, journal=journal, **options) as rt:
            note = {"text": "in", "people": ["hi"]}
            value = {"type": "note", "data": note}
            skill, given = ("many", {"items": [value]}) if is_branch else ("top", value)
            result = await rt.run(skill, given, run_id="k")
            if follow == "resume":
                assert result.status == "failed"
                result = await rt.resume("k", retry=True)
            assert result.status == "finished", result.reason
            assert model.paid == ["ada"]
            told = [
                event.data["error"] for event in journal.read("k") if event.kind in ("visit_retried", "error_handled")
            ]
            assert told == ([NAMES[end]] if follow in NODES and not is_branch else [])
            assert is_conversation or not any(model.found)
            assert model.found
            assert (await rt.runs.replay("k")).events == rt.runs.verify("k").events

    asyncio.run(scenario())
