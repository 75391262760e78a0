"""Families of runs: a root run and its descendants, the sub-runs that it and they started, and their open questions.

The id of a sub-run starts with the id of its parent, but a user may give such an id to any run; `parent` decides.
Nothing reads events: the row of a run contains its question. `reyn.kernel.world.inbox` has the protocol of replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.documents import JsonError, decode_json
from reyn.errors import NextAction, ReplyInvalid, RunImported, RunNotFound, RunNotResumable
from reyn.journal.kinds import Question
from reyn.journal.lifecycle import ENDED, RunRow
from reyn.journal.messages import Answer, Say

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.journal.port import Journal

_MAX_LISTED = 5


def lineage(journal: Journal, row: RunRow) -> list[RunRow]:
    """Return a run, its parent, and so on up to the root run."""
    rows = [row]
    seen = {row.run_id}
    while row.parent and row.parent not in seen and (parent := journal.find(row.parent)) is not None:
        row = parent
        seen.add(row.run_id)
        rows.append(row)
    return rows


def has_child(journal: Journal, run_id: str, child: str) -> bool:
    """Return whether a run, or one that it was forked from, awaits another one: an archive can name any run."""
    row, origin = journal.find(child), journal.find(run_id)
    while row is not None and origin is not None:
        if row.parent == origin.run_id:
            return child.startswith(f"{row.parent}.")
        origin = journal.find(origin.fork_of) if origin.fork_of else None
    return False


def root_run(journal: Journal, row: RunRow) -> RunRow:
    """Return the root run, which has to be resumed to continue any run of its family."""
    return lineage(journal, row)[-1]


def descendants(journal: Journal, run_id: str) -> list[RunRow]:
    """Return the sub-runs of a run and theirs, each after its parent."""
    rows: dict[str, RunRow] = {}
    for row in sorted(journal.runs(f"{run_id}."), key=lambda row: (len(row.run_id), row.started)):
        if row.parent == run_id or row.parent in rows:
            rows[row.run_id] = row
    return list(rows.values())


def find_run(journal: Journal, run: str, is_visible: Callable[[RunRow], bool] = lambda _: True) -> RunRow:
    """Return a run by its id, or by a unique prefix of it. Runs that are not visible to the caller count as missing.

    Raises:
        RunNotFound: There is no such run, or the prefix is ambiguous.
    """
    row = journal.find(run)
    if row is not None and is_visible(row):
        return row
    rows = [row for row in journal.runs(run) if not row.parent.startswith(run) and is_visible(row)] if run else []
    if len(rows) == 1:
        return rows[0]
    if not rows:
        raise RunNotFound(f"no run `{run}`")
    ids = [f"`{row.run_id}`" for row in rows[:_MAX_LISTED]]
    more = [f"{len(rows) - _MAX_LISTED} more"] if len(rows) > _MAX_LISTED else []
    raise RunNotFound(f"`{run}` is the beginning of {len(rows)} run ids: {', '.join([*ids, *more])}")


def check_open(row: RunRow, what: str, hint: str) -> RunRow:
    """Return a run that has not ended and was not imported.

    Raises:
        RunImported: It was imported.
        RunNotResumable: It has ended.
    """
    check_not_imported(row, f"{what}: it is never executed here")
    if row.status in ENDED:
        raise RunNotResumable(f"run `{row.run_id}` is already {row.status}", hint=hint)
    return row


def check_not_imported(row: RunRow, what: str) -> None:
    """Refuse an operation that would execute an imported run, append to it, or apply its changes.

    Raises:
        RunImported: The run was imported.
    """
    if row.imported:
        raise RunImported(
            f"run `{row.run_id}` was imported from {row.imported} and cannot be {what}",
            action=NextAction("fork", row.run_id),
        )


# -- open questions -----------------------------------------------------------------------------------


class OpenQuestion(msgspec.Struct, frozen=True):
    """An open question of a run or of one of its descendants."""

    row: RunRow
    """The run that asks."""
    question: Question
    is_answered: bool
    """Whether a reply is in the inbox of the run, which has not been executed since."""

    @property
    def run_id(self) -> str:
        """The id of the run that asks."""
        return self.row.run_id


def open_question(journal: Journal, row: RunRow) -> OpenQuestion | None:
    """Return the open question of a run or of one of its descendants. An imported run takes no reply."""
    asking = asking_run(journal, row)
    if asking is None or asking.wait is None:
        return None
    messages = journal.drain(asking.run_id, asking.messages_taken)
    is_answered = any(is_reply_to(asking.wait, message.payload) for message in messages)
    return OpenQuestion(asking, asking.wait, is_answered)


def asking_run(journal: Journal, row: RunRow) -> RunRow | None:
    """Return the run that asks: the run itself, or one of its descendants."""
    if row.status in ENDED or row.imported:
        return None
    rows = [row] if _is_own(row) else descendants(journal, row.run_id)
    return next((run for run in rows if run.status == "waiting" and _is_own(run)), None)


def _is_own(row: RunRow) -> bool:
    return row.wait is not None and row.wait.run is None


def reply_to(wait: Question, value: Any, by: str) -> Answer | Say:
    """Return the request that replies to a question. It is the next message of a conversation that waits for one."""
    return Say(value, by) if wait.is_message else Answer(wait.id, value, by)


def is_reply_to(wait: Question, request: object) -> bool:
    """Return whether a request in the inbox ends a wait, as `reply_to` does."""
    return isinstance(request, Say) if wait.is_message else isinstance(request, Answer) and request.wait == wait.id


def parse_reply(wait: Question, text: str) -> Any:
    """Return the value of a reply that a user typed: of an offered reply or its number, else of the text.

    Raises:
        ReplyInvalid: The text is not JSON.
    """
    chosen = chosen_reply(wait, text)
    return parse_text(wait, text if chosen is None else chosen)


def parse_text(wait: Question, text: str) -> Any:
    """Return the value of exactly this text as a reply.

    It is text if the question accepts text, otherwise JSON. Empty text is `null` if the question is optional. In reply
    to an approval, text after `reject` is the remark, and JSON after `edit` the edited op or artifact.

    Raises:
        ReplyInvalid: The text is not JSON.
    """
    types = _types(wait.response_schema)
    word, _, remark = text.partition(" ")
    if wait.is_approval and word.rstrip(":") == "reject" and remark.strip():
        return {"decision": "reject", "remark": remark.strip()}
    if word == "edit" and remark.strip() and (field := edited_field(wait)):
        return {"decision": "edit", field: _json(wait, remark)}
    if not text and "null" in types:
        return None
    if "string" in types and not ("object" in types and text.lstrip().startswith("{")):
        return text
    return _json(wait, text)


def offered_replies(wait: Question) -> tuple[str, ...]:
    """Return the replies that a question offers, as a user types them: its suggestions, else the values it accepts."""
    if wait.suggestions or wait.is_message:
        return wait.suggestions
    schema = wait.response_schema
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    values = values or ((True, False) if schema.get("type") == "boolean" else ())
    written = (value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in values)
    return tuple(filter(None, written))


def chosen_reply(wait: Question, text: str) -> str | None:
    """Return the offered reply that a text is, in any case, or whose number it is unless the question takes numbers."""
    replies = offered_replies(wait)
    if text in replies:
        return text
    takes_numbers = _types(wait.response_schema) & {"integer", "number"}
    if text.isascii() and text.isdigit() and len(text) < 4 and 0 < int(text) <= len(replies) and not takes_numbers:
        return replies[int(text) - 1]
    return next((one for one in replies if one.casefold() == text.casefold()), None)


def reply_hint(wait: Question) -> str:
    """Return which replies a question takes."""
    if (replies := offered_replies(wait)) and not wait.is_approval:
        named = ", ".join(f"`{reply}`" for reply in replies)
        return f"The replies are {named}." if not wait.suggestions else f"The suggested replies are {named}."
    schema = msgspec.json.encode(wait.response_schema).decode()
    return "" if wait.is_approval else f"The question takes JSON that matches {schema}."


def edited_field(wait: Question) -> str:
    """Return the field of the reply `edit`: `args` of an op, `artifact` of a decision; empty if there is none."""
    forms = wait.response_schema.get("anyOf", ()) if wait.is_approval else ()
    fields = (form.get("properties", {}) for form in forms)
    return next((name for one in fields for name in ("args", "artifact") if name in one), "")


def _json(wait: Question, text: str) -> Any:
    try:
        return decode_json(text)
    except JsonError as error:
        takes_numbers = _types(wait.response_schema) - {"null"} in ({"integer"}, {"number"})
        reason = "the reply is not a number" if takes_numbers else f"the reply is not valid JSON: {error}"
        raise ReplyInvalid(reason, hint=reply_hint(wait) or None) from error


def _types(schema: Any) -> set[str]:
    """Return the JSON types that a schema names."""
    if not isinstance(schema, dict):
        return set()
    named = schema.get("type", [])
    types = {named} if isinstance(named, str) else set(named)
    values = [*schema.get("enum", []), *([schema["const"]] if "const" in schema else [])]
    if not types:
        types = {"string" for value in values if isinstance(value, str)} | {"null" for value in values if value is None}
    branches = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
    return types.union(*(_types(branch) for branch in branches))
