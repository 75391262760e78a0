"""Wakes: the outbox of a journal, from which drivers on any machine learn that a run has something to do.

A wake is stored in the transaction that gave the run something to do: its start, a message, a time, the end of a
child. So none is lost. Delivering one twice does no harm: a driver that finds nothing to do stops.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import sqlite3


class Wake(msgspec.Struct, frozen=True):
    """A run that has something to do.

    Attributes:
        run_id: The run.
        due: When, in microseconds since 1970; 0 is at once.
        queue: The queue whose workers execute it.
        priority: Higher ones are delivered first.
    """

    run_id: str
    due: int = 0
    queue: str = ""
    priority: int = 0


class PendingWake(Wake, frozen=True, kw_only=True):
    """A stored wake.

    Attributes:
        seq: Its number. Numbers increase and are never used again, so `RUN:SEQ` identifies a wake for ever.
        held_until: Until when it is not delivered, in microseconds since 1970, because a caller took it.
    """

    seq: int
    held_until: int = 0


def microseconds() -> int:
    """Return the time of this machine, by which wakes are due in a journal that one machine has."""
    return time.time_ns() // 1000


def deliverable(wakes: Iterable[PendingWake], queues: Collection[str], limit: int, now: int) -> list[PendingWake]:
    """Select the wakes to deliver at a time, in order."""
    return in_delivery_order(one for one in wakes if one.queue in queues and max(one.due, one.held_until) <= now)[
        :limit
    ]


def in_delivery_order(wakes: Iterable[PendingWake]) -> list[PendingWake]:
    """Return wakes in the order of delivery."""
    return sorted(wakes, key=lambda one: (-one.priority, one.seq))


_COLUMNS = "run_id, due, queue, priority, seq, held_until"


class WakeTable:
    """The wakes of a SQLite journal. Callers of the methods that write hold the transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def store(self, wakes: Sequence[Wake]) -> None:
        self._connection.executemany(
            "INSERT INTO wakes (run_id, due, queue, priority, held_until) VALUES (?, ?, ?, ?, 0)",
            [(one.run_id, one.due, one.queue, one.priority) for one in wakes],
        )

    def take(self, queues: Collection[str], limit: int, hold: float) -> list[PendingWake]:
        now = microseconds()
        marks = ", ".join("?" * len(queues))
        found = self._connection.execute(
            f"SELECT {_COLUMNS} FROM wakes WHERE due <= ? AND held_until <= ? AND queue IN ({marks}) "  # noqa: S608 - constants
            "ORDER BY priority DESC, seq LIMIT ?",
            (now, now, *queues, limit),
        )
        until = now + round(hold * 1_000_000)
        taken = [msgspec.structs.replace(to_wake(row), held_until=until) for row in found]
        self._hold([one.seq for one in taken], until)
        return taken

    def hold(self, seqs: Collection[int], hold: float) -> None:
        self._hold(seqs, microseconds() + round(hold * 1_000_000))

    def _hold(self, seqs: Collection[int], until: int) -> None:
        self._connection.executemany("UPDATE wakes SET held_until = ? WHERE seq = ?", [(until, seq) for seq in seqs])

    def finish(self, seqs: Collection[int]) -> None:
        self._connection.executemany("DELETE FROM wakes WHERE seq = ?", [(seq,) for seq in seqs])


ALL_WAKES = f"SELECT {_COLUMNS} FROM wakes WHERE ? IS NULL OR run_id = ? ORDER BY seq"  # noqa: S608 - constants
FIRST_WAKES = f"SELECT {_COLUMNS} FROM wakes WHERE queue = ? ORDER BY priority DESC, seq LIMIT ?"  # noqa: S608 - constants


def to_wake(columns: tuple[str, int, str, int, int, int]) -> PendingWake:
    """Return a wake from the columns of `ALL_WAKES`."""
    run_id, due, queue, priority, seq, held_until = columns
    return PendingWake(run_id, due, queue, priority, seq=seq, held_until=held_until)
