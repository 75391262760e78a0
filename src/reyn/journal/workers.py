"""What workers report of themselves, so that `reyn workers` shows them and a queued run shows why it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.journal.wakes import microseconds

if TYPE_CHECKING:
    import sqlite3

FORGOTTEN_AFTER = 86_400 * 1_000_000
"""Microseconds after which a worker that died is not listed any more."""


class WorkerReport(msgspec.Struct, frozen=True):
    """One worker.

    Attributes:
        id: Its id.
        host: The machine.
        pid: The process.
        queues: The queues that it serves.
        concurrency: How many runs it executes at once.
        started: When it started, in microseconds since 1970.
        runs: The runs that it executes.
        refusals: Why it does not take runs, by run.
        labels: What it has that some runs need.
        seen: When it reported, by the clock of the machine that asks.
    """

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    started: int
    runs: tuple[str, ...] = ()
    refusals: dict[str, str] = {}
    seen: int = 0
    labels: tuple[str, ...] = ()


def is_forgotten(report: WorkerReport, now: int) -> bool:
    """Return whether a worker died long ago."""
    return report.seen < now - FORGOTTEN_AFTER


class WorkerTable:
    """The reports in a SQLite journal. Callers hold the transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def store(self, report: WorkerReport) -> None:
        now = microseconds()
        content = msgspec.json.encode(msgspec.structs.replace(report, seen=now)).decode()
        self._connection.execute("INSERT OR REPLACE INTO workers VALUES (?, ?, ?)", (report.id, content, now))
        self._connection.execute("DELETE FROM workers WHERE seen < ?", (now - FORGOTTEN_AFTER,))

    def remove(self, worker_id: str) -> None:
        self._connection.execute("DELETE FROM workers WHERE id = ?", (worker_id,))


ALL_WORKERS = "SELECT CAST(report AS BLOB) FROM workers ORDER BY id"
to_report = msgspec.json.Decoder(WorkerReport).decode
