"""The open questions of a conversation and of its runs, oldest first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from reyn.chat.items import QuestionAsked
from reyn.kernel.runtime_types import LATER, Later

if TYPE_CHECKING:
    from reyn.journal.kinds import Question


class InterventionRegistry:
    """Questions that wait for a reply. The journal has them too; this is what the process shows."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], QuestionAsked] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        """The number of each question so far. A number never names another question."""
        self._asleep: dict[str, asyncio.Future[Later]] = {}
        self._has_some = asyncio.Event()

    def __iter__(self) -> Iterator[QuestionAsked]:
        return iter(tuple(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    @property
    def first(self) -> QuestionAsked | None:
        """The oldest open question."""
        return next(iter(self), None)

    def oldest(self, *, must_be_named: bool) -> QuestionAsked | None:
        """Return the oldest open question of those that a reply must name, or of those that it need not name."""
        return next((one for one in self if one.question.must_be_named == must_be_named), None)

    def named(self, name: str) -> QuestionAsked | None:
        """Return the open question with a number or an id."""
        return next((one for one in self if name in (str(one.number), one.question.id)), None)

    def has(self, question: QuestionAsked) -> bool:
        """Return whether a question is open."""
        return (question.run, question.question.id) in self._open

    async def wait(self, holds: Callable[[QuestionAsked], bool] = lambda _: True) -> QuestionAsked:
        """Wait until a question is open for which `holds` is true; return the oldest."""
        while (question := next(filter(holds, self), None)) is None:
            self._has_some.clear()
            await self._has_some.wait()
        return question

    async def sleep(self, run: str) -> Later:
        """Wait until something for a run is in its inbox. Other processes put it there without a call of `wake`."""
        woken: asyncio.Future[Later] = asyncio.get_running_loop().create_future()
        self._asleep[run] = woken
        return await woken

    def wake(self, run: str) -> None:
        """Let a run look at its inbox."""
        if (asleep := self._asleep.pop(run, None)) is not None and not asleep.done():
            asleep.set_result(LATER)

    def open(self, run: str, question: Question, skill: str) -> QuestionAsked:
        """Add a question of a run of a skill."""
        key = (run, question.id)
        number = self._numbers.setdefault(key, len(self._numbers) + 1)
        asked = self._open[key] = QuestionAsked(run, question, number, skill)
        self._has_some.set()
        return asked

    def close(self, run: str, question_id: str) -> None:
        """Remove a question: it has a reply, it expired, or its run ended."""
        self._open.pop((run, question_id), None)
