"""Share commits between the runs of one process: concurrent appends become one transaction and one fsync.

A single run appends directly in the event loop's thread, because a hop to another thread would cost more than it
saves. With two or more active runs, appends are collected while the previous commit is in progress in a worker thread.
The worker is a plain thread, not a task, so cancelling a task can never leave an append without a result.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from reyn.journal.port import Batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from reyn.journal.canonical import Blob
    from reyn.journal.event import Event
    from reyn.journal.port import Journal

_YIELD_SECONDS = 0.005
"""The longest time that a single run holds the event loop between two commits."""


class SharedCommits:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._active_runs = 0
        self._lock = threading.Lock()
        self._queue: list[tuple[Batch, Future[int]]] = []
        self._is_busy = False
        self._worker: ThreadPoolExecutor | None = None
        self._yielded_at = 0.0

    @contextmanager
    def active_sub_run(self) -> Iterator[None]:
        """Count a sub-run that executes beside others."""
        self._active_runs += 1
        try:
            yield
        finally:
            self._active_runs -= 1

    @asynccontextmanager
    async def active_run(self) -> AsyncIterator[None]:
        """Count a run as active, so that its appends are shared with those of other active runs."""
        self._active_runs += 1
        try:
            await asyncio.sleep(0)  # runs that start together are all counted before the first of them commits
            yield
        finally:
            self._active_runs -= 1

    async def append(self, run_id: str, expected_seq: int, events: Sequence[Event], blobs: Sequence[Blob]) -> int:
        if self._active_runs <= 1 and not self._is_busy:
            seq = self._journal.append(run_id, expected_seq, events, blobs)
            await self._yield_to_loop()
            return seq
        future = asyncio.wrap_future(self._enqueue(Batch(run_id, expected_seq, events, blobs)))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])  # the commit may be in progress: wait for its result before unwinding
            raise

    def close(self) -> None:
        """Wait for commits in progress and stop the worker."""
        if self._worker is not None:
            self._worker.shutdown(wait=True)
            self._worker = None

    async def _yield_to_loop(self) -> None:
        """Let the loop do other work (Ctrl-C, the reader of a stream) even if the model answers instantly."""
        if time.monotonic() - self._yielded_at > _YIELD_SECONDS:
            await asyncio.sleep(0)
            self._yielded_at = time.monotonic()

    def _enqueue(self, batch: Batch) -> Future[int]:
        future: Future[int] = Future()
        with self._lock:
            self._queue.append((batch, future))
            is_first, self._is_busy = not self._is_busy, True
        if is_first:
            worker = self._worker = self._worker or ThreadPoolExecutor(1, thread_name_prefix="reyn-commits")
            # Submitted in the next iteration of the loop: every run that is ready in this one adds its batch first.
            asyncio.get_running_loop().call_soon(worker.submit, self._commit_all)
        return future

    def _commit_all(self) -> None:
        """Commit queued batches until the queue is empty. Runs in the worker thread."""
        while True:
            with self._lock:
                entries, self._queue = self._queue, []
                if not entries:
                    self._is_busy = False
                    return
            self._commit(entries)

    def _commit(self, entries: list[tuple[Batch, Future[int]]]) -> None:
        results: Sequence[int | BaseException]
        try:
            results = self._journal.append_many([batch for batch, _ in entries])
        except BaseException as error:  # noqa: BLE001 - every waiting run gets the error
            results = [error] * len(entries)
        for (_, future), result in zip(entries, results, strict=True):
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
