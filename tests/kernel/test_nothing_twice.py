"""Nothing that cannot be undone happens twice, however deep it happened: a question or a prompt names it first.

A payment is made in a run below another one, which ends or dies in every state. Then a user retries, forks, copies or
aborts the run above. The model pays unless its prompt names the payment, and no user answers a question.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, llm_function
from reyn.functions import tool
from reyn.journal import MemoryJournal
from reyn.models import ModelAnswer, ToolCall
from tests.kernel.test_turn_abort import forever, reached
from tests.support import abort, act, finish, go, write_skill

OPEN = {"type": "object", "additionalProperties": True}
STEP = "run_skill: {skill: CHILD, input: {text: hi}"
EACH = "iterate: {over: data.people, apply: {run_skill: {skill: CHILD, input: {text: _iter.item}}}, into: data.paid"
PREPROCESSORS = {
    "step": f"{STEP}, into: data.paid}}",
    "op step": "run_op: {op: {kind: run_skill, skill: CHILD, input: {text: hi}}, into: data.paid}",
    "iterate": f"{EACH}}}",
    "iterate together": f"{EACH}, concurrency: 2}}",
}
INPUT = {"text": "in", "people": ["ada"]}


class Bank:
    """Runs and agents, the last of which pays; and the model of all of them.

    Attributes:
        paid: The payments.
        state: How the run that pays ends.
        is_broken: Whether it ends so, and the run above it fails.
    """

    name, takes_time, answer_form = "bank", False, "full"

    def __init__(self, root: Path, way: str, depth: int, state: str) -> None:
        self.paid: list[str] = []
        self.state, self.is_broken, self.has_begun = state, True, False
        self.reached = asyncio.Event()
        self.way, self.child = way, "leaf" if depth == 1 else "mid"

        @tool(effect="unsafe", permission=None)
        async def pay(to: str) -> str:
            """Pay someone."""
            self.paid.append(to)
            if state == "killed in the op" and self.is_broken:
                await self._hang()
            return f"paid {to}"

        self._write(root, depth)
        self.rt = OSRuntime.open(root, model=self, journal=MemoryJournal(), ops=[pay], trust=True, max_phase_retries=0)

    def _write(self, root: Path, depth: int) -> None:
        write_skill(root, "leaf", {"lf": ["end"]}, ops={"lf": "pay"}, artifacts={"note": OPEN})
        write_skill(root, "mid", {"md": ["end"]}, ops={"md": "run_skill"}, artifacts={"note": OPEN})
        steps = PREPROCESSORS.get(self.way, "")
        keys = f"preprocessor:\n  - {steps.replace('CHILD', self.child)}\n" if steps else ""
        node = f"@{self.child}"
        graph = (
            {"first": [node], node: ["tp"], "tp": ["end"]} if self.way == "node" else {"first": ["tp"], "tp": ["end"]}
        )
        parts: dict[str, Any] = {"artifacts": {"note": OPEN}, "phase_keys": {"tp": keys}, "ops": {"tp": "run_skill"}}
        write_skill(root, "top", graph, **parts)
        write_skill(root, "back", graph, skill_keys="on_phase_failure: rollback\n", **parts)
        talk = {"inputs": {"talk": "user_message"}, "phase_keys": {"talk": "conversation: true\n"}}
        write_skill(root, "talk", {"talk": ["talk"]}, ops={"talk": "run_skill"}, **talk)
        folder = root / "reyn" / "agents"
        folder.mkdir()
        asks = {"boss": "clerk", "clerk": "cash" if depth == 2 else "", "cash": ""}
        for agent, asked in asks.items():
            (folder / f"{agent}.md").write_text(
                f"---\ntype: agent\nname: {agent}\ndescription: d\nallowed_ops: [ask_agent, pay]\n"
                f"agents: [{asked}]\npermissions: {{tool: [pay]}}\n---\nYou are {agent}.\n"
            )

    async def _hang(self) -> None:
        self.reached.set()
        await forever()

    async def complete(self, request: Any) -> ModelAnswer:
        text = "\n".join(message.text or "" for message in request.messages).replace("\\", "")
        answer = await self._answer(request, is_named='"to":"ada"' in text or "paid ada" in text)
        return ModelAnswer(answer if isinstance(answer, str) else json.dumps(answer))

    async def _answer(self, request: Any, *, is_named: bool) -> Any:
        match request.phase:
            case "first":
                self.is_broken = self.is_broken and not self.has_begun  # a rollback leads here
                self.has_begun = True
                return go(f"@{self.child}" if self.way == "node" else "tp") | {
                    "artifact": {"type": "note", "data": INPUT}
                }
            case "lf":
                return await self._payer(is_named, finish("paid ada"))
            case "md":
                return self._ending(finish("paid ada")) if is_named else act(_run("leaf"))
            case "tp" | "talk" as phase:
                runs = phase == "talk" or self.way == "op"
                if runs and not is_named:
                    return act(_run(self.child))
                return "no" if self.is_broken else finish() if phase == "tp" else go("talk")
        agent = next(name for name in ("boss", "clerk", "cash") if f"You are {name}." in request.messages[0].text)
        said = go("chat") | {"artifact": {"type": "reply", "data": {"text": "paid ada"}}}
        if agent == "cash" or (agent, self.child) == ("clerk", "leaf"):
            return await self._payer(is_named, said)
        asks = act({"kind": "ask_agent", "agent": "clerk" if agent == "boss" else "cash", "message": "go"})
        if is_named:
            return self._ending(said) if agent == "clerk" else "no" if self.is_broken else said
        return asks

    async def _payer(self, is_named: bool, done: Any) -> Any:
        if not is_named:
            return act({"kind": "pay", "to": "ada"})
        if self.is_broken and self.state == "killed after the op":
            await self._hang()
        return self._ending(done)

    def _ending(self, done: Any) -> Any:
        """Return the last answer of a run below."""
        return {"failed": "no", "aborted": abort()}.get(self.state, done) if self.is_broken else done

    async def begin(self, skill: str) -> None:
        """Run a skill until the payment is made and the run has stopped, or its process has died."""
        run = self.rt.services.agent_skill(skill) if skill == "boss" else skill
        task = asyncio.create_task(self.rt.run(run, "go" if skill in ("talk", "boss") else INPUT, run_id="k"))
        if self.state.startswith("killed"):
            await reached(self.reached, task)
            task.cancel()
        await asyncio.wait([task])
        assert self.paid == ["ada"]
        self.is_broken = False

    async def do(self, action: str) -> Any:
        """Do what a user does then; return the result."""
        rt = self.rt
        match action:
            case "retry":
                return await rt.resume("k", retry=True)
            case "fork":
                return await rt.fork("k", run_id="f")
            case "copy":
                rt.conversations.copy("k", run_id="f")
            case "abort":
                rt.conversations.abort_turn("k")
        run = "f" if action == "copy" else "k"
        rt.conversations.say(run, "and now?")
        return await rt.resume(run)


def _run(skill: str) -> dict[str, Any]:
    return {"kind": "run_skill", "skill": skill, "input": {"type": "note", "data": {"text": "hi"}}}


WAYS = ("op", "node", *PREPROCESSORS)
ENDS = ("finished", "failed", "aborted")
KILLS = ("killed in the op", "killed after the op")


def cases() -> Iterator[Any]:
    """Yield every way with every state and every action, each at a depth of 1 or 2, some at both."""
    for at, (way, state) in enumerate(product(WAYS, (*ENDS, *KILLS))):
        for depth in (1, 2) if way == "step" else (1 + at % 2,):
            yield from (pytest.param(way, depth, state, "top", action) for action in ("retry", "fork"))
            if state in ENDS:
                yield pytest.param(way, depth, state, "back", "")
    for at, (skill, state) in enumerate(product(("talk", "boss"), (*ENDS, *KILLS))):
        for depth in (1, 2) if state in KILLS else (1 + at % 2,):
            for action in ("fork", "copy", "abort") if state in KILLS else ("fork", "copy"):
                yield pytest.param("op", depth, state, skill, action)


@pytest.mark.sampled(24)
@pytest.mark.parametrize(("way", "depth", "state", "skill", "action"), [*cases()])
def test_a_payment_below_is_not_made_again(tmp_path: Path, way: str, depth: int, state: str, skill: str, action: str):
    async def scenario() -> None:
        bank = Bank(tmp_path, way, depth, state)
        async with bank.rt as rt:
            await bank.begin(skill)
            if action:
                result = await bank.do(action)
                assert result.status in ("finished", "waiting"), result.reason
            assert bank.paid == ["ada"]
            changed = "f" if action in ("fork", "copy") else "k"
            assert (await rt.runs.replay(changed)).events == rt.runs.verify(changed).events

    asyncio.run(scenario())


def test_what_a_person_decided_about_a_step_is_asked_again_after_a_retry(tmp_path: Path):
    async def scenario() -> None:
        bank = Bank(tmp_path, "step", 1, "failed")
        async with bank.rt as rt:
            await bank.begin("top")
            for _ in range(2):
                waiting = await bank.do("retry")
                assert 'These ops were completed: `pay` {"to":"ada"}.' in waiting.question.message
                rt.answer("k", waiting.question.id, "failed")
                assert (await rt.resume("k")).status == "failed"
            waiting = await bank.do("retry")
            assert bank.paid == ["ada"]
            rt.answer("k", waiting.question.id, "again")
            assert (await rt.resume("k")).ok
            assert bank.paid == ["ada", "ada"]
            assert (await rt.runs.replay("k")).events == rt.runs.verify("k").events

    asyncio.run(scenario())


def test_a_retry_in_a_fork_names_what_a_person_decided_not_to_repeat(tmp_path: Path):
    async def scenario() -> None:
        bank = Bank(tmp_path, "op", 2, "killed after the op")
        async with bank.rt as rt:
            await bank.begin("top")
            waiting = await bank.do("fork")
            rt.answer("f", waiting.question.id, "failed")
            bank.is_broken = True
            assert (await rt.resume("f")).status == "failed"
            bank.is_broken = False
            assert (await rt.resume("f", retry=True)).ok
            assert bank.paid == ["ada"]
            assert (await rt.runs.replay("f")).events == rt.runs.verify("f").events

    asyncio.run(scenario())


def test_a_fork_and_an_abort_know_what_a_function_of_a_tool_did(tmp_path: Path):
    """A tool that may be repeated calls a function, in whose sub-run a payment is interrupted."""
    paid: list[str] = []
    begun = asyncio.Event()
    named = 'These ops may have taken effect: `pay` {"to":"ada"}.'

    @tool(effect="unsafe", permission=None)
    async def pay(to: str) -> str:
        """Pay someone."""
        paid.append(to)
        if not begun.is_set():
            begun.set()
            await forever()
        return f"paid {to}"

    @llm_function(toolkit=[pay])
    async def settle(request: str) -> str:
        """Settle a debt."""

    @tool(effect="idempotent", permission=None)
    async def helper(text: str) -> str:
        """Help."""
        return await settle(text)

    class Model:
        name, answer_form, takes_time = "m", "tools", False

        async def complete(self, request: Any) -> ModelAnswer:
            if named in "\n".join(message.text or "" for message in request.messages):
                return ModelAnswer("It may be paid.")
            tool, args = "helper", {"text": "now"}
            if "Settle a debt" in request.messages[0].text:
                tool, args = "pay", {"to": "ada"}
            return ModelAnswer("", tool_calls=(ToolCall("c", tool, json.dumps(args)),))

    async def scenario() -> None:
        talk = {"inputs": {"talk": "user_message"}, "phase_keys": {"talk": "conversation: true\n"}}
        write_skill(tmp_path, "talk", {"talk": ["talk"]}, ops={"talk": "helper"}, **talk)
        rt = OSRuntime.open(tmp_path, model=Model(), journal=MemoryJournal(), ops=[helper], trust=True)
        async with rt:
            task = asyncio.create_task(rt.run("talk", "go", run_id="k"))
            await reached(begun, task)
            task.cancel()
            await asyncio.wait([task])
            for origin, run in (("k", "f"), ("f", "g")):
                forked = await rt.fork(origin, run_id=run)
                assert (forked.status, forked.question.reason) == ("waiting", "unsafe")
                assert named in forked.question.message
            rt.conversations.copy("k", run_id="c")
            rt.conversations.abort_turn("k")
            for run in ("c", "k"):
                rt.conversations.say(run, "and now?")
                assert (await rt.resume(run)).reason == "It may be paid."
        assert paid == ["ada"]

    asyncio.run(scenario())


@pytest.mark.parametrize("action", ["retry", "fork", "rollback"])
@pytest.mark.parametrize("place", ["before the op", "in the op", "after the op"])
@pytest.mark.parametrize("fault", ["no", abort()], ids=["rejected", "aborted"])
def test_a_sub_run_beside_one_that_fails_does_nothing_twice(tmp_path: Path, fault: Any, place: str, action: str):
    paid: list[str] = []
    reached_place = asyncio.Event()

    @tool(effect="unsafe", permission=None)
    async def pay(to: str) -> str:
        """Pay someone."""
        paid.append(to)
        await hang("in the op")
        return f"paid {to}"

    async def hang(here: str) -> None:
        if here == place and not reached_place.is_set():
            reached_place.set()
            await forever()

    class Model:
        name, answer_form, takes_time = "m", "full", True

        async def complete(self, request: Any) -> ModelAnswer:
            return ModelAnswer(json.dumps(await self._answer(request)))

        async def _answer(self, request: Any) -> Any:
            if request.phase == "first":  # a new artifact in each visit
                text = "again" if reached_place.is_set() else "in"
                return go("tp") | {"artifact": {"type": "note", "data": {"text": text, "people": ["bad", "ada"]}}}
            if request.phase != "lf":
                return finish()
            if request.input["data"]["text"] == "bad":
                is_first = not reached_place.is_set()
                await reached_place.wait()
                return fault if is_first else finish("nothing to pay")
            if "paid ada" in request.messages[-1].text:
                await hang("after the op")
                return finish("paid ada")
            await hang("before the op")
            return act({"kind": "pay", "to": "ada"})

    async def scenario() -> None:
        each = PREPROCESSORS["iterate together"].replace("CHILD", "leaf")
        write_skill(tmp_path, "leaf", {"lf": ["end"]}, ops={"lf": "pay"}, artifacts={"note": OPEN})
        parts: dict[str, Any] = {"artifacts": {"note": OPEN}, "phase_keys": {"tp": f"preprocessor:\n  - {each}\n"}}
        if action == "rollback":
            parts["skill_keys"] = "on_phase_failure: rollback\n"
        write_skill(tmp_path, "top", {"first": ["tp"], "tp": ["end"]}, **parts)
        ports: dict[str, Any] = {"model": Model(), "journal": MemoryJournal(), "ops": [pay], "trust": True}
        async with OSRuntime.open(tmp_path, **ports, max_phase_retries=0) as rt:
            result = await rt.run("top", {"text": "in"}, run_id="k")
            if action != "rollback":
                assert result.status == "failed"
                result = await (rt.resume("k", retry=True) if action == "retry" else rt.fork("k", run_id="f"))
            assert paid == ["ada"]
            assert result.warnings == ()
            if place == "before the op":
                assert result.ok
            else:
                assert result.question.reason == "unsafe"
                assert '`pay` {"to":"ada"}.' in result.question.message
            statuses = {row.run_id: row.status for row in rt.services.journal.runs()}
            assert "running" not in statuses.values(), statuses
            for run in ("k", "f")[: 1 + (action == "fork")]:
                assert (await rt.runs.replay(run)).events == rt.runs.verify(run).events

    asyncio.run(scenario())
