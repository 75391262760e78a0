"""Runs of one process share commits: appends that fall together become one transaction and one fsync.

A lone run appends at once, in the event loop's own thread: nobody waits for it, and a hop to another thread would
cost more than it saves. With two live runs, appends gather while the previous commit is under way in a worker thread.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from reyn.errors import JournalError
from reyn.journal import Batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from reyn.journal import Blob, Event, Journal


_BREATH_SECONDS = 0.005


class SharedCommits:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._live = 0
        self._waiting: list[tuple[Batch, asyncio.Future[int]]] = []
        self._committing: asyncio.Task[None] | None = None
        self._breathed = 0.0

    @asynccontextmanager
    async def run_is_live(self) -> AsyncIterator[None]:
        self._live += 1
        try:
            await asyncio.sleep(0)  # runs that start together are all live before the first of them commits
            yield
        finally:
            self._live -= 1

    async def append(self, run_id: str, expected_seq: int, events: Sequence[Event], blobs: Sequence[Blob]) -> int:
        if self._live <= 1 and self._committing is None:
            seq = self._journal.append(run_id, expected_seq, events, blobs)
            await self._breathe()
            return seq
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((Batch(run_id, expected_seq, events, blobs), done))
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_all())
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            # The batch may already be on its way to the disk: let it land before the run is given up.
            await asyncio.wait([done])
            raise

    async def _breathe(self) -> None:
        """A model that answers at once must not keep the loop from its other work: a Ctrl-C, a stream's reader."""
        if time.monotonic() - self._breathed > _BREATH_SECONDS:
            await asyncio.sleep(0)
            self._breathed = time.monotonic()

    async def _commit_all(self) -> None:
        try:
            await asyncio.sleep(0)  # let every run that is ready add its batch
            while self._waiting:
                taken, self._waiting = self._waiting, []
                await self._commit(taken)
        finally:
            self._committing = None

    async def _commit(self, taken: list[tuple[Batch, asyncio.Future[int]]]) -> None:
        try:
            results = await asyncio.to_thread(self._journal.append_many, [batch for batch, _ in taken])
        except JournalError as error:
            results = [error] * len(taken)
        for (_, done), result in zip(taken, results, strict=True):
            if isinstance(result, JournalError):
                done.set_exception(result)
            else:
                done.set_result(result)
