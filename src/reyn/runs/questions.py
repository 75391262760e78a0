"""Open questions: which run asks what, and how the words that a person types become the value of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import AnswerInvalid, WaitUnknown
from reyn.journal import ENDED, Answer
from reyn.journal.kinds import Wait
from reyn.kernel.run_state import fold
from reyn.runs.family import below

if TYPE_CHECKING:
    from reyn.journal import Journal, RunRow


class Question(msgspec.Struct, frozen=True):
    """A question that is open at a run, or at one below it. `is_answered`: the answer lies in the inbox of the run that
    asks, which nobody has driven since."""

    run_id: str
    wait: Wait
    is_answered: bool


def open_question(journal: Journal, row: RunRow) -> Question | None:
    """What a run waits for. While it is driven, a question below it is not its own yet, but is as open."""
    asking = _asking(journal, row)
    if asking is None:
        return None
    state = fold(journal.read(asking.run_id))
    if state.wait is None:  # answered between the two looks
        return None
    said = [message.said for message in journal.drain(asking.run_id, state.messages_taken)]
    is_answered = any(isinstance(what, Answer) and what.wait == state.wait.id for what in said)
    return Question(asking.run_id, state.wait, is_answered)


def _asking(journal: Journal, row: RunRow) -> RunRow | None:
    if row.status in ENDED:
        return None
    family = [row] if _is_own(row) else below(journal, row.run_id)
    return next((run for run in family if run.status == "waiting" and _is_own(run)), None)


def _is_own(row: RunRow) -> bool:
    return row.wait is not None and row.wait.run is None


def find_question(journal: Journal, row: RunRow, wait: str) -> Question:
    """The question of that name, at a run or below it; an error if it is not open any more, or never was."""
    question = open_question(journal, row)
    if question is None or question.wait.id != wait:
        waits = f"it waits for `{question.wait.id}`" if question else f"it is {row.status}"
        raise WaitUnknown(f"run `{row.run_id}` has no open question `{wait}`; {waits}")
    if question.is_answered:
        raise WaitUnknown(
            f"question `{wait}` of run `{question.run_id}` was answered already",
            hint=f"`reyn resume {row.run_id}` goes on with the answer.",
        )
    return question


def read_answer(wait: Wait, words: str) -> Any:
    """Text where the question takes text, else JSON; nothing at all where it need not be answered."""
    kinds = _taken(wait.response_schema)
    if not words and "null" in kinds:
        return None
    if "string" in kinds:
        return words
    try:
        return msgspec.json.decode(words)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        schema = msgspec.json.encode(wait.response_schema).decode()
        hint = f"The question takes JSON that fits {schema}."
        raise AnswerInvalid(f"the answer is not JSON: {error}", hint=hint) from error


def _taken(schema: Any) -> set[str]:
    """The JSON types that a schema names, as far as it says so plainly."""
    if not isinstance(schema, dict):
        return set()
    named = schema.get("type", [])
    found = {named} if isinstance(named, str) else set(named)
    values = [*schema.get("enum", []), *([schema["const"]] if "const" in schema else [])]
    if not found:
        found = {"string" for value in values if isinstance(value, str)} | {"null" for value in values if value is None}
    branches = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
    return found.union(*(_taken(branch) for branch in branches))
