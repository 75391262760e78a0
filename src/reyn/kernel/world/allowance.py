"""The bound on what one message of a person may start: runs, reports that lead to further runs, and tokens.

An op that starts a run beyond the bound needs an approval, like any op for which a rule says `ask`. A step that starts
one, and a model call beyond the bound on tokens, stop the run with a limit; a function that the code of an op calls
raises an error. Runs are counted in the list of runs, tokens and reports in the states of the conversation and the runs
below it, and tokens also for all runs that this process executes. The reply of a person begins a new count; the start
of a sub-run does not.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    from reyn.kernel.core.tape import Tape

STARTING = (kinds.RunRequest, kinds.MessageRequest)
"""The requests of ops that start runs."""
_MAX_COUNTS = 1_000


class CallCount(NamedTuple):
    """What a model call counts for: the last message of a person, the bound on its tokens, and those of the runs above.

    A message is the run that it was for, its time, and the tokens that the run had used by then.
    """

    message: tuple[str, int, int]
    bound: int
    used: int


class MessageCounts:
    """The tokens of all model calls that this process made since a message of a person.

    Runs that execute at the same time share what is left: a call in progress counts with the most that it can use.

    Attributes:
        starting: Functions that the code of an op calls, whose runs may not be in the journal yet.
    """

    def __init__(self) -> None:
        self.starting: set[str] = set()
        self._used: dict[tuple[str, int, int], int] = {}
        self._in_progress: dict[tuple[str, int, int], int] = {}

    def reached(self, count: CallCount) -> tuple[str, int, int] | None:
        """Return the bound on tokens, if it is reached: its name, its value and the tokens that were used."""
        used = max(count.used, self._used.get(count.message, 0))
        return ("message_tokens", count.bound, used) if used >= count.bound else None

    def begin(self, count: CallCount, needed: int) -> bool | tuple[str, int, int]:
        """Reserve what a call can use at most.

        Returns:
            Whether it can begin, or has to wait for others, which may use less than they can; the bound if that is
            reached, see `reached`.
        """
        message, bound, above = count
        used, others = self._used.get(message, 0), self._in_progress.get(message, 0)
        if max(used, above) >= bound:
            return "message_tokens", bound, max(used, above)
        if others and used + others + needed > bound:
            return False
        self._in_progress[message] = others + needed
        return True

    def end(self, count: CallCount, needed: int, used: int) -> None:
        """Count what a call has used instead."""
        if (left := self._in_progress.pop(count.message, 0) - needed) > 0:
            self._in_progress[count.message] = left
        self._used[count.message] = self._used.get(count.message, 0) + used
        if len(self._used) > _MAX_COUNTS:
            del self._used[next(iter(self._used))]


def within_bound(
    planned: EventWithBlobs,
    effect: PlanOp,
    tape: Tape,
    settings: RunSettings,
    above: tuple[BudgetedRun, ...],
    journal: Journal,
    counts: MessageCounts,
) -> EventWithBlobs:
    """Return the plan of an op that starts a run, or the approval that it needs because a bound is reached."""
    reached = _reached(tape.state, settings, above, journal, counts)
    if not reached:
        return planned
    args, form = Blob.of(canonical(effect.args)), effect.args.get("op") or ""
    rule = f"limits.{reached[0]}: ask after {reached[1]:,}"
    text = (
        f"Since your last message or reply, {reached[2]}. `approve` goes on and begins a new count.\n"
        f"op: {printable(effect.args)}\n"
    )
    preview = Blob.of(text.encode())
    action = digest(canonical([f"{tape.run_id}/{effect.key}", effect.args, rule, text]))
    required = kinds.ApprovalRequired(effect.key, effect.args["kind"], form, args.hash, rule, action, preview.hash)
    return required, (args, preview)


def step_allowance(
    effect: PlanChild,
    tape: Tape,
    settings: RunSettings,
    above: tuple[BudgetedRun, ...],
    journal: Journal,
    planned: set[str],
) -> kinds.AllowanceReached | None:
    """Return the limit with which a run stops before a sub-run of a step; `None` if it is not reached.

    `planned` are sub-runs that the run has planned in this process.
    """
    path = _path(tape.state, settings, above)
    found = None if path is None else _runs_reached(tape.state, settings, path, journal, planned)
    return None if found is None else kinds.AllowanceReached(effect.key, *found)


def check_call(
    state: RunState,
    settings: RunSettings,
    above: tuple[BudgetedRun, ...],
    journal: Journal,
    counts: MessageCounts,
) -> None:
    """Raise `AllowanceExceeded` if the code of an op may not call another function."""
    path = _path(state, settings, above)
    if path is None:
        return
    starting = [run for run in counts.starting if run.startswith(f"{path[-1].run_id}.")]
    if (found := _runs_reached(state, settings, path, journal, starting)) is not None:
        name, bound, count = found
        since = "since the last message or reply of a person"
        raise AllowanceExceeded(f"{count:,} runs were started {since}; `{name}` is {bound:,}")


def count_of(state: RunState, settings: RunSettings, above: tuple[BudgetedRun, ...]) -> CallCount | None:
    """Return what a model call of a run counts for; `None` if there is no bound.

    A run counts the tokens of a sub-run when that ends, so those of the runs on the path add up. The runs above the one
    in which a person spoke last have used nothing since. Runs beside the path are counted while they execute here.
    """
    path, bound = _path(state, settings, above), limit_of(state, settings, "message_tokens")
    if path is None or bound is None:
        return None
    since, used = max([run.person.at for run in path]), 0
    for run in path:
        used += (run.usage - run.person.usage).total
        if run.person.at == since:
            break
    return CallCount((run.run_id, since, run.person.usage.total), bound, used)


def _reached(
    state: RunState, settings: RunSettings, above: tuple[BudgetedRun, ...], journal: Journal, counts: MessageCounts
) -> tuple[str, int, str] | None:
    """Return the bound that is reached: its name, its value and what was counted; `None` if there is none."""
    path = _path(state, settings, above)
    if path is None:
        return None
    if (runs := _runs_reached(state, settings, path, journal)) is not None:
        return *runs[:2], f"{runs[2]:,} runs were started"
    depth = limit_of(state, settings, "message_depth")
    if depth is not None and state.turn_depth >= depth:
        return "message_depth", depth, f"{state.turn_depth:,} reports of runs led to one another"
    count = count_of(state, settings, above)
    if count is not None and (found := counts.reached(count)) is not None:
        return *found[:2], f"{found[2]:,} tokens were used"
    return None


def _path(state: RunState, settings: RunSettings, above: tuple[BudgetedRun, ...]) -> tuple[BudgetedRun, ...] | None:
    """Return the run and those above it; `None` if the root is no conversation."""
    path = (budgeted_run(state, settings), *above)
    return path if path[-1].is_conversation else None


def _runs_reached(
    state: RunState,
    settings: RunSettings,
    path: tuple[BudgetedRun, ...],
    journal: Journal,
    planned: Iterable[str] = (),
) -> tuple[str, int, int] | None:
    """Return the bound on runs, if it is reached: its name, its value and the runs below the root since then."""
    bound = limit_of(state, settings, "message_runs")
    if bound is None:
        return None
    since = max(run.person.at for run in path)
    begun = {row.run_id: row.started for row in journal.runs(f"{path[-1].run_id}.")}
    waiting = {*planned, *(run for run, report in state.inbox.background.items() if report is None)}
    count = sum(started >= since for started in begun.values()) + len(waiting - begun.keys())
    return ("message_runs", bound, count) if count >= bound else None
