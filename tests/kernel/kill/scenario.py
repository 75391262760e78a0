"""A project that is killed and resumed: its world, its operator, and the checks at the end."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from reyn import OSRuntime, RunResult, Usage
from reyn.config.budgets import BUDGET_LIMITS
from reyn.errors import QuestionUnknown, ReynError
from reyn.journal import canonical, decode, digest, kinds
from reyn.journal.sqlite import SqliteJournal
from reyn.kernel.runtime_types import Clock, SystemClock
from reyn.kernel.world.inbox import InboxPolling
from reyn.models import Model, ModelAnswer, ModelRequest
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
from tests.properties import ALL_CASES

ANSWER = "yes, go on"
USAGE = Usage(100, 20)
MAX_ATTEMPTS = 20
"""How often the operator continues a run before it counts as stuck."""
KILL_STEP = 1 if os.environ.get("KILL_EVERYWHERE") else 7 if ALL_CASES else 17
"""`make chaos` kills at every point, `make test-all` at one point in seven, `make test` at one in seventeen."""
JOURNAL = ("journal.db", "journal.db-wal", "journal.db-shm", "checkpoint.lock", "locks")


class Outcome(NamedTuple):
    """The results of all runs of a project, the answers that they claim, and the files."""

    runs: dict[str, RunResult]
    claims: dict[str, Claims]
    tree: dict[str, tuple[int, bytes | None]]
    spending: list[str]


class Stuck(Exception):
    """A run does not finish, whatever the operator does."""


def answer_to(wait: Any) -> Any:
    """Return what the user answers: a deletion and a first draft are not approved, everything else is."""
    if wait.reason == "decision":
        return {"decision": "reject", "remark": "again"} if '"first draft"' in wait.message else "approve"
    if wait.reason != "approval":
        return ANSWER
    return "reject" if "`file delete`" in wait.message else "approve"


class InstantUser:
    """A user who replies to every question immediately."""

    async def ask(self, run_id: str, wait: Any) -> Any:
        return answer_to(wait)


class FastClock:
    """A clock that is a million times as fast, in all processes: every approval expires before it can be decided."""

    def __init__(self) -> None:
        self._began = time.monotonic_ns()

    def now(self) -> int:
        return 1_700_000_000_000_000 + (time.monotonic_ns() - self._began) * 1_000


class MeteredModel(ScriptedModel):
    """Reports the same usage for every answer."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return replace(await super().complete(request), usage=USAGE)


class NativeModel:
    """A model that is asked with native tools."""

    answer_form = "tools"

    def __init__(self, model: Any) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return await self._model.complete(request)


class FailingModel(MeteredModel):
    """Fails the first attempt of one call."""

    def __init__(self, answers: list, call: str) -> None:
        super().__init__(answers)
        self._call = call

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if request.call == self._call:
            self._call = ""
            raise ConnectionError("connection refused")
        return await super().complete(request)


class StuckModel:
    """Never answers in one phase."""

    takes_time = True

    def __init__(self, model: Any, phase: str) -> None:
        self._model, self._phase = model, phase

    @property
    def name(self) -> str:
        return self._model.name

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if request.phase == self._phase:
            await asyncio.Event().wait()
        return await self._model.complete(request)


