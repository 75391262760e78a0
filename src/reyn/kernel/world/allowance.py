"""The bound on what one message of a person, or the start of a run, may lead to: runs, model calls, reports, tokens.

An op that starts a run beyond the bound needs an approval, like any op for which a rule says `ask`. A step that starts
one, and a model call beyond the bound, stop the run with a limit; a function that the code of an op calls raises an
error. Runs are counted in the list of runs, calls, tokens and reports in the states of the root run and the runs below
it, and calls and tokens also for all runs that this process executes. The reply of a person begins a new count; the
start of a sub-run does not. Reports and tokens are bounded in conversations only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from reyn.errors import AllowanceExceeded
from reyn.journal import Blob, Journal, canonical, digest, kinds
from reyn.journal.summary import limit_of
from reyn.kernel.visit.waits import printable
from reyn.kernel.world.budgets import BudgetedRun, budgeted_run

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.journal.outside import EventWithBlobs
    from reyn.kernel.core.child_effects import PlanChild
    from reyn.kernel.core.effects import PlanOp
    from reyn.kernel.core.snapshot import RunState

STARTING = (kinds.RunRequest, kinds.MessageRequest)
"""The requests of ops that start runs."""
_MAX_COUNTS = 1_000
_START = "the start of the run, or your last reply"


class CallCount(NamedTuple):
    """What a model call counts for: the last message of a person, and what it may use and has used on its path.

    A message is the run that it was for, its time, and the tokens that the run had used by then. A bound that is `None`
    does not hold.
    """

    message: tuple[str, int, int]
    bound: int | None
    used: int
    calls_bound: int | None
    calls: int


class _RunsBelow(NamedTuple):
    """The runs below a root run when the list of runs was read, and those that were planned before or since.

    `waiting` is how many of them had not begun then.
    """

    since: int
    begun: int
    planned: set[str]
    waiting: int

    @property
    def total(self) -> int:
        return self.begun + len(self.planned)

    def is_due(self, bound: int) -> bool:
        """Return whether to read the list of runs again: planned runs may have begun, and others in other processes."""
        new = len(self.planned) - self.waiting
        return self.total >= bound or new >= (bound - self.begun - self.waiting) // 4


class MessageCounts:
    """All model calls that this process made since a message of a person, and their tokens.

    Runs that execute at the same time share what is left: a call in progress counts with the most that it can use.

    Attributes:
        starting: Functions that the code of an op calls, whose runs may not be in the journal yet.
    """

    def __init__(self) -> None:
        self.starting: set[str] = set()
        self._used: dict[tuple[str, int, int], int] = {}
        self._calls: dict[tuple[str, int, int], int] = {}
        self._in_progress: dict[tuple[str, int, int], int] = {}
        self._runs: dict[str, _RunsBelow] = {}

    def reached(self, count: CallCount) -> tuple[str, int, int] | None:
        """Return the bound on tokens or calls, if it is reached: its name, its value and what was used."""
        used = max(count.used, self._used.get(count.message, 0))
        if count.bound is not None and used >= count.bound:
            return "message_tokens", count.bound, used
        calls = max(count.calls, self._calls.get(count.message, 0))
        if count.calls_bound is not None and calls >= count.calls_bound:
            return "model_calls", count.calls_bound, calls
        return None

    def runs_below(self, root: str, since: int, bound: int, run: str, begun: Callable[[], Mapping[str, int]]) -> int:
        """Return how many runs were started or planned below a root run; plan one more unless the bound is reached.

        The list of runs is read again when a quarter of what was left may have been started: to read it for each of
        many runs would take time that grows with their square.

        Args:
            root: The root run.
            since: The time from which on they count.
            bound: How many there may be.
            run: The next one.
            begun: Returns the runs below the root run that were started, with the times.
        """
        found = self._runs.pop(root, None)
        if found is None or found.since != since or found.is_due(bound):
            times = begun()
            planned = {one for one in found.planned if one not in times} if found and found.since == since else set()
            found = _RunsBelow(since, sum(time >= since for time in times.values()), planned, len(planned))
        if (total := found.total) < bound:
            found.planned.add(run)
        self._runs[root] = found
        if len(self._runs) > _MAX_COUNTS:
            del self._runs[next(iter(self._runs))]
        return total

    def begin(self, count: CallCount, needed: int) -> bool | tuple[str, int, int]:
        """Count a call, and reserve what it can use at most.

        Returns:
            Whether it can begin, or has to wait for others, which may use less than they can; the bound if that is
            reached, see `reached`.
        """
        if (reached := self.reached(count)) is not None:
            return reached
        message, bound = count.message, count.bound
        used, others = self._used.get(message, 0), self._in_progress.get(message, 0)
        if bound is not None and others and used + others + needed > bound:
            return False
        self._in_progress[message] = others + needed
        self._calls[message] = max(self._calls.get(message, 0), count.calls) + 1
        if len(self._calls) > _MAX_COUNTS:
            del self._calls[next(iter(self._calls))]
        return True

    def end(self, count: CallCount, needed: int, used: int) -> None:
        """Count what a call has used instead."""
        if (left := self._in_progress.pop(count.message, 0) - needed) > 0:
            self._in_progress[count.message] = left
        self._used[count.message] = self._used.get(count.message, 0) + used
        if len(self._used) > _MAX_COUNTS:
            del self._used[next(iter(self._used))]


class Allowance(NamedTuple):
    """What a run and the runs above it may lead to, and what is counted.

    Attributes:
        state: The run.
        settings: Its settings.
        above: The runs above it.
        journal: The journal, which has the list of runs.
        counts: The calls and runs of this process.
    """

    state: RunState
    settings: RunSettings
    above: tuple[BudgetedRun, ...]
    journal: Journal
    counts: MessageCounts

    def plan_within(self, planned: EventWithBlobs, effect: PlanOp) -> EventWithBlobs:
        """Return the plan of an op that starts a run, or the approval that it needs because a bound is reached."""
        run_id = self.state.run_id
        reached = self._reached(f"{run_id}.{effect.key}")
        if not reached:
            return planned
        since = "your last message or reply" if (self.above or (self.state,))[-1].is_conversation else _START
        args, form = Blob.of(canonical(effect.args)), effect.args.get("op") or ""
        rule = f"limits.{reached[0]}: ask after {reached[1]:,}"
        text = f"Since {since}, {reached[2]}. `approve` goes on and begins a new count.\nop: {printable(effect.args)}\n"
        preview = Blob.of(text.encode())
        action = digest(canonical([f"{run_id}/{effect.key}", effect.args, rule, text]))
        required = kinds.ApprovalRequired(effect.key, effect.args["kind"], form, args.hash, rule, action, preview.hash)
        return required, (args, preview)

    def stop_before(self, effect: PlanChild, planned: set[str]) -> kinds.AllowanceReached | None:
        """Return the limit with which a run stops before a sub-run of a step; `None` if it is not reached.

        `planned` are sub-runs that the run has planned in this process.
        """
        found = self._runs_reached(f"{self.state.run_id}.{effect.key}", planned)
        if found is None and (count := count_of(self.state, self.settings, self.above)) is not None:
            found = self.counts.reached(count)
        return None if found is None else kinds.AllowanceReached(effect.key, *found)

    def check_call(self, run: str) -> None:
        """Raise `AllowanceExceeded` if the code of an op may not call another function, with the id `run`."""
        root = self._path[-1]
        starting = [one for one in self.counts.starting if one.startswith(f"{root.run_id}.")]
        if (found := self._runs_reached(run, starting)) is not None:
            name, bound, count = found
            conversation = "since the last message or reply of a person"
            since = conversation if root.is_conversation else "since the run was started"
            raise AllowanceExceeded(f"{count:,} runs were started {since}; `{name}` is {bound:,}")

    @property
    def _path(self) -> tuple[BudgetedRun, ...]:
        """The run and those above it."""
        return budgeted_run(self.state, self.settings), *self.above

    def _reached(self, run: str) -> tuple[str, int, str] | None:
        """Return the bound that is reached: its name, its value and what was counted; `None` if there is none."""
        if (runs := self._runs_reached(run)) is not None:
            return *runs[:2], f"{runs[2]:,} runs were started"
        depth, turns = limit_of(self.state, self.settings, "message_depth"), self.state.turn_depth
        if self._path[-1].is_conversation and depth is not None and turns >= depth:
            return "message_depth", depth, f"{turns:,} reports of runs led to one another"
        count = count_of(self.state, self.settings, self.above)
        if count is not None and (found := self.counts.reached(count)) is not None:
            what = "tokens were used" if found[0] == "message_tokens" else "model calls were made"
            return *found[:2], f"{found[2]:,} {what}"
        return None

    def _runs_reached(self, run: str, planned: Iterable[str] = ()) -> tuple[str, int, int] | None:
        """Return the bound on runs, if it is reached: its name, its value and the runs below the root since then.

        In a conversation, few runs may be started, and their list is read for each.
        """
        path = self._path
        root = path[-1]
        name = "message_runs" if root.is_conversation else "sub_runs"
        bound = limit_of(self.state, self.settings, name)
        if bound is None:
            return None
        since = max(one.person.at for one in path)

        def begun() -> dict[str, int]:
            return {row.run_id: row.started for row in self.journal.runs(f"{root.run_id}.")}

        if not root.is_conversation:
            count = self.counts.runs_below(root.run_id, since, bound, run, begun)
        else:
            times = begun()
            reports = self.state.inbox.background.items()
            waiting = {*planned, *(one for one, report in reports if report is None)}
            count = sum(time >= since for time in times.values()) + len(waiting - times.keys())
        return (name, bound, count) if count >= bound else None


def count_of(state: RunState, settings: RunSettings, above: tuple[BudgetedRun, ...]) -> CallCount | None:
    """Return what a model call of a run counts for; `None` if there is no bound.

    A run counts the calls and tokens of a sub-run when that ends, so those of the runs on the path add up. The runs
    above the one in which a person spoke last have used nothing since. Runs beside the path are counted while they
    execute here.
    """
    path, calls_bound = (budgeted_run(state, settings), *above), limit_of(state, settings, "model_calls")
    bound = limit_of(state, settings, "message_tokens") if path[-1].is_conversation else None
    if bound is None and calls_bound is None:
        return None
    since, used, calls = max([run.person.at for run in path]), 0, 0
    for run in path:
        used += (run.usage - run.person.usage).total
        calls += run.answers - run.person.answers
        if run.person.at == since:
            break
    return CallCount((run.run_id, since, run.person.usage.total), bound, used, calls_bound, calls)
