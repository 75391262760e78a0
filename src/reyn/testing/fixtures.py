"""Deterministic values for tests: a clock, ids, and the events of runs."""

from __future__ import annotations

from collections.abc import Sequence

from reyn.journal import GENESIS, Blob, Body, Event, kinds, registry


class SteppingClock:
    """A clock that advances by a fixed number of microseconds with every call."""

    def __init__(self, start: int = 1_750_000_000_000_000, step: int = 1_000) -> None:
        self._now = start - step
        self._step = step

    def now(self) -> int:
        self._now += self._step
        return self._now

    def advance(self, seconds: int) -> None:
        """Let time pass."""
        self._now += seconds * 1_000_000


class CountingIds:
    """Ids `run-1`, `run-2`, …"""

    def __init__(self, prefix: str = "run") -> None:
        self._prefix = prefix
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count}"


# -- events ----------------------------------------------------------------------------------------------------

NOTE = Blob.of(b'{"data":{},"type":"note"}')


def run_started(run_id: str) -> Body:
    reference = kinds.ArtifactRef("note", NOTE.hash)
    return kinds.RunStarted(run_id, "skill", NOTE.hash, reference, "scripted", NOTE.hash, 1, 1)


def phase_started(visit: int, phase: str = "draft") -> Body:
    return kinds.PhaseStarted(phase, visit, kinds.ArtifactRef("note", NOTE.hash))


_PRICE = kinds.Price("USD", 1_000_000_000, 2_000_000_000)


def budget_reserved(
    call: str, tokens: int, *, cap: int | None = None, day: str = "2026-11-16", model: str = "model"
) -> Body:
    """Return the reservation of a call that draws on the account of a day."""
    draw = kinds.Draw(f"day:{day}", "day", cap)
    return kinds.BudgetReserved(call, 1, model, day, tokens - 1, 1, tokens * 1000, _PRICE, (draw,))


def budget_settled(call: str, tokens: int) -> Body:
    return kinds.BudgetSettled(call, 1, kinds.Usage(tokens - 1, 1), "usage", tokens * 1000)


def events_after(run_id: str, bodies: Sequence[Body], after: Sequence[Event] = (), ts: int = 1) -> list[Event]:
    """Return the events of a run, chained to each other and to the last event of `after`."""
    seq, prev = (after[-1].seq, after[-1].hash) if after else (0, GENESIS)
    return registry.chain_events(run_id, bodies, seq, prev, ts)
