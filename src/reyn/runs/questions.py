"""Open questions of runs, and the protocol by which any process replies to one.

The replying process posts the reply and then checks whether another process executes the run. A process that executes
runs (`reyn.runtime`) releases its claim and then reads the inbox. One of the two sees the other, so no reply is left
unread, and neither has to poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.documents import JsonError, decode_json
from reyn.errors import NextAction, QuestionUnknown, ReplyInvalid
from reyn.journal import ENDED, Cancel, ReportRun, Say, decode, kinds
from reyn.journal.family import descendants, lineage
from reyn.journal.kinds import Question
from reyn.journal.port import is_reply_to, reply_to

if TYPE_CHECKING:
    from reyn.journal import Journal, RunRow


_MAX_EXAMPLE = 60
"""The number of characters up to which a suggestion is the example of a reply."""


class OpenQuestion(msgspec.Struct, frozen=True):
    """An open question of a run or of one of its descendants."""

    run_id: str
    """The run that asks."""
    question: Question
    is_answered: bool
    """Whether a reply is in the inbox of the run, which has not been executed since."""


class PostedReply(msgspec.Struct, frozen=True):
    """A reply in the inbox of the run that asked."""

    run_id: str
    """The run that asked."""
    question_id: str
    root_run: str
    """The run to resume."""
    message_id: int
    is_claimed: bool
    """Whether a live process executes the run; it continues with the reply."""


# -- open questions -----------------------------------------------------------------------------------


def open_question(journal: Journal, row: RunRow) -> OpenQuestion | None:
    """Return the open question of a run or of one of its descendants. An imported run takes no reply.

    Reads no events: the row of a run contains its question.
    """
    asking = _asking_run(journal, row)
    if asking is None or asking.wait is None:
        return None
    messages = journal.drain(asking.run_id, asking.messages_taken)
    is_answered = any(is_reply_to(asking.wait, message.payload) for message in messages)
    return OpenQuestion(asking.run_id, asking.wait, is_answered)


def answer_action(run_id: str, question: Question) -> NextAction:
    """Return the operation that replies to a question, with an example of a reply that the question accepts."""
    return NextAction("answer", run_id, question_id=question.id, reply=_example_reply(question))


def _example_reply(question: Question) -> str:
    """Return the first short suggestion, or a value that fits the schema; empty if there is neither."""
    from reyn.jsonschema import compile_schema
    from reyn.jsonschema.examples import example_of

    value = example_of(question.response_schema, "your message" if question.is_message else "your reply")
    made_up = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    short = [text for text in question.suggestions if len(text) <= _MAX_EXAMPLE]
    for text in (*short, made_up):
        try:
            reply = parse_reply(question, text)
        except ReplyInvalid:
            continue
        if text and reply is not None and compile_schema(question.response_schema).first_error(reply) is None:
            return text
    return ""


def question_text(journal: Journal, question: OpenQuestion) -> str:
    """Return the text of a question, with the whole preview of an approval."""
    first = question.question.message.partition("\n")[0]
    preview = ""
    for event in journal.read(question.run_id):
        body = decode(event)
        if isinstance(body, kinds.ApprovalRequired | kinds.DecisionProposed):
            preview = body.preview
    return f"{first}\n{journal.blob(preview).decode()}" if question.question.is_approval else question.question.message


def _asking_run(journal: Journal, row: RunRow) -> RunRow | None:
    if row.status in ENDED or row.imported:
        return None
    rows = [row] if _is_own(row) else descendants(journal, row.run_id)
    return next((run for run in rows if run.status == "waiting" and _is_own(run)), None)


def _is_own(row: RunRow) -> bool:
    return row.wait is not None and row.wait.run is None


def find_question(journal: Journal, row: RunRow, question_id: str) -> OpenQuestion:
    """Return the open question of a run or of its descendants, if it has this id.

    Raises:
        QuestionUnknown: The question is not open.
    """
    question = open_question(journal, row)
    if question is None or question.question.id != question_id:
        state = f"it waits for `{question.question.id}`" if question else f"its status is {row.status}"
        action = answer_action(row.run_id, question.question) if question else None
        raise QuestionUnknown(f"run `{row.run_id}` has no open question `{question_id}`; {state}", action=action)
    return question


# -- replying -----------------------------------------------------------------------------------------


def post_reply(
    journal: Journal,
    question: OpenQuestion,
    value: Any,
    *,
    now: int,
    is_text: bool = False,
    by: str = "",
) -> PostedReply:
    """Post a reply to an open question, then check whether a process executes the run.

    Args:
        journal: The journal of the run.
        question: The question.
        value: The reply, a JSON value.
        now: The time, in microseconds since 1970.
        is_text: Whether `value` is text as a user typed it, see `parse_reply`.
        by: The name of the user who replies; it is recorded.

    Raises:
        QuestionUnknown: The question has a reply already, or has expired.
        ReplyInvalid: The reply does not match the schema of the question.
        RunBlocked: The run follows rules that are not supported, so that it cannot continue.
    """
    from reyn.kernel.world.inbox import answer_error
    from reyn.kernel.world.loading import check_supported_rules

    asking = journal.find(question.run_id)
    assert asking is not None
    rows, wait = lineage(journal, asking), question.question
    root = rows[-1].run_id
    if question.is_answered:
        raise QuestionUnknown(
            f"question `{wait.id}` of run `{question.run_id}` has a reply already",
            hint="Resume the run; it continues with the stored reply.",
            action=NextAction("resume", root),
        )
    check_supported_rules(root, asking.rules)
    if wait.is_expired(now):
        raise QuestionUnknown(
            f"question `{wait.id}` of run `{question.run_id}` has expired",
            hint="Resume the run; it continues as if the question was declined.",
            action=NextAction("resume", root),
        )
    if is_text:
        value = parse_reply(wait, value)
    if fault := answer_error(wait, wait.id, value):
        raise ReplyInvalid(fault)
    message_id = journal.post(question.run_id, reply_to(wait, value, by))
    is_claimed = any(journal.is_claimed(run.run_id) for run in rows)  # after the post, see the module's docstring
    return PostedReply(question.run_id, wait.id, root, message_id, is_claimed)


def pending_message(journal: Journal, run_id: str) -> int:
    """Return the id of the newest reply or cancellation that a stopped run has not handled; 0 if there is none.

    A driver calls this after it has released its claim, see the module's docstring.
    """
    row = journal.find(run_id)
    if row is None or row.status == "running" or row.status in ENDED:
        return 0
    waits_for_message = row.wait is not None and row.wait.is_message and row.wait.run is None
    handled = (Cancel, Say, ReportRun) if waits_for_message else (Cancel,)
    ids = [message.id for message in journal.drain(run_id, row.messages_taken) if isinstance(message.payload, handled)]
    asking = _asking_run(journal, row) if row.status == "waiting" else None
    if asking is not None:
        ids += [message.id for message in journal.drain(asking.run_id, asking.messages_taken)]
    return max(ids, default=0)


# -- text as a reply ----------------------------------------------------------------------------------


def parse_reply(wait: Question, text: str) -> Any:
    """Return the value of a reply that a user typed.

    It is text if the question accepts text, otherwise JSON. Empty text is `null` if the question is optional. In reply
    to an approval, text after `reject` is the remark.

    Raises:
        ReplyInvalid: The text is not JSON.
    """
    types = _types(wait.response_schema)
    word, _, remark = text.partition(" ")
    if wait.is_approval and word.rstrip(":") == "reject" and remark.strip():
        return {"decision": "reject", "remark": remark.strip()}
    if not text and "null" in types:
        return None
    if "string" in types and not ("object" in types and text.lstrip().startswith("{")):
        return text
    try:
        return decode_json(text)
    except JsonError as error:
        schema = msgspec.json.encode(wait.response_schema).decode()
        hint = f"The question takes JSON that matches {schema}."
        raise ReplyInvalid(f"the reply is not valid JSON: {error}", hint=hint) from error


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
