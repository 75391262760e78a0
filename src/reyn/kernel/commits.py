"""Runs of one process share commits: appends that fall together become one transaction and one fsync.

A lone run appends at once, in the event loop's own thread: nobody waits for it, and a hop to another thread would
cost more than it saves. With two live runs, appends gather while the previous commit is under way in a worker thread.
The worker is a plain thread and no task, so nothing that is cancelled can leave an append without an answer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from reyn.journal import Batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from reyn.journal import Blob, Event, Journal

_BREATH_SECONDS = 0.005


class SharedCommits:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._live = 0
        self._lock = threading.Lock()
        self._waiting: list[tuple[Batch, Future[int]]] = []
        self._is_busy = False
        self._worker: ThreadPoolExecutor | None = None
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
        if self._live <= 1 and not self._is_busy:
            seq = self._journal.append(run_id, expected_seq, events, blobs)
            await self._breathe()
            return seq
        landed = asyncio.wrap_future(self._enqueue(Batch(run_id, expected_seq, events, blobs)))
        try:
            return await asyncio.shield(landed)
        except asyncio.CancelledError:
            await asyncio.wait([landed])  # it may be on its way to the disk: let it land before the run is given up
            raise

    def close(self) -> None:
        """Wait for what is under way."""
        if self._worker is not None:
            self._worker.shutdown(wait=True)
            self._worker = None

    async def _breathe(self) -> None:
        """A model that answers at once must not keep the loop from its other work: a Ctrl-C, a stream's reader."""
        if time.monotonic() - self._breathed > _BREATH_SECONDS:
            await asyncio.sleep(0)
            self._breathed = time.monotonic()

    def _enqueue(self, batch: Batch) -> Future[int]:
        landed: Future[int] = Future()
        with self._lock:
            self._waiting.append((batch, landed))
            is_first, self._is_busy = not self._is_busy, True
        if is_first:
            worker = self._worker = self._worker or ThreadPoolExecutor(1, thread_name_prefix="reyn-commits")
            # Not at once: every run that is ready in this turn of the loop adds its batch first.
            asyncio.get_running_loop().call_soon(worker.submit, self._commit_all)
        return landed

    def _commit_all(self) -> None:
        """In the worker: commit what has gathered until nothing has."""
        while True:
            with self._lock:
                taken, self._waiting = self._waiting, []
                if not taken:
                    self._is_busy = False
                    return
            self._commit(taken)

    def _commit(self, taken: list[tuple[Batch, Future[int]]]) -> None:
        results: Sequence[int | BaseException]
        try:
            results = self._journal.append_many([batch for batch, _ in taken])
        except BaseException as error:  # noqa: BLE001 - every run that waits must hear of it
            results = [error] * len(taken)
        for (_, landed), result in zip(taken, results, strict=True):
            if isinstance(result, BaseException):
                landed.set_exception(result)
            else:
                landed.set_result(result)
