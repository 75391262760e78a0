"""Open questions for users: the command that replies, with an example, and the whole text.

`reyn.kernel.world.inbox` has the protocol by which a process replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.errors import NextAction, ReplyInvalid
from reyn.journal import decode, kinds
from reyn.journal.questions import parse_reply

if TYPE_CHECKING:
    from reyn.journal import Journal
    from reyn.journal.kinds import Question
    from reyn.journal.questions import OpenQuestion

_MAX_EXAMPLE = 60
"""The number of characters up to which a suggestion is the example of a reply."""


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
    if not question.question.is_approval:
        return question.question.message
    first, bodies = question.question.message.partition("\n")[0], map(decode, journal.read(question.run_id))
    previews = [body.preview for body in bodies if isinstance(body, kinds.ApprovalRequired | kinds.DecisionProposed)]
    return f"{first}\n{journal.blob(previews[-1]).decode()}"
