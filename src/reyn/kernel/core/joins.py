"""Decide when the branches of a fan-out are joined. Pure: a fold over the ends of branches, in any order."""

from __future__ import annotations

from typing import Literal

MAX_ATTEMPTS = 3
"""How often a branch runs with `on_item_error: retry`, the first attempt included."""

JoinVerdict = Literal["open", "met", "impossible"]


class Join:
    """The join of a number of branches.

    Attributes:
        total: The number of branches.
        needed: How many have to complete.
        completed: Those that completed, in the order in which they ended.
        failed: Those that failed for good, in the same order.
    """

    def __init__(self, total: int, need: Literal["all", "any"] | int, on_error: str) -> None:
        self.total = total
        self.needed = total if need == "all" else 1 if need == "any" else need
        self.completed: list[int] = []
        self.failed: list[int] = []
        self._takes_failures = need == "all" and on_error == "collect"
        self._attempts = MAX_ATTEMPTS if on_error == "retry" else 1
        self._tries: dict[int, int] = {}

    def attempt(self, branch: int) -> int:
        """Return the number of the next attempt of a branch, from 1."""
        return self._tries.get(branch, 0) + 1

    def end(self, branch: int, *, has_completed: bool) -> bool:
        """Count the end of an attempt, and return whether the branch has to run again."""
        if has_completed:
            self.completed.append(branch)
            return False
        self._tries[branch] = self.attempt(branch)
        if self._tries[branch] < self._attempts:
            return True
        self.failed.append(branch)
        return False

    @property
    def left(self) -> int:
        """The number of branches that have not ended."""
        return self.total - len(self.completed) - len(self.failed)

    @property
    def verdict(self) -> JoinVerdict:
        """Whether enough branches have completed, or too many have failed."""
        if self._takes_failures:
            return "open" if self.left else "met"
        if len(self.completed) >= self.needed:
            return "met"
        return "open" if len(self.completed) + self.left >= self.needed else "impossible"
