"""Wait for a time that the journal has recorded: no process has to live until then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from reyn.journal.family import reply_to, root_run
from reyn.journal.summary import SECOND
from reyn.kernel.visit.error_handling import NOW

if TYPE_CHECKING:
    from reyn.journal import Journal, kinds
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.world.services import Services

_POLL_SECONDS = 0.05
"""Interval for reading the inbox meanwhile."""
_MAX_HELD_SECONDS = 5.0
"""The longest wait for which a worker keeps a run; after a longer one, the run is woken."""


async def wait_for_time(wait: kinds.Question, state: RunState, services: Services) -> bool:
    """Wait until a time has come or a message has arrived; return whether the run continues in this process.

    A case of a skill does not wait.
    """
    assert wait.expires_at is not None
    journal, at = services.journal, wait.expires_at
    if services.origin is not None:
        journal.post(state.run_id, reply_to(wait, NOW, ""))
        return True
    left = (at - services.clock.now()) / SECOND
    if left > _MAX_HELD_SECONDS and _is_submitted(journal, state.run_id):
        return False
    while left > 0 and not journal.peek(state.run_id, state.messages_taken):
        await asyncio.sleep(min(left, _POLL_SECONDS))
        left = (at - services.clock.now()) / SECOND
    return True


def _is_submitted(journal: Journal, run_id: str) -> bool:
    """Return whether workers execute a run, or the run that started it."""
    row = journal.find(run_id)
    return row is not None and bool(root_run(journal, row).queue)
