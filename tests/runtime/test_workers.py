"""Submitted runs and workers, in one process."""

from __future__ import annotations

import asyncio
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reyn import OSRuntime
from reyn.chat.services.snapshot_journal import read_messages
from reyn.engines import Serving
from reyn.errors import QueueInvalid, RunBusy, RunIdTaken, RunNotResumable, SandboxUnavailable
from reyn.journal import MemoryJournal, decode, kinds
from reyn.journal.listing import RunQuery
from reyn.journal.registry import GENESIS, chain_events
from reyn.runs import reading
from reyn.runtime.submitting import MAX_TAKEOVERS, REFUSED_SECONDS, drive
from reyn.testing import ScriptedModel, SteppingClock
from tests.chat.support import Agent
from tests.models.calling import until
from tests.support import act, finish, go, question, two_phases, write_skill

IN = {"text": "in"}


def open_pair(root: Path, journal: Any = None, **options: Any) -> OSRuntime:
    two_phases(root)
    write_skill(root, "asking", {"ask": ["end"]}, ops={"ask": "ask_user"})
    write_skill(root, "above", {"call": ["end"]}, ops={"call": "run_skill"})
    options = {"model": ScriptedModel([go("second"), finish("done")])} | options
    return OSRuntime.open(root, journal=journal or MemoryJournal(), trust=True, **options)


def status(rt: OSRuntime, run_id: str) -> str:
    return rt.runs.display_status(rt.runs.find(run_id))


def test_a_submitted_run_is_queued_until_a_worker_executes_it(tmp_path: Path):
    async def scenario() -> None:
        async with open_pair(tmp_path) as rt:
            row = rt.submit("pair", IN, run_id="a", priority=2)
            assert (row.queue, row.priority, status(rt, "a")) == ("default", 2, "queued")
            assert rt.workers.reason(row) == "no worker serves the queue `default`"
            assert [one.run_id for one in rt.workers.queued()] == ["a"]
            assert rt.runs.next_action(row) is None
            await rt.workers.serve(once=True)
            assert status(rt, "a") == "finished"
            assert rt.workers.queued() == rt.workers.all() == rt.services.journal.wakes() == []
            assert (await rt.runs.replay("a")).events == rt.runs.find("a").seq
            rt.runs.verify("a")

    asyncio.run(scenario())


def test_submitting_twice_submits_once(tmp_path: Path):
    async def scenario() -> None:
        async with open_pair(tmp_path) as rt:
            first = rt.submit("pair", IN, run_id="a")
            assert rt.submit("pair", IN, run_id="a") == first
            with pytest.raises(RunIdTaken):
                rt.submit("pair", {"text": "other"}, run_id="a")
            await rt.workers.serve(once=True)
            assert rt.submit("pair", IN, run_id="a").status == "finished"
            assert [event.kind for event in rt.runs.events("a")].count("run_submitted") == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["", "two words", "a/b", "x" * 300])
def test_an_invalid_queue_submits_nothing(tmp_path: Path, name: str):
    async def scenario() -> None:
        async with open_pair(tmp_path) as rt:
            with pytest.raises(QueueInvalid):
                rt.submit("pair", IN, run_id="a", queue=name)
            with pytest.raises(QueueInvalid):
                rt.submit("pair", IN, run_id="a", priority=10**6)
            assert not rt.runs.is_recorded("a")

    asyncio.run(scenario())


def test_the_answer_to_a_submitted_run_is_posted_and_a_worker_continues_the_run(tmp_path: Path):
    async def scenario() -> None:
        async with open_pair(tmp_path, model=ScriptedModel([act(question("which?")), finish("done")])) as rt:
            rt.submit("asking", IN, run_id="a")
            await rt.workers.serve(once=True)
            assert status(rt, "a") == "waiting"
            wait = rt.runs.find("a").wait
            assert wait is not None
            posted = rt.answer("a", wait.id, "this")
            assert posted.is_claimed
            assert await rt.resume_answered(posted) is None
            assert status(rt, "a") == "waiting"
            await rt.workers.serve(once=True)
            assert status(rt, "a") == "finished"

    asyncio.run(scenario())


