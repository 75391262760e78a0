"""One project that is killed and resumed: the world around it, the operator, and what speaks against it in the end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from reyn import OSRuntime, RunResult
from reyn.journal import canonical, digest
from reyn.journal.sqlite import SqliteJournal
from reyn.kernel.ports import SystemClock
from reyn.testing import CountingIds, ScriptedModel
from reyn.testing.crash import (
    FILE_CALLS,
    KILLED,
    Claims,
    Entry,
    Failpoints,
    Ledger,
    LedgerJournal,
    LedgerModel,
    LedgerPeople,
    LedgerSystem,
    changes_in,
    file_changes_through,
    file_violations,
    in_child,
    violations,
)
from reyn.vocabulary import STANDARD, Vocabulary

RUN = "killed"
SAID = "yes, go on"
JOURNAL = ("journal.db", "journal.db-wal", "journal.db-shm", "checkpoint.lock", "locks")


class Outcome(NamedTuple):
    """How all runs of a project ended, and the files they left."""

    runs: dict[str, RunResult]
    tree: dict[str, tuple[int, bytes | None]]


class Somebody:
    """Answers every question at once."""

    async def ask(self, run_id: str, wait: Any) -> str:
        return SAID


class Scenario:
    """`folder/seed` is how the project begins, `folder/project` is the one that is tormented."""

    def __init__(self, folder: Path) -> None:
        self.seed = folder / "seed"
        self.root = folder / "project"
        self.ledger_path = folder / "ledger.jsonl"
        self.ledger = Ledger(self.ledger_path)
        self.seed.mkdir(parents=True)
        self.skill = ""
        self.answers: list = []
        self.runs = [RUN]
        self.settings: dict[str, Any] = {}
        self.vocabulary: Vocabulary = STANDARD
        self.somebody_is_there = False
        self.points: list[str] = []
        self.expected: Outcome | None = None
        self.changes: set[tuple[str, str]] = set()

    def plays(self, skill: str, answers: list, *, runs: int = 1, **settings: Any) -> Scenario:
        self.skill, self.answers, self.settings = skill, answers, settings
        self.runs = [f"{RUN}-{number}" for number in range(runs)]
        return self

    # -- one drive ------------------------------------------------------------------------------------

    @contextmanager
    def _world(self, points: Failpoints) -> Iterator[OSRuntime]:
        """Every port is a failpoint outside and a ledger inside: a kill never falls between a deed and its line."""
        journal = LedgerJournal(SqliteJournal(self.root / ".reyn"), self.ledger)
        people = LedgerPeople(Somebody(), self.ledger) if self.somebody_is_there else None
        runtime = OSRuntime.open(
            self.root,
            journal=points.wrap(journal, "journal"),
            model=points.wrap(LedgerModel(ScriptedModel(self.answers), self.ledger), "model"),
            clock=points.wrap(SystemClock(), "clock"),
            ids=points.wrap(CountingIds(), "ids"),
            people=people and points.wrap(people, "people"),
            vocabulary=self.vocabulary,
            **self.settings,
        )
        with file_changes_through(points.wrap(LedgerSystem(self.ledger), "os", FILE_CALLS)):
            yield runtime

    async def drive(self, points: Failpoints) -> None:
        """Start the runs or continue them: with a run id, the same call does both."""
        with self._world(points) as runtime:
            async with runtime:
                results = await asyncio.gather(*(self._operate(runtime, run) for run in self.runs))
                assert all(result.ok for result in results), results

    async def _operate(self, runtime: OSRuntime, run: str) -> RunResult:
        """What an operator would do: start or continue; answer, retry what failed, raise what is limited."""
        result = await runtime.run(self.skill, {"text": "in"}, run_id=run)
        while result.status in ("failed", "limited", "waiting"):
            result = await self._move_on(runtime, result)
        return result

    async def _move_on(self, runtime: OSRuntime, stopped: RunResult) -> RunResult:
        run = stopped.run_id
        if stopped.status == "limited":
            limit, value = runtime.state(run).reached
            return await runtime.resume(run, raise_limits={limit: value + 1})
        if stopped.status == "waiting" and not self.somebody_is_there:
            wait = stopped.wait
            self.ledger.write(Entry("said", wait.run or run, wait.id, digest(canonical(SAID))))
            runtime.answer(run, wait.id, SAID)
        return await runtime.resume(run, retry=stopped.status == "failed")

    def drive_in_child(self, kill_at: int = 0, kill_after: float | None = None) -> int:
        return in_child(lambda: asyncio.run(self.drive(Failpoints(kill_at))), kill_after=kill_after)

    # -- what is expected -----------------------------------------------------------------------------

    def rehearse(self) -> list[str]:
        """Drive once, undisturbed: the points that are passed, and how everything ends. It warms us up for forking."""
        self.forget()
        points = Failpoints()
        asyncio.run(self.drive(points))
        self.points, self.expected = points.passed, self._look()
        entries = self.ledger.read()
        assert self._speak_against(self.expected, entries, kills=0) == []
        self.changes = set(changes_in(entries))
        return self.points

    def forget(self) -> None:
        """Back to the beginning."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.seed, self.root)
        self.ledger_path.unlink(missing_ok=True)

    def _look(self) -> Outcome:
        """How all runs stand, verified and replayed, and the files there are."""
        runtime = OSRuntime.open(self.root, vocabulary=self.vocabulary)
        try:
            found = {row.run_id: runtime.result(row.run_id) for row in runtime.runs()}
            for run, result in found.items():
                runtime.verify(run)
                assert asyncio.run(runtime.replay(run)).status == result.status
        finally:
            runtime.journal.close()
        return Outcome(found, tree_of(self.root))

    def _claims(self) -> dict[str, Claims]:
        runtime = OSRuntime.open(self.root)
        try:
            return {row.run_id: Claims.of(runtime.events(row.run_id)) for row in runtime.runs()}
        finally:
            runtime.journal.close()

    # -- what speaks against it -----------------------------------------------------------------------

    def check(self, kills: int, *, by_chance: bool = False) -> list[str]:
        """What is wrong after kills and resumes: the ledger first, then the files and the runs' own record."""
        assert self.expected is not None
        entries, found = self.ledger.read(), self._look()
        return [
            *self._speak_against(found, entries, kills),
            *file_violations(entries, self.changes, by_chance=by_chance),
            *_differences("file", self.expected.tree, found.tree),
            *_differences("run", self.expected.runs, found.runs),
        ]

    def _speak_against(self, found: Outcome, entries: list[Entry], kills: int) -> list[str]:
        claims = self._claims()
        wrong = [f"run {run} is unknown to the journal" for run in {e.run for e in entries if e.run} - claims.keys()]
        for run, claimed in claims.items():
            wrong += [f"{run}: {line}" for line in violations([e for e in entries if e.run == run], claimed, kills)]
        return wrong

    def kill_at(self, number: int) -> list[str]:
        """Kill at one point, resume, check."""
        self.forget()
        name = f"{number} {self.points[number - 1]}"
        killed = self.drive_in_child(kill_at=number)
        # How many commits runs share is a matter of timing: the last points may not come up every time.
        assert killed == KILLED or (killed == 0 and len(self.runs) > 1), f"{name}: {killed}"
        resumed = self.drive_in_child()
        assert resumed == 0, f"after a kill at {name}, the resume ended with {resumed}"
        return self.check(kills=1)

    def kill_everywhere(self, share: int = 0, of: int = 1) -> dict[str, list[str]]:
        """Kill at every point of an undisturbed drive, or at one share of them: point → what was wrong."""
        points = self.rehearse()
        assert len(points) > 20
        wrong = {}
        for number in range(share + 1, len(points) + 1, of):
            if found := self.kill_at(number):
                wrong[f"{number} {points[number - 1]}"] = found
        return wrong


def tree_of(root: Path) -> dict[str, tuple[int, bytes | None]]:
    """Every file and folder but the journal's own: permission bits and content, by path."""
    hidden = {root / ".reyn" / name for name in JOURNAL}
    found = {}
    for path in sorted(root.rglob("*")):
        if not hidden.isdisjoint((path, *path.parents)):
            continue
        found[str(path.relative_to(root))] = (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
    return found


def _differences(what: str, expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    return [
        f"{what} `{name}` is {found.get(name)}, not {expected.get(name)}"
        for name in sorted(expected.keys() | found.keys())
        if expected.get(name) != found.get(name)
    ]
