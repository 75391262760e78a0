"""A run killed at any port call loses nothing and asks for nothing twice; a kernel broken on purpose is caught."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reyn import OSRuntime, RunResult
from reyn.journal import kinds
from reyn.journal.canonical import Blob
from reyn.journal.sqlite import SqliteJournal
from reyn.kernel.driver import Driver
from reyn.kernel.live import LiveWorld
from reyn.kernel.ports import SystemClock
from reyn.testing import CountingIds, ScriptedModel
from reyn.testing.crash import Failpoints, Ledger, LedgerJournal, LedgerModel, enumerate_points, in_child, violations
from tests.support import finish, go, two_phases, write_skill

RUN = "killed"
KILLED = -9


class Scenario:
    """One project, one run, and a world that notes in a ledger what it is asked to do."""

    def __init__(self, root: Path, skill: str, answers: list, runs: int = 1, **settings) -> None:
        self.root = root
        self.settings = settings
        self.runs = [f"{RUN}-{number}" for number in range(runs)]
        self.skill = skill
        self.answers = answers
        self.ledger = Ledger(root / "ledger.jsonl")

    async def drive(self, points: Failpoints) -> None:
        """Start the run or continue it: with a run id, the same call does both."""
        journal = LedgerJournal(SqliteJournal(self.root / ".reyn"), self.ledger)
        model = LedgerModel(ScriptedModel(self.answers), self.ledger)
        runtime = OSRuntime.open(
            self.root,
            journal=points.wrap(journal, "journal"),
            model=points.wrap(model, "model"),
            clock=points.wrap(SystemClock(), "clock"),
            ids=points.wrap(CountingIds(), "ids"),
            **self.settings,
        )
        async with runtime:
            results = await asyncio.gather(*(self.operate(runtime, run) for run in self.runs))
            assert all(result.ok for result in results), results

    async def operate(self, runtime: OSRuntime, run: str) -> RunResult:
        """What an operator would do: start or continue; retry what failed, raise what is limited."""
        result = await runtime.run(self.skill, {"text": "in"}, run_id=run)
        while result.status in ("failed", "limited"):
            visits = result.path.count(result.path[-1])
            raised = {"max_phase_visits": visits + 1} if result.status == "limited" else None
            result = await runtime.resume(run, retry=result.status == "failed", raise_limits=raised)
        return result

    def forget(self) -> None:
        shutil.rmtree(self.root / ".reyn", ignore_errors=True)
        (self.root / "ledger.jsonl").unlink(missing_ok=True)

    def check(self, kills: int) -> list[str]:
        """What speaks against the runs now: the ledger first, then their own record."""
        runtime = OSRuntime.open(self.root)
        try:
            return [wrong for run in self.runs for wrong in self._check(runtime, run, kills)]
        finally:
            runtime.journal.close()

    def _check(self, runtime: OSRuntime, run: str, kills: int) -> list[str]:
        claimed = {
            event.data["call"]: event.data["text"]
            for event in runtime.events(run)
            if event.kind == kinds.LlmResponded.kind
        }
        found = violations([entry for entry in self.ledger.read() if entry.run == run], claimed, kills)
        runtime.verify(run)
        assert asyncio.run(runtime.replay(run)).status == "finished"
        return found

    def kill_everywhere(self) -> dict[str, list[str]]:
        """Kill at every point of an undisturbed run, resume, check: point → what was wrong."""
        points = enumerate_points(self.drive, self.root / "trace")
        wrong = {}
        for number, name in enumerate(points, start=1):
            self.forget()
            killed = in_child(lambda number=number: asyncio.run(self.drive(Failpoints(kill_at=number))))
            # How many commits runs share is a matter of timing: the last points may not come up every time.
            assert killed == KILLED or (killed == 0 and len(self.runs) > 1), f"{name}: {killed}"
            resumed = in_child(lambda: asyncio.run(self.drive(Failpoints())))
            assert resumed == 0, f"after a kill at {name}, the resume ended with {resumed}"
            if found := self.check(kills=1):
                wrong[f"{number} {name}"] = found
        assert len(points) > 20
        return wrong


def pair(root: Path) -> Scenario:
    two_phases(root)
    return Scenario(root, "pair", [go("second"), finish()])


def rejected_and_looping(root: Path) -> Scenario:
    write_skill(root, "loop", {"write": ["check"], "check": ["write", "end"]})
    answers = [go("check"), "no JSON at all", go("nowhere"), go("write", "again"), go("check"), finish()]
    return Scenario(root, "loop", answers)


def three_at_once(root: Path) -> Scenario:
    """Commits are shared and made in a worker thread."""
    two_phases(root)
    return Scenario(root, "pair", [go("second"), finish()], runs=3)


def stopping_and_going_on(root: Path) -> Scenario:
    """Fails, is retried, reaches a limit, has it raised: what is said from outside goes through the inbox."""
    write_skill(root, "stop", {"turn": ["turn", "end"]})
    answers = ["no", "no", go("turn", "1"), go("turn", "2"), finish()]
    return Scenario(root, "stop", answers, max_phase_retries=1, max_phase_visits=2)


@pytest.mark.parametrize("make", [pair, rejected_and_looping, three_at_once, stopping_and_going_on])
def test_a_kill_at_any_port_call_loses_nothing(tmp_path: Path, make: Callable[[Path], Scenario]) -> None:
    assert make(tmp_path).kill_everywhere() == {}


def test_a_resume_that_is_killed_too_loses_nothing(tmp_path: Path) -> None:
    scenario = rejected_and_looping(tmp_path)
    count = len(enumerate_points(scenario.drive, tmp_path / "trace"))
    chance = random.Random(7)
    for _ in range(60):
        scenario.forget()
        kills = 0
        for at in (chance.randrange(1, count), chance.randrange(1, count // 2), chance.randrange(1, count // 2)):
            kills += in_child(lambda at=at: asyncio.run(scenario.drive(Failpoints(kill_at=at)))) == KILLED
        assert in_child(lambda: asyncio.run(scenario.drive(Failpoints()))) == 0
        assert scenario.check(kills) == []


def test_kills_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    scenario = rejected_and_looping(tmp_path)
    chance = random.Random(11)
    for _ in range(30):
        scenario.forget()
        kills, ended = 0, False
        while not ended:
            after = chance.uniform(0, 0.04)
            status = in_child(lambda: asyncio.run(scenario.drive(Failpoints())), kill_after=after)
            kills, ended = kills + (status == KILLED), status == 0
        assert scenario.check(kills) == []


# -- the harness can fail ---------------------------------------------------------------------------------


def test_a_kernel_that_commits_the_outcome_before_the_effect_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = pair(tmp_path)

    async def outcome_first(self: Driver, effect):
        await self.world.flush(self.tape)
        text = Blob.of(ScriptedModel(scenario.answers)._answers[self.tape.state.answers].encode())
        outcome = kinds.LlmResponded(effect.key, text.hash)
        self.tape.record(outcome, self.world.now(), text)
        await self.world.flush(self.tape)
        await self.world.perform(effect, self.tape)
        return outcome

    monkeypatch.setattr(Driver, "_perform", outcome_first)
    wrong = scenario.kill_everywhere()
    assert any("that nobody gave" in line for found in wrong.values() for line in found), wrong


def test_a_kernel_that_does_not_flush_before_an_effect_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = pair(tmp_path)
    flush = LiveWorld.flush

    async def flush_only_at_the_end(self: LiveWorld, tape) -> None:
        if tape.state.status != "running":
            await flush(self, tape)

    monkeypatch.setattr(LiveWorld, "flush", flush_only_at_the_end)
    wrong = scenario.kill_everywhere()
    assert any("its answer was lost" in line for found in wrong.values() for line in found), wrong