def test_a_run_in_place_stays_with_its_owner_until_it_is_handed_over(tmp_path: Path):
    async def scenario() -> None:
        async with open_pair(tmp_path, model=ScriptedModel([act(question("which?")), finish("done")])) as rt:
            assert (await rt.run("asking", IN, run_id="a")).status == "waiting"
            wait = rt.runs.find("a").wait
            assert wait is not None
            assert not rt.answer("a", wait.id, "this").is_claimed
            await rt.workers.serve(once=True)
            assert status(rt, "a") == "waiting"
            with rt.services.journal.claim("a"), pytest.raises(RunBusy):
                rt.workers.hand_over("a")
            rt.workers.hand_over("a", queue="other")
            await rt.workers.serve(once=True)
            assert status(rt, "a") == "waiting"
            await rt.workers.serve(["other"], once=True)
            assert status(rt, "a") == "finished"
            with pytest.raises(RunNotResumable):
                rt.workers.hand_over("a")

    asyncio.run(scenario())


def test_a_call_with_the_id_of_a_queued_run_waits_for_a_worker(tmp_path: Path):
    async def scenario() -> None:
        async with open_pair(tmp_path) as rt:
            rt.submit("pair", IN, run_id="a")
            assert (await rt.run("pair", IN, run_id="a", wait=False)).status == "running"
            watched = asyncio.create_task(_listed(rt.runs.watch("a")))
            waiting = asyncio.create_task(rt.run("pair", IN, run_id="a"))
            await asyncio.sleep(0)
            await rt.workers.serve(once=True)
            assert (await waiting).status == "finished"
            assert (await watched)[-1].kind == "skill_completed"
            assert [event.kind for event in rt.runs.events("a")].count("run_resumed") == 1

    asyncio.run(scenario())


async def _listed(events: Any) -> list[Any]:
    return [event async for event in events]


def test_one_slot_executes_a_run_with_a_sub_run(tmp_path: Path):
    async def scenario() -> None:
        call = act({"kind": "run_skill", "skill": "pair", "input": IN})
        model = ScriptedModel([call, go("second"), finish("done"), finish("all")])
        async with open_pair(tmp_path, model=model) as rt:
            rt.submit("above", IN, run_id="a")
            async with asyncio.timeout(60):
                await rt.workers.serve(once=True, concurrency=1)
            assert status(rt, "a") == "finished"

    asyncio.run(scenario())


def test_a_cancelled_run_is_not_executed(tmp_path: Path):
    async def scenario() -> None:
        async with open_pair(tmp_path) as rt:
            rt.submit("pair", IN, run_id="a")
            rt.cancel("a", "not needed")
            await rt.workers.serve(once=True)
            assert status(rt, "a") == "cancelled"
            assert "run_resumed" not in [event.kind for event in rt.runs.events("a")]

    asyncio.run(scenario())


def test_a_question_that_expires_wakes_a_worker_at_that_time(tmp_path: Path):
    async def scenario() -> None:
        clock = SteppingClock()
        async with open_pair(tmp_path, clock=clock) as rt:
            row, journal = rt.submit("pair", IN, run_id="a"), rt.services.journal
            wait = kinds.Question("w", "approval", "may it?", {}, clock.now() + 60_000_000)
            journal.append("a", row.seq, chain_events("a", [kinds.WaitOpened(wait)], row.seq, row.hash, row.updated))
            [before] = journal.wakes()
            await rt.workers.serve(once=True)
            [wake] = journal.wakes()
            assert before.held_until == 0
            assert 50_000_000 < wake.held_until - time.time_ns() // 1000 <= 60_000_000
            assert status(rt, "a") == "waiting"

    asyncio.run(scenario())