class Scenario:
    """A project to execute under kills. `folder/seed` is its initial state, `folder/project` its working copy."""

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
        self.is_concurrent = False
        self.is_native = False
        self.input: dict = {"text": "in"}
        self.has_user = False
        self.clock: Clock = SystemClock()
        self.fails_at = ""
        self.stuck = ""
        """The phase in which the model never answers."""
        self.points: list[str] = []
        self.expected: Outcome | None = None
        self.changes: set[tuple[str, str]] = set()

    def executes(self, skill: str, answers: list, *, runs: int = 1, **settings: Any) -> Scenario:
        self.skill, self.answers, self.settings = skill, answers, settings
        self.runs = [f"killed-{number}" for number in range(runs)]
        return self

    # -- one execution --------------------------------------------------------------------------------

    @contextmanager
    def world(self, points: Failpoints) -> Iterator[OSRuntime]:
        """Wrap every port with a ledger, then with failpoints: no kill comes between an effect and its ledger line."""
        journal = LedgerJournal(SqliteJournal(self.root / ".reyn"), self.ledger)
        people = LedgerPeople(InstantUser(), self.ledger) if self.has_user else None
        model = points.wrap(LedgerModel(self._model(), self.ledger), "model")
        model = StuckModel(model, self.stuck) if self.stuck else model
        runtime = OSRuntime.open(
            self.root,
            journal=points.wrap(journal, "journal"),
            model=NativeModel(model) if self.is_native else model,
            clock=points.wrap(self.clock, "clock"),
            ids=points.wrap(CountingIds(), "ids"),
            people=people and points.wrap(people, "people"),
            ops=self.ops,
            **self.settings,
        )
        # Otherwise timing would change the number of points. A call that never ends is left at the next poll.
        runtime.services.polling = InboxPolling(seconds=0, busy_seconds=0.05 if self.stuck else 3600)
        with file_changes_through(points.wrap(LedgerSystem(self.ledger), "os", FILE_CALLS)):
            yield runtime

    def _model(self) -> Model:
        if not self.fails_at:
            return MeteredModel(self.answers)
        has_broken = any(entry.what == "refused" for entry in self.ledger.read())
        return FailingModel(self.answers, "" if has_broken else self.fails_at)

    async def execute(self, points: Failpoints) -> None:
        """Start the runs or continue them: with a run id, the same call does both."""
        with self.world(points) as runtime:
            async with runtime:
                results = await asyncio.gather(*(self._operate(runtime, run) for run in self.runs))
                if stopped := [result for result in results if not result.ok]:
                    raise Stuck(stopped)

    async def _operate(self, runtime: OSRuntime, run: str) -> RunResult:
        """Act as the operator: start or continue, answer questions, retry failures, raise limits."""
        result = await runtime.run(self.skill, self.input, run_id=run)
        for _ in range(MAX_ATTEMPTS):
            if result.status not in ("failed", "limited", "waiting"):
                break
            result = await self._move_on(runtime, result)
        return result

    async def _move_on(self, runtime: OSRuntime, stopped: RunResult) -> RunResult:
        run = stopped.run_id
        if stopped.status == "limited":
            limit, value = runtime.runs.state(run).stop.limit
            if limit in BUDGET_LIMITS:
                value = runtime.runs.next_action(runtime.runs.find(run)).value
            return await runtime.resume(run, raise_limits={limit: value + 1})
        wait = stopped.question
        if stopped.status == "waiting" and not (self.has_user or wait.is_timer):  # a reply may come after its time
            answer = answer_to(wait)
            self.ledger.write(Entry("replied", wait.run or run, wait.id, digest(canonical(answer))))
            with suppress(QuestionUnknown):  # answered before the kill
                runtime.answer(run, wait.id, answer)
        return await runtime.resume(run, retry=stopped.status == "failed")

    def execute_in_child(self, kill_at: int = 0, kill_after: float | None = None) -> int:
        return in_child(lambda: asyncio.run(self.execute(Failpoints(kill_at))), kill_after=kill_after)

    # -- the expected outcome -------------------------------------------------------------------------

    def rehearse(self) -> list[str]:
        """Execute once without a kill; return the points. Later forks inherit the imported modules."""
        self.reset()
        points = Failpoints()
        asyncio.run(self.execute(points))
        self.points, self.expected = points.reached, self._outcome()
        self.changes = set(changes_in(self.ledger.read()))
        return self.points

    @cached_property
    def seconds(self) -> float:
        """The duration of an execution in a forked process: the least of three, as others may use the machine."""

        def execute() -> float:
            self.reset()
            began = time.monotonic()
            assert self.execute_in_child() == 0
            return time.monotonic() - began

        return min(execute() for _ in range(3))

    def reset(self) -> None:
        """Restore the initial state."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.seed, self.root)
        self.ledger_path.unlink(missing_ok=True)

    def _outcome(self) -> Outcome:
        """Verify and replay all runs; return their results and the files."""
        runtime = OSRuntime.open(self.root, ops=self.ops)
        try:
            found = {row.run_id: _without_charges(runtime.runs.result(row.run_id)) for row in runtime.runs.all()}
            claims = {run: Claims.of(runtime.runs.events(run)) for run in found}
            spending = budget_violations(runtime, self.ledger.read())
            asyncio.run(self._verify(runtime, found))
        finally:
            runtime.services.journal.close()
        return Outcome(found, claims, tree_of(self.root), spending)

    async def _verify(self, runtime: OSRuntime, found: dict[str, RunResult]) -> None:
        for run, result in found.items():
            runtime.runs.verify(run)
            assert (await runtime.runs.replay(run)).status == result.status

    # -- checks ---------------------------------------------------------------------------------------

    def check(self, kills: int, *, by_chance: bool = False) -> list[str]:
        """Return the violations after kills and resumes: of the ledger, the files, the results."""
        assert self.expected is not None
        entries = self.ledger.read()
        try:
            found = self._outcome()
        except ReynError as error:
            return [f"the record is damaged: {error.code}: {error.message}", *self.files_differ()]
        return [
            *_ledger_violations(entries, found.claims, kills),
            *found.spending,
            *file_violations(entries, self.changes, by_chance=by_chance),
            *_differences("file", self.expected.tree, found.tree),
            *_differences("run", self.expected.runs, found.runs),
        ]

    def files_differ(self) -> list[str]:
        assert self.expected is not None
        return _differences("file", self.expected.tree, tree_of(self.root))

    def resume(self, kills: int) -> list[str]:
        """Execute to the end in this process, without kills, and check."""
        try:
            asyncio.run(self.execute(Failpoints()))
        except Exception as error:  # noqa: BLE001 - every error is a violation
            return [f"the run is stuck: {type(error).__name__}: {error}"]
        return self.check(kills)

    def kill_at(self, number: int) -> list[str]:
        """Kill at one point, resume, check."""
        self.reset()
        name = f"{number} {self.points[number - 1]}"
        killed = self.execute_in_child(kill_at=number)
        # The number of shared commits depends on timing, so the last points may not be reached every time.
        is_concurrent = len(self.runs) > 1 or self.is_concurrent
        assert killed == KILLED or (killed == 0 and is_concurrent), f"{name}: {killed}"
        return self.resume(kills=1)

    def kill_everywhere(self, share: int = 0, of: int = 1) -> dict[str, list[str]]:
        """Kill at the points of this run, or at a share of them; return the violations by point."""
        points = self.rehearse()
        assert len(points) > 20
        wrong = {"no kill at all": found} if (found := self.check(kills=0)) else {}
        for number in kill_points(points)[share::of]:
            if found := self.kill_at(number):
                wrong[f"{number} {points[number - 1]}"] = found
        return wrong


def kill_points(points: list[str], step: int = KILL_STEP) -> list[int]:
    """Return the numbers of the points at which this run of the tests kills: the first, the last, one of each `step`.

    Which one is random, because kinds of points recur at regular distances, and the same in every execution.
    """
    count = len(points)
    if KILL_STEP == 1:
        return list(range(1, count + 1))
    chance = random.Random(count)
    between = (chance.randrange(start, min(start + step, count)) for start in range(2, count, step))
    return sorted({1, *between, count})


def tree_of(root: Path) -> dict[str, tuple[int, bytes | None]]:
    """Return mode and content of every file and folder except the journal, by path."""
    hidden = {root / ".reyn" / name for name in JOURNAL}
    found = {}
    for path in sorted(root.rglob("*")):
        if not hidden.isdisjoint((path, *path.parents)):
            continue
        found[str(path.relative_to(root))] = (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
    return found


def _ledger_violations(entries: list[Entry], claims: dict[str, Claims], kills: int) -> list[str]:
    wrong = [
        f"run {run} was lost: it is not in the journal" for run in {e.run for e in entries if e.run} - claims.keys()
    ]
    for run, claimed in claims.items():
        wrong += [f"{run}: {line}" for line in violations([e for e in entries if e.run == run], claimed, kills)]
    return wrong


def budget_violations(runtime: OSRuntime, entries: list[Entry]) -> list[str]:
    """Return what is wrong with the budgets of all runs: leaks, calls that nothing covers, accounts that disagree."""
    wrong: list[str] = []
    charged: dict[str, int] = {}
    for row in runtime.runs.all():
        run = row.run_id
        reserved, settled = Counter[str](), Counter[str]()
        accounts: tuple[str, ...] = ()
        for event in runtime.runs.events(run):
            match decode(event):
                case kinds.BudgetReserved(call=call, draws=draws):
                    reserved[call] += 1
                    accounts = tuple(draw.account for draw in draws)
                case kinds.BudgetSettled(call=call, usage=usage):
                    settled[call] += 1
                    for account in accounts:
                        charged[account] = charged.get(account, 0) + usage.total
        asked = Counter(entry.call for entry in entries if entry.what == "asked" and entry.run == run)
        wrong += [
            f"{run}: call {call} was made without a reservation" for call in asked if asked[call] > reserved[call]
        ]
        wrong += [f"{run}: call {call} was not settled" for call in reserved if reserved[call] != settled[call]]
        if row.reserved is not None:
            wrong.append(f"{run}: the reservation of {row.reserved.call} leaks")
    for account, tokens in charged.items():
        balance = runtime.services.journal.balance(account)
        if (balance.tokens, balance.reserved_tokens, balance.reserved_cost) != (tokens, 0, 0):
            wrong.append(f"{account}: {balance}, but {tokens} tokens were charged")
    return wrong


def _without_charges(result: RunResult) -> RunResult:
    """Return a result without what a kill changes: a call whose answer was lost is charged as well."""
    warnings = tuple(warning for warning in result.warnings if "it was charged the" not in warning)
    return replace(result, cost=None, warnings=warnings)


def _differences(what: str, expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    return [
        f"{what} `{name}` is {found.get(name)}, not {expected.get(name)}"
        for name in sorted(expected.keys() | found.keys())
        if expected.get(name) != found.get(name)
    ]
