"""What a conversation has used, and the budgets that limit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reyn.journal.kinds import Charge, Usage

if TYPE_CHECKING:
    from reyn.runs.usage import BudgetStatus
    from reyn.runtime import OSRuntime


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


class BudgetGateway:
    """The spending of one conversation."""

    def __init__(self, runtime: OSRuntime, run_id: str) -> None:
        self._runtime = runtime
        self._run_id = run_id

    def spending(self) -> Spending:
        """Return what was used so far, also by background runs that have not ended, and the budgets that hold."""
        if not self._runtime.runs.is_recorded(self._run_id):
            return Spending(Usage(), Charge(), ())
        state = self._runtime.runs.state(self._run_id)
        usage, charge = state.models.usage, state.charge
        for run, report in state.inbox.background.items():
            row = self._runtime.services.journal.find(run)
            if row is None:
                continue
            charge += row.charge
            usage += self._runtime.runs.state(run).models.usage - (report.usage if report is not None else Usage())
        return Spending(usage, charge, self._runtime.runs.budgets(self._run_id))