def test_a_run_whose_drivers_die_is_set_aside_with_the_reason(tmp_path: Path):
    async def scenario() -> None:
        async with open_pair(tmp_path) as rt:
            rt.submit("pair", IN, run_id="a")
            journal = rt.services.journal
            for number in range(MAX_TAKEOVERS):
                row = rt.runs.find("a")
                died = chain_events("a", [kinds.RunResumed(f"d{number}")], row.seq, row.hash, row.updated)
                journal.append("a", row.seq, died)
            await rt.workers.serve(once=True)
            result = rt.runs.result("a")
            assert (result.status, result.code) == ("failed", "RYN441")
            assert f"{MAX_TAKEOVERS} processes" in result.reason
            assert (await rt.resume("a", retry=True)).status == "finished"

    asyncio.run(scenario())


def test_a_worker_without_the_model_of_a_run_leaves_it_to_others_and_says_why(tmp_path: Path):
    async def scenario() -> None:
        journal = MemoryJournal()
        async with open_pair(tmp_path, journal) as rt:
            rt.submit("pair", IN, run_id="a")
        async with OSRuntime.open(tmp_path, journal=journal, trust=True) as without:
            serving = Serving(queues=("default",))
            serve = asyncio.create_task(without.workers.serve(serving=serving))
            async with asyncio.timeout(60):
                while not any(one.refusals for one in without.workers.all()):  # noqa: ASYNC110 - reported at times
                    await asyncio.sleep(0.02)
            assert without.workers.reason(without.runs.find("a")).startswith("no worker can execute it: RYN5")
            assert status(without, "a") == "queued"
            serving.stop.set()
            await serve
        async with open_pair(tmp_path, journal) as rt:
            rt.services.journal.hold_wakes([one.seq for one in journal.wakes()], 0)
            await rt.workers.serve(once=True)
            assert status(rt, "a") == "finished"

    asyncio.run(scenario())


STEP = (
    "preprocessor:\n  - python: {module: ./count.py, function: count, into: data.n, output_schema: {type: integer}}\n"
)
MAY = "permissions:\n  exec: true\n  python: [{module: ./count.py, function: count}]\n"
COUNT = "def count(artifact):\n    return 1\n"


@pytest.mark.parametrize(
    ("source", "ops", "config", "needs"),
    [
        (COUNT, {}, "", False),
        (COUNT, {"only": "sandboxed_exec"}, "", True),
        (COUNT, {}, "python: {sandbox: process}", True),
        (f"import ctypes\n{COUNT}", {}, "", True),
    ],
)
def test_a_worker_without_the_sandbox_that_a_run_needs_leaves_it_to_others(
    tmp_path: Path, source: str, ops: dict[str, str], config: str, needs: bool, monkeypatch: pytest.MonkeyPatch
):
    folder = write_skill(tmp_path, "apart", {"only": ["end"]}, ops=ops, phase_keys={"only": STEP}, skill_keys=MAY)
    (folder / "count.py").write_text(source)
    (tmp_path / "reyn.yaml").write_text(config)

    def choose(_: str) -> Any:
        raise SandboxUnavailable("there is no sandbox")

    async def scenario() -> None:
        ports: dict[str, Any] = {"model": ScriptedModel([finish("done")]), "journal": MemoryJournal()}
        async with OSRuntime.open(tmp_path, trust=True, **ports) as rt:
            rt.submit("apart", IN, run_id="a")
            monkeypatch.setattr("reyn.sandbox.choose_backend", choose)
            serving = Serving(queues=("default",))
            seconds = await drive(rt._executor, "a", serving)
            if not needs:
                assert "no sandbox" not in str(serving.refusals)
                return
            assert seconds == REFUSED_SECONDS
            assert serving.refusals["a"].startswith("RYN330: ")
            assert serving.refusals["a"].endswith("and there is no sandbox")
            assert [one.kind for one in rt.runs.events("a")][-1] == "run_submitted", "nothing was executed"
            monkeypatch.undo()
            await drive(rt._executor, "a", serving)
            assert serving.refusals == {}

    asyncio.run(scenario())


