"""One project that is killed and resumed: the world around it, the operator, and what speaks against it in the end."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from reyn import OSRuntime, RunResult
from reyn.errors import ReynError, WaitUnknown
from reyn.journal import canonical, digest
from reyn.journal.sqlite import SqliteJournal
from reyn.kernel.live import InboxPolling
from reyn.kernel.ports import SystemClock
from reyn.models import Model, ModelReply, ModelRequest
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

SAID = "yes, go on"
PATIENCE = 20
"""How often an operator moves a run on before it counts as stuck."""
JOURNAL = ("journal.db", "journal.db-wal", "journal.db-shm", "checkpoint.lock", "locks")


class Outcome(NamedTuple):
    """How all runs of a project ended, what they say they were given, and the files they left."""

    runs: dict[str, RunResult]
    claims: dict[str, Claims]
    tree: dict[str, tuple[int, bytes | None]]


class Stuck(Exception):
    """Runs that do not go on, whatever an operator does."""


class Somebody:
    """Answers every question at once."""

    async def ask(self, run_id: str, wait: Any) -> str:
        return SAID


class Breaking(ScriptedModel):
    """Has no answer to one call, the first time."""

    def __init__(self, answers: list, call: str) -> None:
        super().__init__(answers)
        self._call = call

    async def complete(self, request: ModelRequest) -> ModelReply:
        if request.call == self._call:
            self._call = ""
            raise ConnectionError("nobody there")
        return await super().complete(request)


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
        self.runs: list[str] = []
        self.settings: dict[str, Any] = {}
        self.ops: list = []
        self.somebody_is_there = False
        self.breaks_at = ""
        self.points: list[str] = []
        self.seconds = 0.0
        self.expected: Outcome | None = None
        self.changes: set[tuple[str, str]] = set()

    def plays(self, skill: str, answers: list, *, runs: int = 1, **settings: Any) -> Scenario:
        self.skill, self.answers, self.settings = skill, answers, settings
        self.runs = [f"killed-{number}" for number in range(runs)]
        return self

    # -- one drive ------------------------------------------------------------------------------------

    @contextmanager
    def world(self, points: Failpoints) -> Iterator[OSRuntime]:
        """Every port is a failpoint outside and a ledger inside: a kill never falls between a deed and its line."""
        journal = LedgerJournal(SqliteJournal(self.root / ".reyn"), self.ledger)
        people = LedgerPeople(Somebody(), self.ledger) if self.somebody_is_there else None
        runtime = OSRuntime.open(
            self.root,
            journal=points.wrap(journal, "journal"),
            model=points.wrap(LedgerModel(self._model(), self.ledger), "model"),
            clock=points.wrap(SystemClock(), "clock"),
            ids=points.wrap(CountingIds(), "ids"),
            people=people and points.wrap(people, "people"),
            ops=self.ops,
            **self.settings,
        )
        runtime._polling = InboxPolling(seconds=0)  # else time would decide which points there are
        with file_changes_through(points.wrap(LedgerSystem(self.ledger), "os", FILE_CALLS)):
            yield runtime

    def _model(self) -> Model:
        if not self.breaks_at:
            return ScriptedModel(self.answers)
        has_broken = any(entry.what == "refused" for entry in self.ledger.read())
        return Breaking(self.answers, "" if has_broken else self.breaks_at)

    async def drive(self, points: Failpoints) -> None:
        """Start the runs or continue them: with a run id, the same call does both."""
        with self.world(points) as runtime:
            async with runtime:
                results = await asyncio.gather(*(self._operate(runtime, run) for run in self.runs))
                if stopped := [result for result in results if not result.ok]:
                    raise Stuck(stopped)

    async def _operate(self, runtime: OSRuntime, run: str) -> RunResult:
        """What an operator would do: start or continue; answer, retry what failed, raise what is limited."""
        result = await runtime.run(self.skill, {"text": "in"}, run_id=run)
        for _ in range(PATIENCE):
            if result.status not in ("failed", "limited", "waiting"):
                break
            result = await self._move_on(runtime, result)
        return result

    async def _move_on(self, runtime: OSRuntime, stopped: RunResult) -> RunResult:
        run = stopped.run_id
        if stopped.status == "limited":
            limit, value = runtime.state(run).stop.limit
            return await runtime.resume(run, raise_limits={limit: value + 1})
        if stopped.status == "waiting" and not self.somebody_is_there:
            wait = stopped.wait
            self.ledger.write(Entry("said", wait.run or run, wait.id, digest(canonical(SAID))))
            with suppress(WaitUnknown):  # answered before the kill
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
        self.changes = set(changes_in(self.ledger.read()))
        self.seconds = self._time_once_warm()
        return self.points

    def _time_once_warm(self) -> float:
        """How long a drive takes that is like those that are killed: the first one of a process takes much longer."""
        self.forget()
        began = time.monotonic()
        assert self.drive_in_child() == 0
        return time.monotonic() - began

    def forget(self) -> None:
        """Back to the beginning."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.seed, self.root)
        self.ledger_path.unlink(missing_ok=True)

    def _look(self) -> Outcome:
        """How all runs stand, verified and replayed, and the files there are."""
        runtime = OSRuntime.open(self.root, ops=self.ops)
        try:
            found = {row.run_id: runtime.result(row.run_id) for row in runtime.runs()}
            claims = {run: Claims.of(runtime.events(run)) for run in found}
            asyncio.run(self._prove(runtime, found))
        finally:
            runtime.journal.close()
        return Outcome(found, claims, tree_of(self.root))

    async def _prove(self, runtime: OSRuntime, found: dict[str, RunResult]) -> None:
        for run, result in found.items():
            runtime.verify(run)
            assert (await runtime.replay(run)).status == result.status

    # -- what speaks against it -----------------------------------------------------------------------

    def check(self, kills: int, *, by_chance: bool = False) -> list[str]:
        """What is wrong after kills and resumes: the ledger first, then the files and the runs' own record."""
        assert self.expected is not None
        entries = self.ledger.read()
        try:
            found = self._look()
        except ReynError as error:
            return [f"the record is not sound: {error.code}: {error.message}", *self.files_differ()]
        return [
            *_speak_against(entries, found.claims, kills),
            *file_violations(entries, self.changes, by_chance=by_chance),
            *_differences("file", self.expected.tree, found.tree),
            *_differences("run", self.expected.runs, found.runs),
        ]

    def files_differ(self) -> list[str]:
        assert self.expected is not None
        return _differences("file", self.expected.tree, tree_of(self.root))

    def resume(self, kills: int) -> list[str]:
        """Drive to the end and check. Nobody is killed any more, so it is done here: this is another process, too."""
        try:
            asyncio.run(self.drive(Failpoints()))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is held against the run
            return [f"the run is stuck: {type(error).__name__}: {error}"]
        return self.check(kills)

    def kill_at(self, number: int) -> list[str]:
        """Kill at one point, resume, check."""
        self.forget()
        name = f"{number} {self.points[number - 1]}"
        killed = self.drive_in_child(kill_at=number)
        # How many commits runs share is a matter of timing: the last points may not come up every time.
        assert killed == KILLED or (killed == 0 and len(self.runs) > 1), f"{name}: {killed}"
        return self.resume(kills=1)

    def kill_everywhere(self, share: int = 0, of: int = 1) -> dict[str, list[str]]:
        """Kill at every point of an undisturbed drive, or at one share of them: point → what was wrong."""
        points = self.rehearse()
        assert len(points) > 20
        wrong = {"no kill at all": found} if (found := self.check(kills=0)) else {}
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


def _speak_against(entries: list[Entry], claims: dict[str, Claims], kills: int) -> list[str]:
    wrong = [
        f"run {run} was lost: the journal does not know it" for run in {e.run for e in entries if e.run} - claims.keys()
    ]
    for run, claimed in claims.items():
        wrong += [f"{run}: {line}" for line in violations([e for e in entries if e.run == run], claimed, kills)]
    return wrong


def _differences(what: str, expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    return [
        f"{what} `{name}` is {found.get(name)}, not {expected.get(name)}"
        for name in sorted(expected.keys() | found.keys())
        if expected.get(name) != found.get(name)
    ]
