"""The open questions of a conversation and of its runs, oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.chat.items import Question


class InterventionRegistry:
    """Questions that wait for a reply. The journal has them too; this is what the process shows."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Question] = {}

    def __iter__(self) -> Iterator[Question]:
        return iter(tuple(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    @property
    def first(self) -> Question | None:
        """The oldest open question."""
        return next(iter(self), None)

    def open(self, question: Question) -> None:
        """Add a question."""
        self._open[question.run, question.wait.id] = question

    def close(self, question: Question) -> None:
        """Remove a question that has a reply."""
        self.closed(question.run, question.wait.id)

    def closed(self, run: str, wait_id: str) -> None:
        """Remove a question that is not open any more: another process replied, it expired, or its run ended."""
        self._open.pop((run, wait_id), None)
