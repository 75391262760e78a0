"""Budgets that all ops of one visit share: bytes to read, match and record.

An op that would exceed a budget fails with a message to the model; nothing is stopped. Budgets are counted while ops
are performed: results are recorded, so a replay needs no count, and a resumed visit starts with full budgets.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import msgspec

if TYPE_CHECKING:
    from reyn.journal import Blob

SEARCH_SECONDS = 2.0
"""Time limit of one search."""
VISIT_SEARCH_SECONDS = 20.0
"""Time limit of all searches of a visit."""


class OpFailed(Exception):
    """The op cannot be executed as requested. `fields` are added to the error result; `error_name` names the error."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.fields = fields


class EffectUnknown(OpFailed):
    """The op may have taken effect, but it has no result that can be used."""


class OpRefused(OpFailed):
    """A permission rule forbids something that an op found out while it was performed."""

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message, rule=rule)


class OpBudgetExceeded(OpFailed):
    """A budget of the visit is used up."""

    def __init__(self, what: str, most: int, key: str) -> None:
        advice = "use what you have, or look at less at a time"
        super().__init__(f"the ops of this visit may {what} {most} bytes (`sizes.{key}`), and have; {advice}")


class OpBudgets(msgspec.Struct, frozen=True):
    """The budgets of a visit, in bytes."""

    read: int = 200_000_000
    matched: int = 500_000_000
    recorded: int = 32_000_000


class OpBudget:
    """Counts the usage of all ops of one visit."""

    def __init__(self, most: OpBudgets | None = None) -> None:
        self.most = most or OpBudgets()
        self._read = 0
        self._matched = 0
        self._recorded = 0
        self._known: set[str] = set()
        self._searching = 0.0

    def check_read(self) -> None:
        """Raise `OpBudgetExceeded` if nothing may be read any more."""
        if self._read >= self.most.read:
            raise OpBudgetExceeded("read", self.most.read, "visit_read_bytes")

    def add_read(self, count: int) -> None:
        self._read += count

    def add_matched(self, count: int) -> None:
        """Count text that is about to be searched."""
        if self._matched >= self.most.matched:
            raise OpBudgetExceeded("search", self.most.matched, "visit_matched_bytes")
        self._matched += count

    def add_recorded(self, blobs: Iterable[Blob]) -> None:
        """Count content that is about to be recorded; the same content counts once.

        Raises:
            OpBudgetExceeded: It would be too much; none of it counts.
        """
        new: set[str] = set()
        total = self._recorded
        for blob in blobs:
            if blob.hash not in self._known and blob.hash not in new:
                new.add(blob.hash)
                total += len(blob.content)
        if total > self.most.recorded:
            raise OpBudgetExceeded("record", self.most.recorded, "visit_recorded_bytes")
        self._recorded = total
        self._known |= new

    def has_room_for(self, blobs: Iterable[Blob]) -> bool:
        """Count content that is about to be recorded; return false, and count nothing, if it would be too much."""
        with suppress(OpBudgetExceeded):
            self.add_recorded(blobs)
            return True
        return False

    def search(self) -> Deadline:
        """Return the deadline of a search."""
        left = VISIT_SEARCH_SECONDS - self._searching
        if left <= 0:
            raise OpFailed(f"the searches of this visit took {VISIT_SEARCH_SECONDS:g} seconds, the most allowed")
        return Deadline(self, min(left, SEARCH_SECONDS))

    def add_search(self, seconds: float) -> None:
        self._searching += seconds


class Deadline:
    """Context manager for the time limit of one search, which counts towards the visit's."""

    def __init__(self, budget: OpBudget, seconds: float) -> None:
        self._budget = budget
        self._started = time.monotonic()
        self._seconds = seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.add_search(time.monotonic() - self._started)

    def remaining(self) -> float:
        """Return the remaining seconds; raise `TimeoutError` if there are none."""
        seconds = self._started + self._seconds - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds
