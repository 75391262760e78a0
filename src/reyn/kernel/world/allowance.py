"""The bound on what one message of a person may start: runs, reports that lead to further runs, and tokens.

An op that starts a run beyond the bound needs an approval, like any op for which a rule says `ask`. Everything that it
counts is recorded: runs in the list of runs, tokens and reports in the state of the conversation. The reply of a person
begins a new count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.journal import Blob, canonical, digest, kinds
from reyn.journal.summary import limit_of
from reyn.kernel.visit.waits import printable

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.journal import Journal
    from reyn.kernel.core.effects import EventWithBlobs, PlanOp
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


def _reached(
    state: RunState, settings: RunSettings, above: tuple[BudgetedRun, ...], journal: Journal
) -> tuple[str, int, str] | None:
    """Return the bound that is reached: its name, its value and what was counted; `None` if there is none."""
    root = above[-1].run_id if above else state.run_id
    if not (above[-1].is_conversation if above else state.conversations):
        return None
    since = max([state.person.at, *(run.person.at for run in above)])
    runs = limit_of(state, settings, "message_runs")
    if runs is not None:
        begun = {row.run_id for row in journal.runs(f"{root}.") if row.started >= since}
        waiting = sum(report is None and run not in begun for run, report in state.inbox.background.items())
        if (count := len(begun) + waiting) >= runs:
            return "message_runs", runs, f"{count:,} runs were started"
    depth = limit_of(state, settings, "message_depth")
    if depth is not None and state.turn_depth >= depth:
        return "message_depth", depth, f"{state.turn_depth:,} reports of runs led to one another"
    tokens = limit_of(state, settings, "message_tokens")
    totals = [(state.usage, state.person), *((run.usage, run.person) for run in above)]
    used = max((usage - person.usage).total for usage, person in totals)
    if tokens is not None and used >= tokens:
        return "message_tokens", tokens, f"{used:,} tokens were used"
    return None
