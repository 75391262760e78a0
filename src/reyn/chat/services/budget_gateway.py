"""What a conversation has used, and the budgets that limit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reyn.journal.kinds import Charge, Usage

if TYPE_CHECKING:
    from reyn.runs.recorded import Runs
    from reyn.runs.usage import BudgetStatus


class Spending(NamedTuple):
    """What a conversation and the runs that it started have used.

    Attributes:
        usage: The tokens.
        charge: What their model calls were charged.
        budgets: What limits the next call, with what is used of it: the tokens of the conversation, which the agent's
            file or the configuration sets, and the budgets of the run, of its skill, and of the day.
    """

    usage: Usage
    charge: Charge
    budgets: tuple[BudgetStatus, ...]


def spending_of(runs: Runs, run_id: str) -> Spending:
    """Return what was used so far, also by background runs that have not ended, and the budgets that hold."""
    if not runs.is_recorded(run_id):
        return Spending(Usage(), Charge(), ())
    state = runs.state(run_id)
    usage, charge = state.usage, state.charge
    for run, report in state.inbox.background.items():
        if runs.is_recorded(run):
            charge += runs.find(run).charge
            usage += runs.state(run).usage - (report.usage if report is not None else Usage())
    return Spending(usage, charge, runs.budgets(run_id))
