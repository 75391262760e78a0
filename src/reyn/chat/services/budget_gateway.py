"""What a conversation has used, and what it may still use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from reyn.journal.kinds import Usage
    from reyn.runtime import OSRuntime


class Spending(NamedTuple):
    """The tokens of a conversation and of its runs. `limit` is `None` if they are not limited."""

    usage: Usage
    limit: int | None

    @property
    def left(self) -> int | None:
        """The tokens that are left."""
        return None if self.limit is None else max(0, self.limit - self.usage.total)


class BudgetGateway:
    """The budget of one conversation."""

    def __init__(self, runtime: OSRuntime, run_id: str) -> None:
        self._runtime = runtime
        self._run_id = run_id

    def spending(self) -> Spending:
        """Return what was used and what is allowed, raised limits included."""
        state = self._runtime.state(self._run_id)
        limit = state.raised.get("tokens", self._runtime.config.limits.tokens)
        return Spending(state.models.usage, limit)
