"""Abandon work that may take long when the run, or its turn, is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from reyn.journal import AbortTurn, Cancel

if TYPE_CHECKING:
    from reyn.journal import Journal
    from reyn.journal.outside import EventWithBlobs
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.world.inbox import InboxPolling

_ABANDON_SECONDS = 5.0
"""Maximum time for cancelled work to end."""


class Cancellation:
    """Looks for a request to cancel in the inbox of a run."""

    def __init__(self, journal: Journal, polling: InboxPolling) -> None:
        self._journal = journal
        self._polling = polling

    def is_requested(self, state: RunState) -> bool:
        """Return whether the run, or its turn, is to be cancelled."""
        messages = self._journal.peek(state.run_id, state.messages_taken)
        stops = (Cancel, AbortTurn) if state.is_turn_open else (Cancel,)
        is_requested = any(isinstance(message.payload, stops) for message in messages)
        if is_requested:
            self._polling.notify(state.run_id)  # it is recorded before the next effect
        return is_requested

    async def unless(self, work: Coroutine[Any, Any, EventWithBlobs | None], tape: Tape) -> EventWithBlobs | None:
        """Await work; cancel it and return nothing if the run or the turn is cancelled."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=self._polling.busy_seconds)
                if not task.done() and self.is_requested(tape.state):
                    return None
            return task.result()
        finally:
            task.cancel()
            if not task.done():
                await asyncio.wait([task], timeout=_ABANDON_SECONDS)  # foreign code may ignore its cancellation
