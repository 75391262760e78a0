"""What is recorded of a conversation when it has stopped: its history, and why it stopped.

`end_turn` ends a turn that was recorded in part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.chat.items import QuestionAsked, Reply, Stopped
from reyn.config import Sizes
from reyn.context.histories import HISTORIES, RenderedMessages, detached, outside
from reyn.context.render import rendered_message
from reyn.context.transcript import NO_MESSAGES, NormalizedMessageList
from reyn.contract.parsing import Parsed, parse
from reyn.errors import (
    CallImpossible,
    ChatStopped,
    ConversationInvalid,
    ModelAborted,
    NextAction,
    RunBusy,
    RunNotFound,
    RunNotResumable,
    hint_of,
    turn_hint,
)
from reyn.journal import ENDED, AbortTurn, Answer, Cancel, Journal, RunRow
from reyn.journal.family import parse_reply
from reyn.journal.kinds import Part
from reyn.runs.preview import end_reason, settled_state

if TYPE_CHECKING:
    from reyn.context.messages import NormalizedMessage
    from reyn.journal.canonical import ReadBlob
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.runtime_types import RunResult
    from reyn.runs.recorded import Runs
    from reyn.runtime import OSRuntime

_STORED = "The message is stored; it is answered when the conversation continues."
_SIZES = Sizes()
_NOT_SENT = "The message was not sent."
CONTINUE_THERE = "Nothing was sent. Continue there, or leave it there first."
_rendered = RenderedMessages()


def history_of(runtime: OSRuntime, run_id: str, before: NormalizedMessageList = NO_MESSAGES) -> NormalizedMessageList:
    """Return the messages of a conversation as its user sees them. Only messages that are new are read.

    A turn that has stopped has what it completed, and says which calls were not executed.

    Args:
        runtime: The runtime of the conversation.
        run_id: The conversation.
        before: The messages until its first turn. Their system message stays, unless a hook replaced it.
    """
    services = runtime.services
    try:
        state = runtime.runs.state(run_id)
    except RunNotFound:  # it did not start
        return before
    state, content = settled_state(services.journal, state, services.compile_skill)
    found = state.current_transcript
    if found is None:  # it stopped before its first turn
        return before
    # The list of the run shares its memory with the one that the next call extends.
    start = HISTORIES.load(found.history, content)
    rendered = _rendered.render(
        run_id, found.messages, lambda message: _as_seen(message, content), lambda: (NO_MESSAGES, start)
    )
    system = found.messages.system
    is_replaced = system is not None and system.content and system.parts != (Part(blob=found.instructions),)
    return rendered.with_system(_as_seen(system, content) if system and is_replaced else before.system)


def _as_seen(message: NormalizedMessage, content: ReadBlob) -> NormalizedMessage:
    """Return a message with its text. Of a reply that was recorded as JSON, this is what the user saw."""
    rendered = detached(rendered_message(message, outside(content), with_images=True))
    is_answer = message.role == "assistant" and not message.status and len(message.parts) == 1
    if not is_answer or message.parts[0].blob is None or message.parts[0].reply:
        return rendered
    answer = parse(rendered.text, _SIZES)
    match answer.value if isinstance(answer, Parsed) else None:
        case {"reason": _, "choice": _, "data": {"text": str(text)}}:
            return msgspec.structs.replace(rendered, text=text)
        case {"control": _, "artifact": {"data": {"text": str(text)}}}:
            return msgspec.structs.replace(rendered, text=text)
    return rendered


def asked_in(runtime: OSRuntime, run_id: str) -> list[QuestionAsked]:
    """Return the open questions of a conversation and of its runs from the journal, the oldest first."""
    asked = [one for one in runtime.runs.open_questions(run_id) if not one.is_answered]
    return [QuestionAsked(one.run_id, one.question, number, one.row.skill) for number, one in enumerate(asked, start=1)]


def idle_result(runs: Runs, run_id: str, error: Exception) -> RunResult | None:
    """Return the result of a conversation that could not be resumed because it waits for a message."""
    result = runs.result(run_id) if isinstance(error, RunNotResumable) else None
    return result if result is not None and result.question is not None and result.question.is_message else None


def stop_error(runs: Runs, result: RunResult, history: NormalizedMessageList, note: str = "") -> ChatStopped:
    """Return the error of a message without a reply. `note` says what has become of the message."""
    action = runs.next_action(runs.find(result.run_id))
    hint = result.hint or _hint(result, action)
    return ChatStopped(
        f"conversation `{result.run_id}` is {result.status}: {result.reason}",
        run_id=result.run_id,
        status=str(result.status),
        history=history,
        hint=f"{note} {hint or ChatStopped.hint}" if note else hint,
        action=action,
    )


def _hint(result: RunResult, action: NextAction | None) -> str | None:
    """Return how a conversation that has stopped goes on; `None` for the usual hint."""
    run, question = result.run_id, result.question
    if question is not None and not question.is_message:
        reply = repr(parse_reply(question, action.reply)) if action is not None and action.reply else "…"
        return (
            f'Reply with `rt.answer("{run}", "{question.id}", {reply})`, or give the turn up with '
            f'`rt.conversations.abort_turn("{run}")`; then `resume`.'
        )
    if result.status == "limited" and action is not None and action.limit:
        raised = f'raise_limits={{"{action.limit}": {"…" if action.value is None else action.value}}}'
        return f'Continue the turn with `resume({raised})` of the conversation, or with `rt.resume("{run}", {raised})`.'
    return hint_of(ModelAborted.code) if result.status == "aborted" else None


def unanswered_error(runs: Runs, run_id: str, reply: Reply, history: NormalizedMessageList) -> ChatStopped:
    """Return the error of a turn without a usable answer. The conversation goes on with the next message."""
    return ChatStopped(
        f"conversation `{run_id}`: {reply.reason} ({reply.code})",
        run_id=run_id,
        status=str(runs.find(run_id).status),
        history=history,
        hint=f"{turn_hint(reply.code)} `history` has what was done.",
    )


def end_turn(runtime: OSRuntime, row: RunRow) -> bool:
    """End a turn that failed or was interrupted: the next message takes its place, and what it has done stays.

    A turn that asked a question stays: it goes on with the reply, before the next message.

    Returns:
        Whether there may be such a turn.

    Raises:
        ChatStopped: The run waits for the reply to a question.
    """
    runs, run_id = runtime.runs, row.run_id
    if row.wait is not None and not row.wait.is_message and not _is_settled(runtime.services.journal, row):
        raise stop_error(runs, runs.result(run_id), history_of(runtime, run_id), _NOT_SENT)
    if row.wait is not None or row.status in ENDED:
        return False
    runtime.conversations.abort_turn(run_id, end_reason("a new message came before the reply", row.reason))
    return True


def _is_settled(journal: Journal, row: RunRow) -> bool:
    """Return whether the inbox has the reply to the open question of a run, or ends the turn that asked it."""
    asking = journal.find(row.wait.run) if row.wait is not None and row.wait.run is not None else None
    inboxes = (row,) if asking is None else (row, asking)
    posted = (one.payload for inbox in inboxes for one in journal.drain(inbox.run_id, inbox.messages_taken))
    return any(isinstance(payload, Answer | AbortTurn | Cancel) for payload in posted)


def check_begun_with(runtime: OSRuntime, state: RunState, history: NormalizedMessageList) -> None:
    """Check that a conversation that exists began with a history, so that a program may pass it with every message.

    Raises:
        CallImpossible: It began with another one.
    """
    begun = HISTORIES.load(state.started.history, runtime.runs.content)
    same = NormalizedMessageList(map(detached, history.with_system(None)))
    if same != begun.with_system(None):
        raise CallImpossible(
            f"conversation `{state.run_id}` has a history of its own; it did not begin with the one that was passed",
            hint="Leave `history` out to go on with the conversation, or use another `key`.",
        )


def left_error(run_id: str) -> ConversationInvalid:
    """Return the error of a conversation that was left."""
    return ConversationInvalid(
        f"conversation `{run_id}` was left", hint=f'Open it again: `rt.chat(run_id="{run_id}")`.'
    )


def failure_of(runtime: OSRuntime, run_id: str, error: Exception, *, is_stored: bool) -> tuple[Exception, Stopped]:
    """Return the error for everyone who waits for a reply, and the item, of a run that could not be executed.

    Args:
        runtime: The runtime of the conversation.
        run_id: The conversation.
        error: Why it could not be executed.
        is_stored: Whether a message is in its inbox.
    """
    if isinstance(error, RunBusy):
        busy = RunBusy(error.message, run_id=run_id, hint=CONTINUE_THERE)
        return busy, Stopped("busy", busy.message, busy.code, CONTINUE_THERE)
    if isinstance(error, RunNotResumable):
        row, note = runtime.runs.find(run_id), _STORED if is_stored else ""
        stopped = Stopped(str(row.status), row.reason, error.code, note or error.hint)
        if row.status in ENDED:
            return error, stopped
        return stop_error(runtime.runs, runtime.runs.result(run_id), history_of(runtime, run_id), note), stopped
    if isinstance(error, ChatStopped):
        return error, Stopped(error.status, error.message, error.code, error.hint)
    return error, Stopped("failed", str(error))
