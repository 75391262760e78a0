"""The bound on what one message of a person may start: runs, reports that lead to further runs, and tokens.

An op that starts a run beyond the bound needs an approval, like any op for which a rule says `ask`. A step that starts
one, and a model call beyond the bound on tokens, stop the run with a limit. Everything that is counted is recorded:
runs in the list of runs, tokens and reports in the states of the conversation and the runs below it. The reply of a
person begins a new count; the start of a sub-run does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.journal import Blob, canonical, digest, kinds
from reyn.journal.summary import limit_of
from reyn.kernel.core.effects import PlanChild
from reyn.kernel.visit.waits import printable
from reyn.kernel.world.budgets import budgeted_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.config import RunSettings
    from reyn.journal import Journal
    from reyn.kernel.core.effects import CallModel, EventWithBlobs, PlanOp
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.world.budgets import BudgetedRun

STARTING = (kinds.RunRequest, kinds.MessageRequest)
"""The requests of ops that start runs."""


def within_bound(
    planned: EventWithBlobs,
    effect: PlanOp,
    tape: Tape,
    settings: RunSettings,
    above: tuple[BudgetedRun, ...],
    journal: Journal,
) -> EventWithBlobs:
    """Return the plan of an op that starts a run, or the approval that it needs because a bound is reached."""
    reached = _reached(tape.state, settings, above, journal)
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


def allowance_reached(
    effect: CallModel | PlanChild,
    tape: Tape,
    settings: RunSettings,
    above: tuple[BudgetedRun, ...],
    journal: Journal,
    planned: set[str],
) -> kinds.AllowanceReached | None:
    """Return the limit with which a run stops before a model call or a sub-run of a step; `None` if none is reached.

    `planned` are sub-runs that the run has planned in this process.
    """
    path = _path(tape.state, settings, above)
    if path is None:
        return None
    if isinstance(effect, PlanChild):
        found = _runs_reached(tape.state, settings, path, journal, planned)
    else:
        found = _tokens_reached(tape.state, settings, path)
    return None if found is None else kinds.AllowanceReached(effect.key, *found)


def _reached(
    state: RunState, settings: RunSettings, above: tuple[BudgetedRun, ...], journal: Journal
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
    if (tokens := _tokens_reached(state, settings, path)) is not None:
        return *tokens[:2], f"{tokens[2]:,} tokens were used"
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


def _tokens_reached(
    state: RunState, settings: RunSettings, path: tuple[BudgetedRun, ...]
) -> tuple[str, int, int] | None:
    """Return the bound on tokens, if it is reached: its name, its value and the tokens that were used.

    A run counts the tokens of a sub-run when that ends, so those of the runs on the path add up. The runs above the one
    in which a person spoke last have used nothing since.
    """
    bound = limit_of(state, settings, "message_tokens")
    if bound is None:
        return None
    since, used = max(run.person.at for run in path), 0
    for run in path:
        used += (run.usage - run.person.usage).total
        if run.person.at == since:
            break
    return ("message_tokens", bound, used) if used >= bound else None
