"""Reply to the questions of runs, and continue the runs with the replies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from reyn.errors import ModelError, NextAction, OpMissing, ReplyInvalid, RunBusy, RunNotResumable
from reyn.journal.family import check_not_imported, find_run, open_question
from reyn.kernel.world.inbox import PostedReply, post_reply
from reyn.runs.next_action import unknown_question, unnamed_approval

if TYPE_CHECKING:
    from reyn.journal import Journal
    from reyn.journal.results import RunResult
    from reyn.kernel.world.services import Services


def post_answer(
    services: Services, run: str, question_id: str | None, value: Any, *, is_text: bool, by: str
) -> PostedReply:
    """Post a reply to an open question; `OSRuntime.answer` documents the arguments."""
    journal = services.existing_journal
    row = find_run(journal, run)
    check_not_imported(row, "answered")
    question = open_question(journal, row)
    if question is None or question_id not in (None, question.question.id):
        raise unknown_question(journal, row, question_id)
    if question_id is None and question.question.must_be_named:
        raise unnamed_approval(row.run_id, question.question)
    if question_id is None and is_text and value == question.question.id:
        raise ReplyInvalid(f"`{value}` is the id of the open question; the reply is missing")
    scrubbed = services.scrubber.scrub_value(value)
    posted = post_reply(journal, question, scrubbed, clock=services.clock, is_text=is_text, by=by)
    services.polling.notify(posted.run_id)
    return posted


async def resume_answered(
    journal: Journal, answer: PostedReply, resume: Callable[[str], Awaitable[RunResult]]
) -> RunResult | None:
    """Resume the root run of a reply; return `None` if another process continues it."""
    if answer.is_claimed:
        return None
    try:
        return await resume(answer.root_run)
    except RunBusy:  # another process claimed the run first
        return None
    except RunNotResumable:
        asking = journal.find(answer.run_id)
        if asking is not None and asking.messages_taken >= answer.message_id:  # another process took it first
            return None
        raise
    except (ModelError, OpMissing) as error:
        advice = "; resume the run, with another model if necessary" if isinstance(error, ModelError) else ""
        error.set_hint(f"The reply is stored{advice}. {error.hint}")
        error.action = error.action or NextAction("resume", answer.root_run)
        raise
