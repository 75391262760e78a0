"""The open questions of a conversation and of its runs, oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.chat.items import QuestionAsked


class InterventionRegistry:
    """Questions that wait for a reply. The journal has them too; this is what the process shows."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], QuestionAsked] = {}

    def __iter__(self) -> Iterator[QuestionAsked]:
        return iter(tuple(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    @property
    def first(self) -> QuestionAsked | None:
        """The oldest open question."""
        return next(iter(self), None)

    def open(self, question: QuestionAsked) -> None:
        """Add a question."""
        self._open[question.run, question.question.id] = question

    def close(self, question: QuestionAsked) -> None:
        """Remove a question that has a reply."""
        self.closed(question.run, question.question.id)

    def closed(self, run: str, question_id: str) -> None:
        """Remove a question that is not open any more: another process replied, it expired, or its run ended."""
        self._open.pop((run, question_id), None)
