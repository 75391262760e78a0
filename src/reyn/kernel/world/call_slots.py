"""The slots of an endpoint that all processes of a journal share: `concurrency` holds for all of them together.

`Endpoint` admits the calls of this process in order. A call that it admits then claims a slot in the journal, which is
free again when its process has died.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from reyn.journal import digest
from reyn.journal.slots import claim_slot, limit_key
from reyn.kernel.world.call_rates import call_journal

if TYPE_CHECKING:
    from reyn.journal import Journal

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25
"""Seconds between two attempts to claim a slot that other processes have."""
_sleep = asyncio.sleep


@asynccontextmanager
async def call_slot(
    journal: Journal, endpoint: str, count: int | None, on_wait: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    """Hold one of `count` slots of an endpoint during a call; without a limit, none.

    `on_wait` is called once, before the call waits.
    """
    if count is None:
        yield
        return
    key, pause, is_reported = limit_key("endpoint", digest(endpoint.encode())[:16]), _FIRST_PAUSE, False
    held = ExitStack()
    try:
        while not await call_journal(journal, claim_slot, journal, key, count, held):
            if not is_reported:
                is_reported = True
                await on_wait()
            await _sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        yield
    finally:
        await call_journal(journal, held.close)
