"""A deterministic clock and deterministic ids."""

from __future__ import annotations


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
