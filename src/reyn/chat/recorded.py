"""What is recorded of a conversation when it has stopped: its history, and why it stopped.

`end_turn` ends a turn that was recorded in part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.chat.items import Stopped
from reyn.context.histories import HISTORIES, RenderedMessages
from reyn.context.render import rendered_message
from reyn.context.transcript import NO_MESSAGES, NormalizedMessageList
from reyn.errors import (
    ChatStopped,
    ConversationInvalid,
    ModelAborted,
    RunBusy,
    RunNotFound,
    RunNotResumable,
    hint_of,
    turn_hint,
)
from reyn.journal import ENDED
from reyn.journal.kinds import Part
from reyn.runs.preview import stopped_turn

if TYPE_CHECKING:
    from reyn.chat.items import Reply
    from reyn.context.messages import NormalizedMessage
    from reyn.journal import RunRow
    from reyn.journal.canonical import ReadBlob
    from reyn.kernel.runtime_types import RunResult
    from reyn.runs.recorded import Runs
    from reyn.runtime import OSRuntime

_QUESTION = "Reply to the question first, for example with `OSRuntime.answer`; then resume the conversation."
_STORED = "The message is stored; it is answered when the conversation continues."
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
    content: ReadBlob = runtime.runs.content
    services = runtime.services
    try:
        state = runtime.runs.state(run_id)
    except RunNotFound:  # it did not start
        return before
    if state.is_turn_open and state.status != "running":
        state, content = stopped_turn(services.journal, run_id, services.compile_skill)
    found = state.conversations.get(state.phase)
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
    rendered = rendered_message(message, content, with_images=True)
    is_json = message.role == "assistant" and not message.status and not message.tool_calls
    try:
        answer = msgspec.json.decode(rendered.text) if is_json else None
    except (msgspec.DecodeError, RecursionError):
        return rendered
    match answer:
        case {"reason": _, "choice": _, "data": {"text": str(text)}}:
            return msgspec.structs.replace(rendered, text=text)
        case {"control": _, "artifact": {"data": {"text": str(text)}}}:
            return msgspec.structs.replace(rendered, text=text)
    return rendered


def idle_result(runs: Runs, run_id: str, error: Exception) -> RunResult | None:
    """Return the result of a conversation that could not be resumed because it waits for a message."""
    result = runs.result(run_id) if isinstance(error, RunNotResumable) else None
    return result if result is not None and result.question is not None and result.question.is_message else None


def stop_error(runs: Runs, result: RunResult, history: NormalizedMessageList) -> ChatStopped:
    """Return the error of a message without a reply."""
    asks = result.question is not None and not result.question.is_message
    return ChatStopped(
        f"conversation `{result.run_id}` is {result.status}: {result.reason}",
        run_id=result.run_id,
        status=str(result.status),
        history=history,
        hint=result.hint or (_QUESTION if asks else hint_of(ModelAborted.code) if result.status == "aborted" else None),
        action=runs.next_action(runs.find(result.run_id)),
    )


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

    Returns:
        Whether there may be such a turn.

    Raises:
        ChatStopped: The run waits for the reply to a question.
    """
    runs, run_id = runtime.runs, row.run_id
    if row.wait is not None and not row.wait.is_message:
        raise stop_error(runs, runs.result(run_id), history_of(runtime, run_id))
    if row.wait is not None or row.status in ENDED:
        return False
    runtime.conversations.abort_turn(run_id, "a new message came before the reply")
    return True


def left_error(run_id: str) -> ConversationInvalid:
    """Return the error of a conversation that was left."""
    return ConversationInvalid(
        f"conversation `{run_id}` was left", hint=f'Open it again: `rt.chat(run_id="{run_id}")`.'
    )


def failure_of(runs: Runs, run_id: str, error: Exception, *, is_stored: bool) -> tuple[Exception, Stopped]:
    """Return the error for everyone who waits for a reply, and the item, of a run that could not be executed.

    Args:
        runs: The recorded runs.
        run_id: The conversation.
        error: Why it could not be executed.
        is_stored: Whether a message is in its inbox.
    """
    if isinstance(error, RunBusy):
        busy = RunBusy(error.message, run_id=run_id, hint=CONTINUE_THERE)
        return busy, Stopped("busy", busy.message, busy.code, CONTINUE_THERE)
    if isinstance(error, RunNotResumable):
        row = runs.find(run_id)
        return error, Stopped(str(row.status), row.reason, error.code, _STORED if is_stored else error.hint)
    return error, Stopped("failed", str(error))
