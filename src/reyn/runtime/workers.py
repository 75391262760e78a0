"""`Workers`: submitted runs and those who execute them, as `rt.workers`."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from reyn.engines import Serving, start_engine
from reyn.journal.indexing import index_runs
from reyn.journal.slots import call_next, call_others, limit_name
from reyn.journal.submission import DEFAULT_QUEUE
from reyn.journal.wakes import in_delivery_order
from reyn.journal.workers import WorkerReport
from reyn.runtime.executor import RunExecutor
from reyn.runtime.submitting import PROJECT_LABEL, all_slot_limits, drive, submit_existing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reyn.engines import Dispatcher
    from reyn.journal import RunRow

_REPORT_SECONDS = 1.5
"""Interval between two reports of a worker."""
_INDEX_SECONDS, _MAX_INDEXED = 0.05, 400
"""What a worker indexes between two reports."""
LOST_SECONDS = 6.0
"""A worker that has not reported for so long is paused, disconnected or dead."""


class QueuedRun(NamedTuple):
    """A submitted run that no worker executes. `since` is the time of its last event."""

    run_id: str
    skill: str
    queue: str
    priority: int
    since: int
    reason: str


class Workers:
    """Submitted runs, and the workers that execute them. `OSRuntime.submit` submits a run."""

    def __init__(self, executor: RunExecutor) -> None:
        self._executor = executor
        self._services = executor.services

    def hand_over(
        self, run: str, *, queue: str = DEFAULT_QUEUE, priority: int | None = None, labels: Sequence[str] = ()
    ) -> RunRow:
        """Let workers execute a run that was interrupted or waits. It stays with them.

        Args:
            run: The run.
            queue: The queue whose workers execute it.
            priority: Higher ones are executed first; by default that of the skill or of the queue, or 0.
            labels: The labels that a worker needs to execute it, beside those that it has already.

        Raises:
            RunBusy: A process executes it.
            RunNotResumable: It has ended or stopped, or is a sub-run.
            QueueInvalid: The queue or a label has an invalid name, or the priority is out of range.
        """
        return submit_existing(self._executor, self._executor.runs.find(run), queue, priority, labels)

    def all(self) -> list[WorkerReport]:
        """Return what each worker reported last, also of those that died in the last day."""
        return self._services.existing_journal.workers()

    def queued(self) -> list[QueuedRun]:
        """Return the submitted runs that have something to do and that no worker executes, in their order."""
        journal, reports = self._services.existing_journal, self.all()
        wakes = in_delivery_order(journal.wakes())
        lines = {one.run_id: one.queue for one in wakes if limit_name(one.queue)}
        found = dict.fromkeys(one.run_id for one in wakes)
        claimed = journal.claimed(found)
        rows = [row for run in found if run not in claimed and (row := journal.find(run)) is not None]
        return [
            QueuedRun(
                *(row.run_id, row.skill, row.queue, row.priority, row.updated),
                self._reason(row, reports, lines.get(row.run_id, "")),
            )
            for row in rows
            if row.status == "running" and row.queue
        ]

    def reason(self, row: RunRow) -> str:
        """Return why no worker executes a queued run."""
        wakes = self._services.existing_journal.wakes(row.run_id)
        return self._reason(row, self.all(), next((one.queue for one in wakes if limit_name(one.queue)), ""))

    def _reason(self, row: RunRow, reports: Sequence[WorkerReport], line: str) -> str:
        """Return why no worker executes a run, which may wait in the line of a limit."""
        if line:
            count = all_slot_limits(self._services.config.workers).get(line)
            return f"the limit of the {limit_name(line)} is reached{f': {count} at once' if count else ''}"
        now = self._services.clock.now()
        live = [one for one in reports if row.queue in one.queues and not is_lost(one, now)]
        if not live:
            return f"no worker serves the queue `{row.queue}`"
        refusals = [one.refusals[row.run_id] for one in live if row.run_id in one.refusals]
        if len(refusals) == len(live):
            return f"no worker can execute it: {refusals[0]}"
        if all(len(one.runs) >= one.concurrency for one in live if row.run_id not in one.refusals):
            return "the workers are busy"
        return "a worker takes it soon"

    async def serve(
        self,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        *,
        concurrency: int = 1,
        once: bool = False,
        serving: Serving | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """Execute submitted runs: new ones, those that got a message, and those that a dead worker left.

        Args:
            queues: The queues to serve.
            concurrency: How many runs to execute at once.
            once: Return when nothing is due.
            serving: What this worker does, in place of the first three; set its `stop` to drain.
            dispatcher: Delivers the runs; by default, the engine that the configuration names.
        """
        services = self._services
        services.check_owner()
        serving = serving or Serving(queues=queues, concurrency=concurrency, is_once=once)
        own = () if services.journal.is_remote else (PROJECT_LABEL,)
        serving.labels = tuple(dict.fromkeys((*services.config.workers.labels, *serving.labels, *own)))
        executor = self._executor if PROJECT_LABEL in serving.labels else self._without_project()
        report = WorkerReport(
            services.ids.new(),
            socket.gethostname(),
            os.getpid(),
            tuple(serving.queues),
            serving.concurrency,
            services.clock.now(),
            labels=tuple(serving.labels),
        )
        call_others(services.journal, all_slot_limits(services.config.workers))
        reporting = asyncio.create_task(self._keep_reporting(report, serving))
        try:
            chosen = dispatcher or self._start_engine()
            await chosen.serve(partial(drive, executor, serving=serving), serving)
        finally:
            reporting.cancel()
            with suppress(asyncio.CancelledError):
                await reporting
            services.journal.forget_worker(report.id)

    def _without_project(self) -> RunExecutor:
        """Return an executor that leaves to others what needs the files of the project."""
        services = self._services.derive({})
        services.has_project = False
        return RunExecutor(services, self._executor.runs)

    def _start_engine(self) -> Dispatcher:
        services = self._services
        return start_engine(services.config.engine, services.journal, services.root.name, services.secrets.resolve)

    async def _keep_reporting(self, report: WorkerReport, serving: Serving) -> None:
        journal, limits = self._services.journal, all_slot_limits(self._services.config.workers)

        def store(current: WorkerReport) -> None:
            journal.report_worker(current)
            for key, count in limits.items():
                call_next(journal, key, count)

        while True:
            current = replace(report, runs=tuple(sorted(serving.active)), refusals=dict(serving.refusals))
            if journal.is_remote:
                await asyncio.to_thread(store, current)
            else:
                store(current)
            await asyncio.to_thread(index_runs, journal, seconds=_INDEX_SECONDS, limit=_MAX_INDEXED)
            await asyncio.sleep(_REPORT_SECONDS)


def is_lost(report: WorkerReport, now: int) -> bool:
    """Return whether a worker has not reported for longer than it does while it lives."""
    return now - report.seen > LOST_SECONDS * 1_000_000
