"""Limits and priorities of queues and skills, and labels: what a worker takes, and what waits."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn import OSRuntime
from reyn.engines import Serving
from reyn.errors import ConfigInvalid, QueueInvalid
from reyn.journal import Journal, MemoryJournal, Wake, kinds
from reyn.journal.slots import call_next, slots_of
from reyn.journal.wakes import microseconds
from reyn.testing import ScriptedModel
from reyn.testing.journal_suite import begin, row_of
from tests.support import finish, go, two_phases, write_skill

IN = {"text": "in"}
SKILL = "workers: {skill: {pair: {concurrency: 1}}}"


def open_project(root: Path, journal: Journal, text: str = "", model: Any = None) -> OSRuntime:
    two_phases(root)
    write_skill(root, "other", {"only": ["end"]})
    (root / "reyn.yaml").write_text(text)
    model = model or ScriptedModel([go("second"), finish("done")])
    return OSRuntime.open(root, model=model, journal=journal, trust=True)


def test_a_run_over_the_limit_is_queued_with_its_reason_and_executed_when_a_slot_is_free(tmp_path: Path):
    async def scenario() -> None:
        async with open_project(tmp_path, MemoryJournal(), SKILL) as rt:
            journal = rt.services.journal
            rt.submit("pair", IN, run_id="a")
            with journal.claim("skill:pair:0"):
                await rt.workers.serve(once=True)
                assert [one.run_id for one in rt.workers.queued()] == ["a"]
                assert rt.workers.reason(rt.runs.find("a")) == "the limit of the skill `pair` is reached: 1 at once"
            call_next(journal, "skill:pair", 1)
            await rt.workers.serve(once=True)
            assert rt.runs.find("a").status == "finished"
            assert journal.wakes() == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "text",
    ["queue: {default: {concurrency: 2}}", "skill: {pair: {concurrency: 2}}, queue: {default: {concurrency: 3}}"],
)
def test_workers_together_never_exceed_a_limit_and_execute_the_highest_priority_first(tmp_path: Path, text: str):
    order: list[str] = []
    active: set[str] = set()
    most = 0

    class Counting(ScriptedModel):
        async def complete(self, request: Any) -> Any:
            nonlocal most
            if request.run_id not in order:
                order.append(request.run_id)
            active.add(request.run_id)
            most = max(most, len(active))
            for _ in range(5):
                await asyncio.sleep(0)
            active.discard(request.run_id)
            return await super().complete(request)

    async def scenario() -> None:
        journal, model = MemoryJournal(), Counting([go("second"), finish("done")])
        async with open_project(tmp_path, journal, f"workers: {{{text}}}", model) as rt:
            names = [f"{priority}-{number}" for priority in (1, 9, 5) for number in range(4)]
            for name in names:
                rt.submit("pair", IN, run_id=name, priority=int(name[0]))
            workers = [Serving(queues=("default",), concurrency=4, is_once=True) for _ in range(3)]
            await asyncio.gather(*(rt.workers.serve(serving=one) for one in workers))
            assert all(rt.runs.find(name).status == "finished" for name in names)
            assert journal.wakes() == []
            assert most == 2
            # The first two runs take the slots; then the others come by priority.
            assert [name[0] for name in order] == sorted((name[0] for name in order), reverse=True)

    asyncio.run(scenario())


def test_a_run_that_waits_for_a_person_has_no_slot(tmp_path: Path):
    async def scenario() -> None:
        write_skill(tmp_path, "pair", {"ask": ["end"]}, ops={"ask": "ask_user"})
        ask = {"control_ir": [{"kind": "ask_user", "question": "which?"}]}
        model = ScriptedModel([ask, finish("done")])
        (tmp_path / "reyn.yaml").write_text(SKILL)
        async with OSRuntime.open(tmp_path, model=model, journal=MemoryJournal(), trust=True) as rt:
            for name in "ab":
                rt.submit("pair", IN, run_id=name)
            await rt.workers.serve(once=True)
            assert [rt.runs.find(name).status for name in "ab"] == ["waiting", "waiting"]
            wait = rt.runs.find("a").wait
            assert wait is not None
            rt.answer("a", wait.id, "this")
            await rt.workers.serve(once=True)
            assert [rt.runs.find(name).status for name in "ab"] == ["finished", "waiting"]
            assert rt.services.journal.wakes() == []

    asyncio.run(scenario())


def test_runs_in_the_line_of_a_limit_that_was_removed_are_executed(tmp_path: Path):
    async def scenario() -> None:
        journal = MemoryJournal()
        async with open_project(tmp_path, journal, SKILL) as rt:
            rt.submit("pair", IN, run_id="a")
            with journal.claim("skill:pair:0"):
                await rt.workers.serve(once=True)
                async with open_project(tmp_path, journal) as other:
                    await other.workers.serve(once=True)
                    assert other.runs.find("a").status == "finished"
            assert journal.wakes() == []

    asyncio.run(scenario())


def test_the_priority_of_a_run_is_its_own_or_that_of_its_skill_or_of_its_queue(tmp_path: Path):
    text = "workers: {queue: {default: {priority: 3}, slow: {priority: -3}}, skill: {pair: {priority: 7}}}"

    async def scenario() -> None:
        async with open_project(tmp_path, MemoryJournal(), text) as rt:
            assert rt.submit("pair", IN, run_id="a").priority == 7
            assert rt.submit("pair", IN, run_id="b", priority=0).priority == 0
            assert rt.submit("other", IN, run_id="c").priority == 3
            assert rt.submit("other", IN, run_id="d", queue="slow").priority == -3
            assert rt.submit("other", IN, run_id="e", queue="new").priority == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "text",
    [
        "workers: {queue: {default: {concurrency: 0}}}",
        "workers: {skill: {pair: {priority: 1001}}}",
        "workers: {labels: [a b]}",
        "workers: {labels: ['']}",
        "workers: {concurrency: 2}",
    ],
)
def test_invalid_limits_are_refused(tmp_path: Path, text: str):
    with pytest.raises(ConfigInvalid):
        open_project(tmp_path, MemoryJournal(), text)


def test_a_run_that_needs_a_label_is_left_to_a_worker_that_has_it(tmp_path: Path):
    text = "workers: {skill: {pair: {labels: [gpu]}}, labels: [disk]}"

    async def scenario() -> None:
        async with open_project(tmp_path, MemoryJournal(), text) as rt:
            rt.submit("pair", IN, run_id="a")
            without = Serving(queues=("default",), is_once=True)
            await rt.workers.serve(serving=without)
            assert without.labels == ("disk", "project")
            assert without.refusals == {"a": "it needs a worker with the label `gpu`"}
            journal = rt.services.journal
            journal.hold_wakes([one.seq for one in journal.wakes()], 0)
            await rt.workers.serve(serving=Serving(queues=("default",), is_once=True, labels=["gpu"]))
            assert rt.runs.find("a").status == "finished"

    asyncio.run(scenario())


# -- the line of a limit, by generated schedules ------------------------------------------------------------------

KEYS = ("queue:default", "skill:hello")
Step = tuple[int, int]


@given(
    counts=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    priorities=st.lists(st.integers(-1, 1), min_size=1, max_size=8),
    steps=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 2)), max_size=60),
)
def test_no_limit_is_exceeded_nothing_is_stuck_and_nobody_is_overtaken(
    counts: tuple[int, int], priorities: list[int], steps: list[Step]
):
    """Deliver wakes and end runs in any order."""
    journal, running = MemoryJournal(), dict[str, ExitStack]()
    limits, done = dict(zip(KEYS, counts, strict=True)), set[str]()
    for number, priority in enumerate(priorities):
        begin(journal, f"r{number}", kinds.RunSubmitted("default", priority))
        row = row_of(journal, f"r{number}")
        journal.append(row.run_id, row.seq, [], [], [Wake(row.run_id, 0, "default", row.priority)])

    def deliver(choice: int) -> None:
        if not (due := journal.take_wakes(["default"], 99, 0)):
            return
        wake = due[choice % len(due)]
        journal.finish_wakes([wake.seq])
        row = row_of(journal, wake.run_id)
        if row.run_id in done or row.run_id in running:
            return
        stack = ExitStack()
        ahead = [one.run_id for one in journal.first_wakes(KEYS[0], 99) if one.priority > row.priority]
        free = counts[0] - len(running)
        if stack.enter_context(slots_of(journal, row, limits)):
            stack.close()
        else:
            assert len(ahead) < free
            running[row.run_id] = stack

    def end(choice: int) -> None:
        if running:
            run_id = sorted(running)[choice % len(running)]
            done.add(run_id)
            running.pop(run_id).close()

    for choice, kind in steps:
        (end if kind == 0 else deliver)(choice)
        assert len(running) <= min(counts)
    for _ in range(10 * len(priorities)):
        deliver(0)
        end(0)
    assert len(done) == len(priorities)
    assert journal.wakes() == []


def test_a_called_run_that_does_not_come_does_not_keep_its_slot(monkeypatch: pytest.MonkeyPatch):
    journal = MemoryJournal()
    for name in "ab":
        begin(journal, name, kinds.RunSubmitted("default"))
    limits = {"queue:default": 1}
    with journal.claim("queue:default:0"), slots_of(journal, row_of(journal, "a"), limits) as missing:
        assert missing == "queue:default"
    call_next(journal, "queue:default", 1)
    assert [one.queue for one in journal.wakes("a")] == ["queue:default", "default"]
    with slots_of(journal, row_of(journal, "b"), limits) as missing:
        assert missing  # the slot is left for `a`
    now = microseconds() + 10_000_000
    monkeypatch.setattr("reyn.journal.slots.microseconds", lambda: now)
    monkeypatch.setattr("reyn.journal.memory.microseconds", lambda: now)
    with slots_of(journal, row_of(journal, "b"), limits) as missing:
        assert not missing
    assert [one.queue for one in journal.wakes()] == ["queue:default", "default"]


def test_the_queue_is_listed_with_as_many_questions_for_many_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def scenario() -> None:
        async with open_project(tmp_path, MemoryJournal()) as rt:
            for number in range(30):
                rt.submit("pair", IN, run_id=f"r{number:02}")
            asked: list[str] = []
            for name in ("workers", "wakes", "claimed", "is_claimed"):
                method = getattr(MemoryJournal, name)
                monkeypatch.setattr(
                    MemoryJournal, name, lambda *given, name=name, method=method: asked.append(name) or method(*given)
                )
            assert [one.run_id for one in rt.workers.queued()] == [f"r{number:02}" for number in range(30)]
            assert sorted(asked) == ["claimed", "wakes", "workers"]

    asyncio.run(scenario())


def test_a_run_is_submitted_with_labels_of_its_own_and_keeps_those_that_it_has(tmp_path: Path):
    async def scenario() -> None:
        async with open_project(tmp_path, MemoryJournal()) as rt:
            for label in ("", "two words", "-x", "x" * 65):
                with pytest.raises(QueueInvalid):
                    rt.submit("pair", IN, run_id="a", labels=[label])
            assert rt.submit("pair", IN, run_id="a", labels=["gpu", "gpu"]).labels == ("gpu",)
            await rt.workers.serve(serving=Serving(queues=("default",), is_once=True))
            assert rt.runs.find("a").status == "running"
            assert rt.workers.hand_over("a", labels=["big"]).labels == ("gpu", "big")
            rt.services.journal.hold_wakes([one.seq for one in rt.services.journal.wakes()], 0)
            await rt.workers.serve(serving=Serving(queues=("default",), is_once=True, labels=("gpu", "big")))
            assert rt.runs.find("a").status == "finished"

    asyncio.run(scenario())
