"""The open questions of a conversation and of its runs, oldest first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.chat.items import Question


class InterventionRegistry:
    """Questions that wait for a reply. The journal has them too; this is what the process shows."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Question] = {}
        self._has_some = asyncio.Event()

    def __iter__(self) -> Iterator[Question]:
        return iter(tuple(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    @property
    def first(self) -> Question | None:
        """The oldest open question."""
        return next(iter(self), None)

    async def wait(self) -> Question:
        """Wait until a question is open; return the oldest."""
        while (question := self.first) is None:
            self._has_some.clear()
            await self._has_some.wait()
        return question

    def open(self, question: Question) -> None:
        """Add a question."""
        self._open[question.run, question.wait.id] = question
        self._has_some.set()

    def close(self, run: str, wait_id: str) -> None:
        """Remove a question: it has a reply, it expired, or its run ended."""
        self._open.pop((run, wait_id), None)