def test_workers_execute_high_priorities_first(tmp_path: Path):
    async def scenario() -> None:
        async with open_pair(tmp_path, model=ScriptedModel([go("second"), finish("done")])) as rt:
            for number, priority in enumerate((0, 5, -1, 5)):
                rt.submit("pair", {"text": f"in {number}"}, run_id=f"r{number}", priority=priority)
            await rt.workers.serve(once=True)
            ended = [(decode(next(_last(rt, f"r{number}"))), number) for number in range(4)]
            assert all(isinstance(body, kinds.SkillCompleted) for body, _ in ended)
            order = sorted(range(4), key=lambda number: next(_last(rt, f"r{number}")).ts)
            assert order == [1, 3, 0, 2]

    asyncio.run(scenario())


def test_the_turn_of_a_submitted_conversation_is_aborted_from_elsewhere_and_the_conversation_goes_on(tmp_path: Path):
    async def never(_: Any) -> Any:
        await asyncio.Event().wait()

    async def scenario() -> None:
        model, journal = Agent(forever=never), MemoryJournal()
        desk, worker = (OSRuntime.open(tmp_path, model=model, journal=journal, trust=True) for _ in range(2))
        async with desk, worker:
            desk.submit("chat", {"text": "hello"}, run_id="c")
            serving = asyncio.ensure_future(worker.workers.serve())
            await until(lambda: status(desk, "c") == "waiting")
            desk.conversations.say("c", "talk forever")
            await until(lambda: len(model.seen) == 2)
            desk.conversations.abort_turn("c", "enough")
            await until(lambda: status(desk, "c") == "waiting")
            desk.conversations.say("c", "hello again")
            await until(lambda: len(model.seen) == 3 and status(desk, "c") == "waiting")
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            kinds_of = [event.kind for event in desk.runs.events("c")]
            assert (kinds_of.count("turn_aborted"), kinds_of.count("phase_completed")) == (1, 2)
            assert [one.text for one in read_messages(desk.runs.events("c"), desk.runs.content)][-1].endswith("again")
            assert (await desk.runs.replay("c")).events == desk.runs.find("c").seq

    asyncio.run(scenario())


def _last(rt: OSRuntime, run_id: str) -> Any:
    return reversed(list(rt.runs.events(run_id)))


SHOWN = ("finished", "queued", "interrupted", "blocked", "running", "failed")
"""Statuses, some of which are recorded, some only shown."""


@pytest.mark.parametrize("count", range(1, len(SHOWN) + 1))
def test_runs_are_listed_by_any_statuses_recorded_or_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(reading, "_PAGE", 3)

    async def scenario() -> None:
        async with open_pair(tmp_path) as rt:
            journal = rt.services.journal
            for number in range(4):
                assert (await rt.run("pair", IN, run_id=f"finished-{number}")).ok
                rt.submit("pair", IN, run_id=f"queued-{number}")
                for kind, rules in (("interrupted", 1), ("blocked", 99)):
                    start = msgspec.structs.replace(decode(next(rt.runs.events("finished-0"))), rules=rules)
                    name = f"{kind}-{number}"
                    journal.append(name, 0, chain_events(name, [start], 0, GENESIS, number))
            every = rt.runs.all()
            assert len(every) == 16
            for wanted in combinations(SHOWN, count):
                expected = {
                    row.run_id for row in every if row.status in wanted or row.run_id.partition("-")[0] in wanted
                }
                query = RunQuery(wanted)
                listed = [row.run_id for row in rt.runs.select(query)]
                assert listed == [row.run_id for row in every if row.run_id in expected]
                assert [row.run_id for row in rt.runs.page(query, limit=2).rows] == listed[:2]

    asyncio.run(scenario())
