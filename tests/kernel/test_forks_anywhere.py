"""A run that died at any event can be forked: nothing unsafe is repeated without a question or a warning."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.functions import tool
from reyn.journal import MemoryJournal
from reyn.models import ModelAnswer
from tests.support import abort, act, finish, go, question, write_skill

OPEN = {"type": "object"}
PAYS = "preprocessor:\n  - run_op: {op: {kind: pay, to: step}}\n"
ITEMS = {"items": [{"text": "ada"}, {"text": "bob"}]}


def ask_and_pay(root: Path) -> None:
    write_skill(root, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "pay, ask_user", "b": "pay"})


def retry(root: Path) -> None:
    keys = "nodes:\n  a: {retry: {max: 2}}\n"
    write_skill(root, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "pay"}, phase_keys={"a": PAYS}, skill_keys=keys)


def handler(root: Path) -> None:
    keys = 'nodes:\n  a: {on_error: {"*": h}}\n'
    graph = {"a": ["b"], "b": ["end"], "h": ["b"]}
    inputs = {"h": "node_error"}
    write_skill(root, "s", graph, ops={"a": "pay"}, phase_keys={"a": PAYS}, skill_keys=keys, inputs=inputs)


def rollback(root: Path) -> None:
    keys = "on_phase_failure: rollback\n"
    write_skill(root, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "pay", "b": "pay"}, skill_keys=keys)


def branches(root: Path, settings: str = "") -> None:
    keys = f"nodes:\n  n: {{each: {{in: data.items, do: lf, output: note, max_parallel: 2}}, as: notes{settings}}}\n"
    graph, inputs = {"n": ["b"], "b": ["end"]}, {"n": "list", "b": "notes"}
    folder = write_skill(root, "s", graph, inputs=inputs, artifacts={"list": OPEN, "notes": OPEN}, skill_keys=keys)
    (folder / "phases/n.md").write_text("---\ntype: phase\nname: n\ninput: list\n---\n")
    (folder / "phases/lf.md").write_text("---\ntype: phase\nname: lf\ninput: note\nallowed_ops: [pay]\n---\nPay.\n")


def repeated_branches(root: Path) -> None:
    branches(root, ", on_item_error: retry")


class Office:
    """A model that pays in every phase that may, asks once, and fails twice where a run can fail."""

    name, answer_form = "office", "full"

    def __init__(self, failures: int) -> None:
        self.paid: list[str] = []
        self.failures = failures
        self.has_asked = False

        @tool(effect="unsafe", permission=None)
        async def pay(to: str) -> str:
            """Pay someone."""
            self.paid.append(to)
            return f"paid {to}"

        self.pay = pay

    async def complete(self, request: Any) -> ModelAnswer:
        answer: Any = self._answer(request)
        return ModelAnswer(answer if isinstance(answer, str) else json.dumps(answer))

    def _answer(self, request: Any) -> Any:
        text = "\n".join(message.text or "" for message in request.messages).replace("\\", "")
        to = request.input["data"].get("text", "all") if request.phase == "lf" else request.phase
        kinds = {spec.kind for spec in request.ops}
        if "pay" in kinds and f"paid {to}" not in text and f'"to":"{to}"' not in text:
            return act({"kind": "pay", "to": to})
        if "ask_user" in kinds and '"ask_user"' not in text.partition("# Results")[2]:
            return act(question("Really?"))
        if self.failures and request.phase in ("a", "lf") and "ask_user" not in kinds:
            self.failures -= 1
            return "no" if self.failures else abort()
        if request.phase in ("a", "h"):
            return go("b")
        return finish(f"did {to}")


def interrupted(journal: MemoryJournal, run: str, upto: int) -> MemoryJournal:
    """Return a journal in which the process of a run died after an event; its children may have gone on."""
    copy = MemoryJournal()
    copy._blobs = dict(journal._blobs)
    runs = [(run, upto)]
    while runs:
        name, end = runs.pop(0)
        events = [event for event in journal.read(name) if event.seq <= end]
        copy.append(name, 0, events, [])
        runs += [(event.data["run"], 10**6) for event in events if event.kind == "child_started"]
    return copy


SCENARIOS = [
    (ask_and_pay, {"text": "in"}, 0),
    (retry, {"text": "in"}, 2),
    (handler, {"text": "in"}, 1),
    (rollback, {"text": "in"}, 0),
    (branches, ITEMS, 0),
    (branches, ITEMS, 1),
    (repeated_branches, ITEMS, 2),
]


@pytest.mark.parametrize(("write", "value", "failures"), SCENARIOS)
def test_a_run_that_died_at_any_event_can_be_forked(tmp_path: Path, write: Any, value: Any, failures: int):
    write(tmp_path)

    async def first(journal: MemoryJournal) -> None:
        office = Office(failures)
        options: dict[str, Any] = {"model": office, "journal": journal, "ops": [office.pay], "trust": True}
        async with OSRuntime.open(tmp_path, max_phase_retries=0, **options) as rt:
            result = await rt.run("s", value, run_id="k")
            while result.status == "waiting":
                rt.answer("k", result.question.id, "failed" if "failed" in str(result.question.suggestions) else "yes")
                result = await rt.resume("k")
            assert office.paid

    async def forked(journal: MemoryJournal, upto: int) -> None:
        office = Office(0)
        options: dict[str, Any] = {"model": office, "journal": journal, "ops": [office.pay], "trust": True}
        begun = {
            json.loads(journal.blob(event.data["args"]))["to"]
            for row in journal.runs()
            for event in journal.read(row.run_id)
            if event.kind == "pay_started"
        }
        async with OSRuntime.open(tmp_path, max_phase_retries=0, **options) as rt:
            result = await rt.fork("k", run_id="f")
            repeated = {*office.paid} & begun
            assert not repeated or any("pay" in warning for warning in result.warnings), (upto, repeated)
            assert result.status in ("finished", "waiting", "failed", "aborted"), (upto, result)
            assert (await rt.runs.replay("f")).events == rt.runs.verify("f").events

    journal = MemoryJournal()
    asyncio.run(first(journal))
    last = max(event.seq for event in journal.read("k"))
    for upto in range(1, last + 1):
        asyncio.run(forked(interrupted(journal, "k", upto), upto))
