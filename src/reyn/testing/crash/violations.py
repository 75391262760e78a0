"""What a ledger holds against a run: answers lost or paid for twice, changes undone, done twice or never meant."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reyn.journal import Event
    from reyn.testing.crash.ledger import Entry


class Claims(msgspec.Struct, frozen=True):
    """What a run's journal says it was given: answers of its model by call, answers of people by question."""

    answers: dict[str, str]
    said: dict[str, str]

    @classmethod
    def of(cls, events: Iterable[Event]) -> Claims:
        answers, said = {}, {}
        for event in events:
            match decode(event):
                case kinds.LlmResponded(call=call, text=text):
                    answers[call] = text
                case kinds.WaitAnswered(wait=wait, value=value):
                    said[wait] = value
        return cls(answers, said)


def violations(ledger: list[Entry], claims: Claims, kills: int) -> list[str]:
    """What the lines of one run hold against it, after it finished."""
    return [
        *_lost(ledger),
        *_asked_again(ledger, kills),
        *_phantom(ledger, claims.answers),
        *_questioned_again(ledger),
        *_never_said(ledger, claims.said),
    ]


def changes_in(ledger: list[Entry]) -> Counter[tuple[str, str]]:
    """How often each change of a file took place: by its token, and by what it made of which file."""
    return Counter((entry.call, entry.text) for entry in ledger if entry.what == "changed")


def file_violations(ledger: list[Entry], expected: Iterable[tuple[str, str]], *, by_chance: bool = False) -> list[str]:
    """What the lines of all runs hold against their changes of files. `expected` are those of an undisturbed run.

    A kill `by_chance` may fall between a change and its line: then it is enough that the change was begun.
    """
    seen = changes_in(ledger)
    begun = {(entry.call, entry.text) for entry in ledger if entry.what == "changing"}
    took_place = begun if by_chance else seen.keys()
    wanted = set(expected)
    return [
        *(f"the change of {change[1]} took place {times} times" for change, times in seen.items() if times > 1),
        *(f"the change of {change[1]} was lost: it never took place" for change in wanted if change not in took_place),
        *(f"the change of {change[1]} took place, but nobody asked for it" for change in begun if change not in wanted),
        *_unintended(ledger),
    ]


def _lost(ledger: list[Entry]) -> Iterator[str]:
    """Once a later call is asked, the answers to all earlier ones are kept: none of them is asked again."""
    newest: tuple[int, ...] = ()
    for entry in ledger:
        if entry.what == "asked":
            place = tuple(int(number) for number in entry.call.split("."))
            if place < newest:
                yield f"call {entry.call} was asked again after a later one: its answer was lost"
            newest = max(newest, place)


def _asked_again(ledger: list[Entry], kills: int) -> Iterator[str]:
    """A durable answer is never asked for again; a kill costs one unrecorded answer at the most."""
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
    """What the journal says was answered was answered, with that text; and what was asked for is in the journal."""
    given = {(entry.call, entry.text) for entry in ledger if entry.what == "answered"}
    for call, text in claimed.items():
        if (call, text) not in given:
            yield f"the journal holds an answer to call {call} that nobody gave"
    for call in {entry.call for entry in ledger if entry.what == "asked"} - claimed.keys():
        yield f"call {call} was asked but the finished run knows nothing of it: its answer was lost"


def _questioned_again(ledger: list[Entry]) -> Iterator[str]:
    """Whoever answered a question, durably, is left in peace."""
    posted: set[str] = set()
    for entry in ledger:
        if entry.what == "posted":
            posted.add(entry.call)
        elif entry.what == "questioned" and entry.call in posted:
            yield f"question {entry.call} was asked again although its answer was durable"


def _never_said(ledger: list[Entry], claimed: dict[str, str]) -> Iterator[str]:
    said = {(entry.call, entry.text) for entry in ledger if entry.what == "said"}
    for wait, value in claimed.items():
        if (wait, value) not in said:
            yield f"the journal holds an answer to question {wait} that nobody gave"
    for wait in {entry.call for entry in ledger if entry.what == "posted"} - claimed.keys():
        yield f"question {wait} was answered but the finished run knows nothing of it: the answer was lost"


def _unintended(ledger: list[Entry]) -> Iterator[str]:
    """A file is touched only after the intent to do so is durable."""
    intended: set[str] = set()
    for entry in ledger:
        if entry.what == "intended":
            intended.add(entry.text)
        elif entry.what == "changing":
            path, _, content = entry.text.rpartition(" ")
            if f"{path.rpartition('/')[2]} {content}" not in intended:
                yield f"the change of {entry.text} took place before its intent was durable"
