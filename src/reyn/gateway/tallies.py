"""What a server remembers for `/metrics`: how long its model calls took, and what earlier days were charged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from reyn.journal import kinds

if TYPE_CHECKING:
    from reyn.journal import Event, Journal
    from reyn.journal.spending import SpendRow

_MAX_CALLS = 10_000
"""How many model calls in progress are remembered."""
_LATE_DAYS = 2
"""For how many days after a call it may still be charged; what is charged later counts after a restart."""
BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The upper bounds of the histogram, in seconds."""


class CallTimes:
    """How long the model calls of this process took, from request to answer, with retries and waits."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str], tuple[int, str]] = {}
        self._counts: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def observe(self, event: Event) -> None:
        """Learn of an event of this process."""
        if event.kind not in _OF_CALLS:
            return
        data = event.data
        key = (event.run_id, data["call"])
        if event.kind == kinds.LlmRequested.kind:
            if len(self._begun) >= _MAX_CALLS:
                self._begun.pop(next(iter(self._begun)))
            self._begun[key] = (event.ts, data["model"])
        elif (begun := self._begun.pop(key, None)) is not None:
            at, model = begun
            seconds = max(0, event.ts - at) / 1e6
            counts = self._counts.setdefault(model, [0] * (len(BOUNDS) + 1))
            counts[next((index for index, bound in enumerate(BOUNDS) if seconds <= bound), len(BOUNDS))] += 1
            self._seconds[model] = self._seconds.get(model, 0.0) + seconds

    def found(self) -> list[tuple[str, list[int], float]]:
        """Return for each model its calls, counted by `BOUNDS` and above, and their seconds together."""
        return [(model, list(counts), self._seconds[model]) for model, counts in sorted(self._counts.items())]


_OF_CALLS = frozenset((kinds.LlmRequested.kind, kinds.LlmResponded.kind, kinds.LlmFailed.kind))


class ChargedSoFar:
    """What all recorded model calls were charged, by skill and model. Earlier days are read once.

    Args:
        day_before: Returns the day that was so many days ago, as budgets count them.
    """

    def __init__(self, day_before: Callable[[int], str]) -> None:
        self._day_before = day_before
        self._lock = Lock()
        self._earlier: Counter[tuple[str, str, str, str]] = Counter()
        self._since = ""

    def totals(self, journal: Journal) -> Counter[tuple[str, str, str, str]]:
        """Return the totals: by name, skill, model and currency."""
        since = self._day_before(_LATE_DAYS)
        with self._lock:
            recent = journal.charges(self._since)
            for row in recent:
                if row.day < since:
                    _add(self._earlier, row)
            self._since = max(since, self._since)
            found = self._earlier.copy()
        for row in recent:
            if row.day >= since:
                _add(found, row)
        return found


def _add(totals: Counter[tuple[str, str, str, str]], row: SpendRow) -> None:
    totals["reyn_tokens_total", row.skill, row.model, ""] += row.input_tokens + row.output_tokens
    totals["reyn_model_calls_total", row.skill, row.model, ""] += row.calls
    if row.currency:
        totals["reyn_cost_total", row.skill, row.model, row.currency] += row.cost
