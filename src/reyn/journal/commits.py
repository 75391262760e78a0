"""Share commits between the runs of one process: concurrent appends become one transaction and one fsync.

A single run appends directly in the event loop's thread, because a hop to another thread would cost more than it
saves, unless the journal is on a server. Otherwise appends are collected while the previous commit is in progress in a
worker thread. The worker is a plain thread, not a task, so cancelling a task never leaves an append without a result.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from reyn.journal.port import Batch, Journal

if TYPE_CHECKING:
    from reyn.journal.canonical import Blob
    from reyn.journal.registry import Event
    from reyn.journal.wakes import Wake

_YIELD_SECONDS = 0.005
"""The longest time that a single run holds the event loop between two commits."""


class SharedCommits:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.active_runs = 0
        """The number of runs and concurrent sub-runs that execute now."""
        self._lock = threading.Lock()
        self._queue: list[_Append] = []
        self._is_busy = False
        self._worker: ThreadPoolExecutor | None = None
        self._yielded_at = 0.0

    @contextmanager
    def active_run(self) -> Iterator[None]:
        """Count a run, or a sub-run that executes beside others: active runs share their commits."""
        self.active_runs += 1
        try:
            yield
        finally:
            self.active_runs -= 1

    async def append(
        self,
        run_id: str,
        expected_seq: int,
        events: Sequence[Event],
        blobs: Sequence[Blob],
        wakes: Sequence[Wake] = (),
    ) -> int:
        if self.active_runs <= 1 and not self._is_busy and not self._journal.is_remote:
            seq = self._journal.append(run_id, expected_seq, events, blobs, wakes)
            await self._yield_to_loop()
            return seq
        pending = _Append(Batch(run_id, expected_seq, events, blobs, wakes), asyncio.get_running_loop())
        self._enqueue(pending)
        try:
            return await pending.future
        except asyncio.CancelledError:
            await pending.settled()  # the commit may be in progress: wait for its result before unwinding
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

    def _enqueue(self, pending: _Append) -> None:
        with self._lock:
            self._queue.append(pending)
            is_first, self._is_busy = not self._is_busy, True
        if is_first:
            worker = self._worker = self._worker or ThreadPoolExecutor(1, thread_name_prefix="reyn-commits")
            # Submitted in the next iteration of the loop: every run that is ready in this one adds its batch first.
            pending.loop.call_soon(worker.submit, self._commit_all)

    def _commit_all(self) -> None:
        """Commit queued batches until the queue is empty. Runs in the worker thread."""
        while True:
            with self._lock:
                queue, self._queue = self._queue, []
                if not queue:
                    self._is_busy = False
                    return
            self._commit(queue)

    def _commit(self, queue: list[_Append]) -> None:
        results: Sequence[int | BaseException]
        try:
            results = self._journal.append_many([pending.batch for pending in queue])
        except BaseException as error:  # noqa: BLE001 - every waiting run gets the error
            results = [error] * len(queue)
        outcomes: dict[asyncio.AbstractEventLoop, list[tuple[_Append, int | BaseException]]] = {}
        for pending, result in zip(queue, results, strict=True):
            outcomes.setdefault(pending.loop, []).append((pending, result))
        for loop, settled in outcomes.items():
            with suppress(RuntimeError):  # the loop is closed: nothing waits there any more
                loop.call_soon_threadsafe(_settle, settled)  # one wake-up for all runs of a loop


class _Append:
    """A batch that waits for its commit, and the future of its result. Only its loop's thread touches the future."""

    def __init__(self, batch: Batch, loop: asyncio.AbstractEventLoop) -> None:
        self.batch = batch
        self.loop = loop
        self.future: asyncio.Future[int] = loop.create_future()
        self._is_settled = False

    def settle(self, result: int | BaseException) -> None:
        self._is_settled = True
        if self.future.done():
            return  # the run was cancelled, and nothing waits for the result
        if isinstance(result, BaseException):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)

    async def settled(self) -> None:
        """Wait until the commit has succeeded or failed, after the future was cancelled."""
        if not self._is_settled:
            self.future = self.loop.create_future()
            await asyncio.wait([self.future])
            if not self.future.cancelled():
                self.future.exception()  # the caller unwinds in any case


def _settle(outcomes: Sequence[tuple[_Append, int | BaseException]]) -> None:
    for pending, result in outcomes:
        pending.settle(result)
