"""What the branches of a node have done happens twice only after a question, or a prompt that names it."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.functions import tool
from reyn.journal import MemoryJournal
from reyn.journal.kinds import Usage
from reyn.models import ModelAnswer
from reyn.testing import ScriptedModel
from tests.kernel.test_turn_abort import forever, reached
from tests.support import abort, act, finish, go, write_skill

OPEN = {"type": "object", "additionalProperties": True}
NODES = {
    "skill of each item": "{each: {in: data.people, do: '@leaf', max_parallel: 2}, as: paid MORE}",
    "phase of each item": "{each: {in: data.people, do: lf, output: note, max_parallel: 2}, as: paid MORE}",
    "all skills": "{all: {pays: '@leaf', other: '@other'}, as: paid MORE}",
}
WAYS = ("failed", "aborted", "killed in the op", "killed after the op", "another fails", "cancelled", "later")
"""What becomes of the branch that pays, or of the visit after it."""


class Bank:
    """A run with a branch that pays ada, and another one; and the model of all."""

    name, answer_form = "bank", "full"

    def __init__(self, root: Path, node: str, way: str, policy: str) -> None:
        self.paid: list[str] = []
        self.takes_time = True
        self.way, self.is_broken, self.has_begun = way, True, False
        self.reached, self.has_paid, self.may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @tool(effect="unsafe", permission=None)
        async def pay(to: str) -> str:
            """Pay someone."""
            self.paid.append(to)
            self.has_paid.set()
            if way == "killed in the op" and self.is_broken:
                self.reached.set()
                await forever()
            return f"paid {to}"

        for name, phase in (("leaf", "lf"), ("other", "ot")):
            write_skill(root, name, {phase: ["end"]}, ops={phase: "pay"}, artifacts={"note": OPEN})
        more = ", need: any" if way == "cancelled" else ""
        more += f", on_item_error: {policy}" if policy else ""
        keys = f"nodes:\n  tp: {NODES[node].replace(' MORE', more)}\n"
        parts: dict[str, Any] = {
            "artifacts": {"note": OPEN, "paid": OPEN},
            "inputs": {"tp": "note", "last": "paid"},
        }
        graph = {"first": ["tp"], "tp": ["last"], "last": ["end"]}
        for name, failure in (("top", ""), ("back", "on_phase_failure: rollback\n")):
            folder = write_skill(root, name, graph, skill_keys=keys + failure, **parts)
            (folder / "phases" / "tp.md").write_text("---\ntype: phase\nname: tp\ninput: note\n---\n")
            (folder / "phases" / "lf.md").write_text(
                "---\ntype: phase\nname: lf\ninput: note\nallowed_ops: [pay]\n---\nPay.\n"
            )
        self.rt = OSRuntime.open(root, model=self, journal=MemoryJournal(), ops=[pay], trust=True, max_phase_retries=0)

    async def complete(self, request: Any) -> ModelAnswer:
        text = "\n".join(message.text or "" for message in request.messages).replace("\\", "")
        is_named = '"to":"ada"' in text or "paid ada" in text
        answer = await self._answer(request, is_named=is_named)
        return ModelAnswer(answer if isinstance(answer, str) else json.dumps(answer))

    async def _answer(self, request: Any, *, is_named: bool) -> Any:
        match request.phase:
            case "first":
                self.is_broken = self.is_broken and not self.has_begun  # a rollback leads here
                self.has_begun = True
                people = [{"text": "ada"}, {"text": "bob"}]
                return go("tp") | {"artifact": {"type": "note", "data": {"text": "ada", "people": people}}}
            case "last":
                if self.way in ("later", "cancelled") and self.is_broken:
                    self.is_broken = False
                    return "no"
                return finish()
            case "ot":
                return await self._other()
        if request.input["data"]["text"] == "bob":
            return await self._other()
        if not is_named:
            return act({"kind": "pay", "to": "ada"})
        if self.is_broken:
            if self.way == "killed after the op":
                self.reached.set()
            if self.way in ("killed after the op", "cancelled"):
                await forever()
            if self.way in ("failed", "aborted"):
                return "no" if self.way == "failed" else abort()
            self.may_end.set()
        return finish("paid ada")

    async def _other(self) -> Any:
        await self.has_paid.wait()
        if self.way == "another fails" and self.is_broken:
            await self.may_end.wait()
            return "no"
        return finish("nothing to pay")

    async def begin(self, skill: str) -> Any:
        """Run a skill until the payment is made and the run has stopped, or its process has died."""
        task = asyncio.create_task(self.rt.run(skill, {"text": "in"}, run_id="k"))
        if self.way.startswith("killed"):
            await reached(self.reached, task)
            task.cancel()
        await asyncio.wait([task])
        assert self.paid == ["ada"]
        self.is_broken = False
        return None if task.cancelled() else task.result()


def cases() -> list[Any]:
    """Every outcome with every action, and each of the other dimensions in turn."""
    found = []
    variants = [*product(NODES, ("", "retry", "collect"))]
    for at, (way, action) in enumerate(product(WAYS, ("retry", "fork", "back"))):
        if way.startswith("killed") and action == "back":
            continue
        for is_parallel in (True, False) if way != "cancelled" else (True,):  # one after the other, none is cancelled
            node, policy = variants[(2 * at + is_parallel) % len(variants)]
            found.append(pytest.param(node, way, policy, action, is_parallel))
    return found


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("node", "way", "policy", "action", "is_parallel"), cases())
def test_a_payment_of_a_branch_is_not_made_again(
    tmp_path: Path, node: str, way: str, policy: str, action: str, is_parallel: bool
):
    async def scenario() -> None:
        bank = Bank(tmp_path, node, way, policy)
        bank.takes_time = is_parallel
        async with bank.rt as rt:
            result = await bank.begin("back" if action == "back" else "top")
            begun = {row.run_id for row in rt.services.journal.runs()} - {"k"}
            assert begun <= {event.data["run"] for event in rt.runs.events("k") if event.kind == "child_started"}
            if action == "retry" and (result is None or result.status == "failed"):
                result = await rt.resume("k", retry=result is not None)
            if action == "fork":
                result = await rt.fork("k", run_id="f")
                if result.status == "failed":  # it has what failed, too
                    result = await rt.resume("f", retry=True)
            # A rollback whose new attempt changes nothing is aborted.
            ends = ("finished", "waiting", *(["aborted"] if action == "back" else []))
            assert result.status in ends, result.reason
            assert bank.paid == ["ada"]
            changed = "f" if action == "fork" else "k"
            assert (await rt.runs.replay(changed)).events == rt.runs.verify(changed).events

    asyncio.run(scenario())


class Clerk:
    """A model whose branches pay first, if they act, and then fail or complete."""

    name, answer_form = "clerk", "full"

    def __init__(self, failing: str, *, acts: bool) -> None:
        self.failing, self._acts = failing, acts
        self.completed: list[str] = []

    async def complete(self, request: Any) -> ModelAnswer:
        answer: Any = finish()
        if request.phase == "lf":
            name = request.input["data"]["text"]
            has_paid = any(f"paid {name}" in (message.text or "") for message in request.messages)
            if self._acts and not has_paid:
                answer = act({"kind": "pay", "to": name})
            elif name in self.failing:
                answer = "no"
            else:
                self.completed.append(name)
        return ModelAnswer(answer if isinstance(answer, str) else json.dumps(answer))


def write_payments(root: Path, settings: str) -> None:
    """A skill whose entry pays everybody in a list, each in a branch."""
    folder = write_skill(
        root,
        "top",
        {"tp": ["last"], "last": ["end"]},
        artifacts={"list": OPEN, "notes": OPEN},
        inputs={"tp": "list", "last": "notes"},
        skill_keys=f"nodes:\n  tp: {{each: {{in: data.items, do: lf, output: note, {settings}, as: notes}}\n",
    )
    (folder / "phases/tp.md").write_text("---\ntype: phase\nname: tp\ninput: list\n---\n")
    branch = "---\ntype: phase\nname: lf\ninput: note\nallowed_ops: [pay]\n---\nPay.\n"
    (folder / "phases/lf.md").write_text(branch)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "settings", ["}", "}, need: 2", "}, on_item_error: retry", "}, need: 1, on_item_error: collect"]
)
@pytest.mark.parametrize("failing", ["a", "bc", "abc"])
@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("acts", [False, True])
def test_a_fork_of_a_run_whose_branches_failed_executes_what_is_missing(
    tmp_path: Path, settings: str, failing: str, parallel: int, acts: bool
):
    """Branches that completed stay. Another one is executed again, after a question if it has acted."""
    paid: list[str] = []

    @tool(effect="unsafe", permission=None)
    async def pay(to: str) -> str:
        """Pay someone."""
        paid.append(to)
        return f"paid {to}"

    write_payments(tmp_path, f"max_parallel: {parallel}{settings}")
    clerk = Clerk(failing, acts=acts)
    options: dict[str, Any] = {"model": clerk, "journal": MemoryJournal(), "ops": [pay], "trust": True}

    async def answered(rt: OSRuntime, result: Any, reply: str) -> Any:
        while result.status == "waiting":
            before = list(paid)
            assert all(f'"to":"{name}"' not in result.question.message or name in paid for name in "abc")
            rt.answer(result.run_id, result.question.id, reply)
            assert paid == before
            result = await rt.resume(result.run_id)
        return result

    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, max_phase_retries=0, **options) as rt:
            result = await rt.run("top", {"items": [{"text": name} for name in "abc"]}, run_id="k")
            result = await answered(rt, result, "failed")
            if result.ok:
                return
            assert result.status == "failed"
            before, clerk.failing, clerk.completed = list(paid), "", []
            result = await rt.fork("k", run_id="f")
            assert paid[len(before) :] == [] or not {*paid[len(before) :]} & {*before}, "repeated without a question"
            assert not result.warnings
            result = await answered(rt, result, "again")
            assert result.ok, result.reason
            [point] = [one.data["point"]["seq"] for one in rt.runs.events("f") if one.kind == "run_forked"]
            ended = [one for one in rt.runs.events("f") if one.kind == "child_ended" and one.seq <= point]
            kept = {"abc"[int(one.data["call"][2]) - 1] for one in ended if "artifact" in one.data}
            assert not kept & {*clerk.completed}
            assert (await rt.runs.replay("f")).events == rt.runs.verify("f").events

    asyncio.run(scenario())


@pytest.mark.parametrize("policy", ["collect", "retry"])
@pytest.mark.parametrize("completing", [0, 1])
def test_what_one_of_several_equal_items_completed_says_nothing_about_the_others(
    tmp_path: Path, policy: str, completing: int
):
    """Each item pays once. One completes; for each of the others, a person decides before it pays again."""
    paid: list[str] = []

    @tool(effect="unsafe", permission=None)
    async def pay(to: str) -> str:
        """Pay someone."""
        paid.append(to)
        return f"paid {to}"

    class Payer:
        name, answer_form = "payer", "full"

        async def complete(self, request: Any) -> ModelAnswer:
            if request.phase == "last":
                return ModelAnswer(json.dumps(finish()))
            if not any("paid a" in (message.text or "") for message in request.messages):
                return ModelAnswer(json.dumps(act({"kind": "pay", "to": "a"})))
            index = int(request.run_id.rpartition(".")[2].partition("r")[0]) - 1
            return ModelAnswer(json.dumps(finish()) if index == completing else "no")

    write_payments(tmp_path, f"max_parallel: 1}}, need: 2, on_item_error: {policy}")
    options: dict[str, Any] = {"model": Payer(), "journal": MemoryJournal(), "ops": [pay], "trust": True}

    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, max_phase_retries=0, **options) as rt:
            result = await rt.run("top", {"items": [{"text": "a"}] * 3}, run_id="k")
            for _ in range(2):
                while result.status == "waiting":
                    rt.answer("k", result.question.id, "failed")
                    result = await rt.resume("k")
                assert result.status == "failed", result.reason
                assert paid == ["a"] * 3
                result = await rt.resume("k", retry=True)
            assert (await rt.runs.replay("k")).events == rt.runs.verify("k").events

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["retry", "node"])
@pytest.mark.parametrize("node", ["branches", "rules"])
def test_a_step_before_a_node_whose_result_is_refused_pays_once(tmp_path: Path, node: str, how: str):
    """The check of a node without a model refuses its first result. Branches are executed again, the step is not."""
    paid: list[str] = []

    @tool(effect="unsafe", permission=None)
    async def pay(to: str) -> str:
        """Pay someone."""
        paid.append(to)
        return f"paid {to}"

    @tool(effect="pure", permission=None)
    async def accept() -> str:
        """Accept any result but the first."""
        visited.append(len(visited))
        if len(visited) == 1:
            raise ValueError("not good enough")
        return "accepted"

    visited: list[int] = []
    step = "preprocessor:\n  - run_op: {op: {kind: pay, to: ada}, into: local.paid}\n"
    check = "check: [{run_op: {op: {kind: accept}}}]"
    retry = ", retry: {max: 1}" if how == "node" else ""
    settings = "each: {in: data.items, do: '@leaf'}, as: notes, " if node == "branches" else ""
    write_skill(tmp_path, "leaf", {"lf": ["end"]})
    target: Any = ["last"] if node == "branches" else [{"else": "last"}]
    folder = write_skill(
        tmp_path,
        "top",
        {"tp": target, "last": ["end"]},
        artifacts={"list": OPEN, "notes": OPEN},
        inputs={"last": "notes" if node == "branches" else "list"},
        skill_keys=f"nodes: {{tp: {{{settings}{check}{retry}}}}}\n",
    )
    (folder / "phases/tp.md").write_text(f"---\ntype: phase\nname: tp\ninput: list\n{step}---\n")
    model = ScriptedModel([finish()] * 3)
    options: dict[str, Any] = {"model": model, "journal": MemoryJournal(), "ops": [pay, accept], "trust": True}

    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, **options) as rt:
            result = await rt.run("top", {"items": [{"text": "a"}]}, run_id="k")
            if how == "retry":
                assert result.status == "failed"
                result = await rt.resume("k", retry=True)
            assert result.ok, result.reason
            assert (paid, len(visited)) == (["ada"], 2)
            branches = [event for event in rt.runs.events("k") if event.kind == "child_started"]
            assert len(branches) == (2 if node == "branches" else 0)
            assert (await rt.runs.replay("k")).events == rt.runs.verify("k").events

    asyncio.run(scenario())


class Spender:
    """A model whose first item uses up the tokens of the run while the second one has paid and waits for an answer."""

    name, answer_form, takes_time = "spender", "full", True

    def __init__(self) -> None:
        self.has_paid, self.is_calm = asyncio.Event(), False

    async def complete(self, request: Any) -> ModelAnswer:
        if request.phase == "lf" and not self.is_calm:
            if request.input["data"]["text"] == "b":
                await forever()
            await self.has_paid.wait()
        return ModelAnswer(json.dumps(finish()), Usage(100, 0))


def test_a_limit_in_an_iteration_that_the_node_handles_ends_the_other_items(tmp_path: Path):
    """What they did is known: another attempt asks before it does it again."""
    paid: list[str] = []
    model = Spender()

    @tool(effect="unsafe", permission=None)
    async def pay(to: str) -> str:
        """Pay someone."""
        paid.append(to)
        if to == "b":
            model.has_paid.set()
        return f"paid {to}"

    step = "run_op: {op: {kind: pay}, args_from: {to: data.text}, into: data.paid}"
    write_skill(
        tmp_path, "leaf", {"lf": ["end"]}, phase_keys={"lf": f"preprocessor:\n  - {step}\n"}, artifacts={"note": OPEN}
    )
    each = "iterate: {over: data.people, apply: {run_skill: {skill: leaf, input: {text: _iter.item}}}, into: data.paid"
    write_skill(
        tmp_path,
        "top",
        {"a": ["end"]},
        phase_keys={"a": f"preprocessor:\n  - {each}, concurrency: 2}}\n"},
        artifacts={"note": OPEN},
        skill_keys="nodes: {a: {retry: {max: 1, on: [limit]}}}\n",
    )
    options: dict[str, Any] = {"model": model, "journal": MemoryJournal(), "ops": [pay], "trust": True}

    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, limits={"tokens": 50}, **options) as rt:
            result = await rt.run("top", {"text": "t", "people": ["a", "b"]}, run_id="k")
            assert (result.status, paid) == ("limited", ["a", "b"])
            assert {row.status for row in rt.runs.all() if row.parent} == {"finished", "cancelled"}
            model.is_calm = True
            result = await rt.resume("k", raise_limits={"tokens": 5_000})
            assert result.status == "waiting"
            assert '"to":"b"' in result.question.message
            rt.answer("k", result.question.id, "again")
            assert (await rt.resume("k")).ok
            assert paid == ["a", "b", "b"]
            assert (await rt.runs.replay("k")).events == rt.runs.verify("k").events

    asyncio.run(scenario())
