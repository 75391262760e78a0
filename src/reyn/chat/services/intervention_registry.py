"""The open questions of a conversation and of its runs, oldest first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reyn.chat.items import QuestionAsked


class InterventionRegistry:
    """Questions that wait for a reply. The journal has them too; this is what the process shows."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], QuestionAsked] = {}
        self._has_some = asyncio.Event()

    def __iter__(self) -> Iterator[QuestionAsked]:
        return iter(tuple(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    @property
    def first(self) -> QuestionAsked | None:
        """The oldest open question."""
        return next(iter(self), None)

    def has(self, question: QuestionAsked) -> bool:
        """Return whether a question is open."""
        return (question.run, question.question.id) in self._open

    async def wait(self, holds: Callable[[QuestionAsked], bool] = lambda _: True) -> QuestionAsked:
        """Wait until a question is open for which `holds` is true; return the oldest."""
        while (question := next(filter(holds, self), None)) is None:
            self._has_some.clear()
            await self._has_some.wait()
        return question

    def open(self, question: QuestionAsked) -> None:
        """Add a question."""
        self._open[question.run, question.question.id] = question
        self._has_some.set()

    def close(self, run: str, question_id: str) -> None:
        """Remove a question: it has a reply, it expired, or its run ended."""
        self._open.pop((run, question_id), None)
