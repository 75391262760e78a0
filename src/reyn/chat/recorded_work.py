"""What ran and what was asked in a recorded conversation: skills, questions and answers. A fold over the journal."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from reyn.chat.reader import read_turns
from reyn.journal import Event, Journal, RunRow, decode, kinds
from reyn.journal.family import descendants


class ConversationSkill(msgspec.Struct, frozen=True):
    """A skill that ran for a conversation.

    Attributes:
        number: The message that the agent answered when it started the run.
        run: The run.
        skill: Its skill.
        background: Whether the agent did not wait for it.
        status: Its status now.
        reason: Why it has this status.
    """

    number: int
    run: str
    skill: str
    background: bool
    status: str
    reason: str


class RecordedQuestion(msgspec.Struct, frozen=True):
    """A question of a conversation, or of a run below it.

    Attributes:
        number: The message that the agent answered when the run that asks was started.
        run: The run that asks.
        skill: Its skill.
        reason: `question`, `approval`, `decision` or `unsafe`.
        message: The question.
        at: When it was asked, in microseconds since 1970, UTC.
        is_answered: Whether it has an answer.
        answer: The answer, a JSON value.
        by: The user who answered, if known.
    """

    number: int
    run: str
    skill: str
    reason: str
    message: str
    at: int
    is_answered: bool = False
    answer: Any = None
    by: str = ""


class RecordedWork(NamedTuple):
    """The skills that ran for a conversation, and what its user was asked, each the oldest first."""

    runs: list[ConversationSkill]
    questions: list[RecordedQuestion]


def read_work(journal: Journal, row: RunRow) -> RecordedWork:
    """Return what ran and what was asked in a conversation and in the runs below it."""
    numbers: dict[str, int] = {}
    runs, asked, number = [], _Asked(journal), 0
    for said, event, body in read_turns(journal.read(row.run_id), *_ASKING, kinds.ChildStarted):
        number = said.number if said is not None else number
        asked.read(number, row, event, body)
        if isinstance(body, kinds.ChildStarted):
            numbers.setdefault(body.run, number)
            if body.type in ("skill", "background"):
                runs.append(_run(journal, number, body))
    for run, number in numbers.items():
        child = journal.find(run)
        for below in () if child is None else (child, *descendants(journal, run)):
            for event in journal.read(below.run_id):
                if event.kind in _ASKING_KINDS:
                    asked.read(number, below, event, decode(event))
    return RecordedWork(runs, sorted(asked.questions.values(), key=lambda one: one.at))


def _run(journal: Journal, number: int, body: kinds.ChildStarted) -> ConversationSkill:
    row = journal.find(body.run)
    status, reason = (str(row.status), row.reason) if row is not None else ("not started", "")
    return ConversationSkill(number, body.run, body.skill, body.type == "background", status, reason)


_ASKING = (kinds.WaitOpened, kinds.WaitAnswered)
_ASKING_KINDS = frozenset(body.kind for body in _ASKING)


class _Asked:
    """The questions so far, by run and id. What a conversation waits for is no question."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.questions: dict[tuple[str, str], RecordedQuestion] = {}

    def read(self, number: int, row: RunRow, event: Event, body: Any) -> None:
        """Add a question, or the answer to one."""
        if isinstance(body, kinds.WaitOpened) and not (body.wait.is_message or body.wait.is_timer):
            asked = RecordedQuestion(number, row.run_id, row.skill, body.wait.reason, body.wait.message, at=event.ts)
            self.questions.setdefault((row.run_id, body.wait.id), asked)
        elif isinstance(body, kinds.WaitAnswered) and (found := self.questions.get((row.run_id, body.wait))):
            value = msgspec.json.decode(self._journal.blob(body.value))
            self.questions[row.run_id, body.wait] = msgspec.structs.replace(
                found, is_answered=True, answer=value, by=body.by
            )
