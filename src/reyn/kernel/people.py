"""The seam between a run and people: a question goes out, an answer comes back, or nobody answers now.

An answer is posted to the run's inbox like one from another terminal, so that there is one way in, and it is durable
before the run goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from reyn.journal.kinds import Wait


class Later:
    """Nobody answers now: the run stops, and waits."""

    def __repr__(self) -> str:
        return "LATER"


LATER = Later()


class People(Protocol):
    async def ask(self, run_id: str, wait: Wait) -> Any:
        """The JSON value of the answer, or `LATER`. Cancelled when the question is answered elsewhere."""
        ...


class Nobody:
    """No one is there: every question waits."""

    async def ask(self, run_id: str, wait: Wait) -> Any:
        return LATER
