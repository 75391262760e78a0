"""Compare a ledger with a finished run: answers lost or paid for twice, changes lost, repeated or unintended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from reyn.journal import Event, decode, kinds

if TYPE_CHECKING:
    from reyn.testing.crash.ledger import Entry


class Claims(msgspec.Struct, frozen=True):
    """The answers that a run's journal contains: of its model by call, of users by question."""

    answers: dict[str, str]
    user_answers: dict[str, str]

    @classmethod
    def of(cls, events: Iterable[Event]) -> Claims:
        answers, user_answers = {}, {}
        for event in events:
            match decode(event):
                case kinds.LlmResponded(call=call, text=text):
                    answers[call] = text
                case kinds.WaitAnswered(wait=wait, value=value):
                    user_answers[wait] = value
        return cls(answers, user_answers)


def violations(ledger: list[Entry], claims: Claims, kills: int) -> list[str]:
    """Return the violations of one run that finished after some kills."""
    return [
        *_lost(ledger),
        *_asked_again(ledger, kills),
        *_phantom(ledger, claims.answers),
        *_questioned_again(ledger),
        *_unknown_answers(ledger, claims.user_answers),
    ]


def changes_in(ledger: list[Entry]) -> Counter[tuple[str, str]]:
    """Count how often each file change took place, by its token and by file and content."""
    return Counter((entry.call, entry.text) for entry in ledger if entry.what == "changed")


def file_violations(ledger: list[Entry], expected: Iterable[tuple[str, str]], *, by_chance: bool = False) -> list[str]:
    """Return the violations in the file changes of all runs.

    Args:
        ledger: The ledger.
        expected: The changes of an undisturbed run.
        by_chance: Whether kills came at random moments, so that one may have come between a change and its line. Then
            a change that was started counts.
    """
    seen = changes_in(ledger)
    started = {(entry.call, entry.text) for entry in ledger if entry.what == "changing"}
    took_place = started if by_chance else seen.keys()
    wanted = set(expected)
    return [
        *(f"the change of {change[1]} took place {times} times" for change, times in seen.items() if times > 1),
        *(f"the change of {change[1]} was lost: it never took place" for change in wanted if change not in took_place),
        *(f"the change of {change[1]} took place, but was not requested" for change in started if change not in wanted),
        *_unintended(ledger),
    ]


def _lost(ledger: list[Entry]) -> Iterator[str]:
    """Once a later call is made, the answers to all earlier ones are durable, so none of those is made again."""
    newest: tuple[int, ...] = ()
    for entry in ledger:
        if entry.what == "asked":
            place = tuple(int(number) for number in entry.call.split("."))
            if place < newest:
                yield f"call {entry.call} was asked again after a later one: its answer was lost"
            newest = max(newest, place)


def _asked_again(ledger: list[Entry], kills: int) -> Iterator[str]:
    """A durable answer is never requested again; a kill costs at most one unrecorded answer."""
    durable: set[str] = set()
    asked: list[str] = []
    for entry in ledger:
        if entry.what == "durable":
            durable.add(entry.call)
        elif entry.what == "asked":
            if entry.call in durable:
                yield f"call {entry.call} was asked again although its answer was durable"
            asked.append(entry.call)
        elif entry.what == "refused":
            asked.remove(entry.call)
    if len(asked) - len(set(asked)) > kills:
        yield f"{len(asked) - len(set(asked))} calls were asked again after {kills} kills"


def _phantom(ledger: list[Entry], claimed: dict[str, str]) -> Iterator[str]:
    """The model returned every answer in the journal, with the same text; every call is in the journal."""
    actual = {(entry.call, entry.text) for entry in ledger if entry.what == "answered"}
    for call, text in claimed.items():
        if (call, text) not in actual:
            yield f"the journal contains an answer to call {call} that the model did not give"
    for call in {entry.call for entry in ledger if entry.what == "asked"} - claimed.keys():
        yield f"call {call} was made but is not in the finished run: its answer was lost"


def _questioned_again(ledger: list[Entry]) -> Iterator[str]:
    """A question with a durable answer is not asked again."""
    posted: set[str] = set()
    for entry in ledger:
        if entry.what == "posted":
            posted.add(entry.call)
        elif entry.what == "questioned" and entry.call in posted:
            yield f"question {entry.call} was asked again although its answer was durable"


def _unknown_answers(ledger: list[Entry], claimed: dict[str, str]) -> Iterator[str]:
    """The user sent every reply in the journal, and every posted answer is in the journal."""
    actual = {(entry.call, entry.text) for entry in ledger if entry.what == "replied"}
    for wait, value in claimed.items():
        if (wait, value) not in actual:
            yield f"the journal contains an answer to question {wait} that the user did not give"
    for wait in {entry.call for entry in ledger if entry.what == "posted"} - claimed.keys():
        yield f"question {wait} was answered but is not in the finished run: the answer was lost"


def _unintended(ledger: list[Entry]) -> Iterator[str]:
    """A file is changed only after the intent is durable."""
    intended: set[str] = set()
    for entry in ledger:
        if entry.what == "intended":
            intended.add(entry.text)
        elif entry.what == "changing":
            path, _, content = entry.text.rpartition(" ")
            if f"{path.rpartition('/')[2]} {content}" not in intended:
                yield f"the change of {entry.text} took place before its intent was durable"
