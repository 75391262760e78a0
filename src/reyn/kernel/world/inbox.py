"""The inbox of a run: the protocol by which any process reaches a run.

A process that posts a message then checks whether another one holds the claim on the run. A process that executes a
run releases its claim and then reads the inbox (`hold_claim`). One of the two sees the other, so no message is left
unread, and neither has to poll. Messages become events of the run (`inbox_events`) in the process that holds the claim.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from reyn.errors import NextAction, QuestionUnknown, ReplyInvalid, RunBlocked, RunBusy, RunNotResumable, surrogate_fault
from reyn.journal import (
    ENDED,
    AbortTurn,
    Answer,
    AttachedImage,
    Blob,
    Cancel,
    ChangeMemory,
    InboxMessage,
    Journal,
    NotificationDelivered,
    RaiseLimit,
    Rename,
    ReportRun,
    Say,
    canonical,
    check_json,
    kinds,
)
from reyn.journal.cancellation import cancellation, refused, refused_queue
from reyn.journal.family import (
    OpenQuestion,
    asking_run,
    edited_field,
    lineage,
    open_question,
    parse_reply,
    reply_hint,
    reply_to,
)
from reyn.journal.outside import record_outside
from reyn.journal.submission import post_message
from reyn.jsonschema import compile_schema
from reyn.kernel import versions
from reyn.kernel.core.conversations import changed, memory_error
from reyn.kernel.visit.waits import edited_op_error
from reyn.kernel.world.loading import load_state, unpin_ops, unsupported_rules
from reyn.kernel.world.unsafe_ops import open_children
from reyn.texts import one_line

if TYPE_CHECKING:
    from reyn.journal import RunRow
    from reyn.journal.messages import RunMessage
    from reyn.journal.outside import EventWithBlobs
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.runtime_types import Clock, RunResult
    from reyn.models import Image

    Attempt = Callable[[], Awaitable[RunResult]]

_POLL_SECONDS = 0.02
"""Interval for reading the inbox between effects."""
_BUSY_POLL_SECONDS = 0.25
"""Interval for looking for a cancellation during an effect."""
_MAX_EDIT_ERRORS = 10
"""How many errors of an edited artifact to list."""


class InboxPolling:
    """Limits how often the drivers of this process read inboxes between effects: a read costs a tenth of a visit.

    A message that this process posts is reported with `notify` and read before the next effect.
    """

    def __init__(self, seconds: float = _POLL_SECONDS, busy_seconds: float = _BUSY_POLL_SECONDS) -> None:
        self.busy_seconds = busy_seconds
        self._seconds = seconds
        self._read_at: dict[str, float] = {}
        self._deferred: dict[str, Callable[[], None]] = {}

    def is_due(self, run_id: str) -> bool:
        """Return whether to read the inbox now; if so, start a new interval. What was deferred is posted first."""
        if self._deferred and (post := self._deferred.pop(run_id, None)) is not None:
            post()
        now = time.monotonic()
        read_at = self._read_at.get(run_id)
        if read_at is not None and now - read_at < self._seconds:
            return False
        self._read_at[run_id] = now
        return True

    def skip(self, run_id: str) -> None:
        """Start a new interval: the inbox is read now, or nothing can be in it."""
        self._read_at[run_id] = time.monotonic()

    def notify(self, run_id: str) -> None:
        """Make the next read due: a message was posted, or the run stopped."""
        self._read_at.pop(run_id, None)

    def defer(self, run_id: str, post: Callable[[], None]) -> None:
        """Let the driver of a run call `post`, which posts a message, before its next effect. Safe in any thread."""
        self._deferred[run_id] = post

    def withdraw(self, run_id: str) -> None:
        """Forget what was deferred."""
        self._deferred.pop(run_id, None)


class PostedReply(msgspec.Struct, frozen=True):
    """A reply in the inbox of the run that asked."""

    run_id: str
    """The run that asked."""
    question_id: str
    root_run: str
    """The run to resume."""
    message_id: int
    is_claimed: bool
    """Whether a live process executes the run, or it was submitted to workers; they continue with the reply."""


# -- posting ------------------------------------------------------------------------------------------


def post_reply(
    journal: Journal,
    question: OpenQuestion,
    value: Any,
    *,
    clock: Clock,
    is_text: bool = False,
    by: str = "",
) -> PostedReply:
    """Post a reply to an open question, then check whether a process executes the run.

    Args:
        journal: The journal of the run.
        question: The question.
        value: The reply, a JSON value.
        clock: The clock; it is read if the question expires.
        is_text: Whether `value` is text as a user typed it, see `parse_reply`.
        by: The name of the user who replies; it is recorded.

    Raises:
        QuestionUnknown: The question has a reply already, or has expired.
        ReplyInvalid: The reply does not match the schema of the question.
        RunBlocked: The run follows rules that are not supported, so that it cannot continue.
    """
    rows, wait = lineage(journal, question.row), question.question
    asking, root = question.row, rows[-1].run_id
    if question.is_answered:
        raise QuestionUnknown(
            f"question `{wait.id}` of run `{asking.run_id}` has a reply already",
            hint="Resume the run; it continues with the stored reply.",
            action=NextAction("resume", root),
        )
    if asking.rules not in versions.SUPPORTED_RULES:
        raise unsupported_rules(root, asking.rules)
    if wait.expires_at is not None and wait.is_expired(clock.now()):
        raise QuestionUnknown(
            f"question `{wait.id}` of run `{asking.run_id}` has expired",
            hint="Resume the run; it continues as if the question was declined.",
            action=NextAction("resume", root),
        )
    if is_text:
        value = parse_reply(wait, value)
    if fault := answer_error(wait, wait.id, value) or op_edit_error(journal, asking.run_id, wait, value):
        raise ReplyInvalid(fault, hint=reply_hint(wait) or None)
    message_id = post_message(journal, asking, reply_to(wait, value, by))
    is_claimed = bool(rows[-1].queue) or any(journal.is_claimed(run.run_id) for run in rows)  # after the post
    return PostedReply(asking.run_id, wait.id, root, message_id, is_claimed)


def images_error(images: Sequence[AttachedImage | Image]) -> str:
    """Return why the images of a message or of an input are invalid; empty if they are valid."""
    for image in images:
        try:
            content = base64.b64decode(image.data, validate=True)
        except (binascii.Error, ValueError) as error:
            return f"the data of an image is not base64: {error}"
        if fault := surrogate_fault(image.url + image.media_type):
            return f"an image has an address or a media type with {fault}"
        if not content and not image.url:
            return "an image has neither data nor an address"
    return ""


def answer_error(wait: kinds.Question | None, asked: str, value: Any) -> str:
    """Return why the reply to a question is invalid; empty if it is valid."""
    if wait is None or wait.id != asked:
        return f"no question `{asked}` is open"
    try:
        check_json(value)
    except ValueError as invalid:
        return f"the reply is not JSON: {invalid}"
    error = compile_schema(wait.response_schema).first_error(value)
    if error is None:
        return ""
    if wait.is_approval:
        return _edit_error(wait, value) or f"an approval takes {_reply_forms(wait.response_schema)}"
    return f"the reply does not match the question's schema: {error.path('reply')} {error.message}"


def op_edit_error(journal: Journal, run_id: str, wait: kinds.Question, value: Any) -> str:
    """Return why an edited op, in reply to the open question of a run, is invalid; empty if there is none."""
    if not isinstance(value, dict) or value.get("decision") != "edit" or edited_field(wait) != "args":
        return ""
    ops = load_state(journal, run_id).started.ops
    asked = [event for event in journal.read(run_id) if event.kind == kinds.ApprovalRequired.kind]
    if ops is None or not asked:
        return ""
    fault = edited_op_error(value["args"], asked[-1].data["op_kind"], unpin_ops(journal.blob(ops)))
    return f"the edited op is invalid: {fault}" if fault else ""


def _edit_error(wait: kinds.Question, value: Any) -> str:
    """Return why an edited artifact is invalid; empty if there is none, or if it is valid."""
    if not isinstance(value, dict) or value.get("decision") != "edit" or edited_field(wait) != "artifact":
        return ""
    schema = next(form for form in wait.response_schema["anyOf"] if "artifact" in form.get("properties", ()))
    errors = compile_schema(schema).errors(value, _MAX_EDIT_ERRORS)
    if any(error.place[:1] != ("artifact",) for error in errors):
        return ""
    listed = "; ".join(f"{error.path('')[1:]} {error.message}" for error in errors)
    return f"the edited artifact is invalid: {listed}" if errors else ""


def _reply_forms(schema: dict[str, Any]) -> str:
    """Return the replies that an approval takes, in words."""
    words, *objects = schema.get("anyOf", [schema])
    forms = []
    for one in objects:
        fields = dict(one["properties"])
        decisions = " or ".join(f"`{word}`" for word in fields.pop("decision")["enum"])
        forms.append(f"{decisions} (with {', '.join(f'`{name}`' for name in fields)})")
    listed = ", ".join(f"`{word}`" for word in words["enum"])
    return f"{listed}, or an object whose `decision` is {', '.join(forms)}" if forms else listed


# -- executing ----------------------------------------------------------------------------------------


async def hold_claim(journal: Journal, run_id: str, attempt: Attempt, again: Attempt) -> tuple[RunResult | None, bool]:
    """Execute a run under its claim, and again as long as a message is pending for it.

    Args:
        journal: The journal of the run.
        run_id: The run.
        attempt: Executes the run until it ends or stops. It is repeated if the run refuses and then gets a message.
        again: Continues the run with the messages in its inbox.

    Returns:
        The result, and whether another process continues the run by now. The result is `None` if another process took
        the last message first: the journal has a newer one.

    Raises:
        RunBusy: Another process executes the run.
        RunNotResumable: The run does not continue, and no message changes that.
    """
    result: RunResult | None = None
    refusal: RunNotResumable | None = None
    handled = 0
    while True:
        try:
            with journal.claim(run_id):
                result = await (attempt() if result is None else again())
            refusal = None
        except RunNotResumable as error:
            refusal = error
        except RunBusy:
            if result is None:
                raise
            return result, True
        if result is not None and result.status in ENDED:  # no message continues it
            return result, False
        pending = pending_message(journal, run_id)
        if pending <= handled:
            break
        handled = pending
    if result is None and refusal is not None:
        raise refusal
    return (None if refusal is not None else result), False


def pending_message(journal: Journal, run_id: str) -> int:
    """Return the id of the newest reply or cancellation that a stopped run has not handled; 0 if there is none.

    A driver calls this after it has released its claim.
    """
    row = journal.find(run_id)
    if row is None or row.status == "running" or row.status in ENDED:
        return 0
    waits_for_message = row.wait is not None and row.wait.is_message and row.wait.run is None
    handled = (Cancel, Say, ReportRun) if waits_for_message else (Cancel,)
    ids = [message.id for message in journal.drain(run_id, row.messages_taken) if isinstance(message.payload, handled)]
    asking = asking_run(journal, row) if row.status == "waiting" else None
    if asking is not None:
        ids += [message.id for message in journal.drain(asking.run_id, asking.messages_taken)]
    return max(ids, default=0)


def take_messages(journal: Journal, clock: Clock, run_id: str) -> None:
    """Record the messages to a run, unless another process executes the run and records them itself."""
    now = clock.now()

    def events(_row: RunRow | None) -> list[EventWithBlobs]:
        state = load_state(journal, run_id)
        return inbox_events(journal.drain(run_id, state.messages_taken), state, now, journal)

    with suppress(RunBusy, RunBlocked):
        record_outside(journal, run_id, now, events)


def refuse_late_messages(journal: Journal, clock: Clock, run_id: str) -> None:
    """Record the messages that reached a run while its last events were committed, after the claim was released."""
    row = journal.find(run_id)
    if row is not None and journal.drain(run_id, row.messages_taken):
        take_messages(journal, clock, run_id)


_MAX_NOTED = 300
"""The characters of a question that a message is accompanied by."""


def inbox_events(messages: Sequence[InboxMessage], state: RunState, now: int, journal: Journal) -> list[EventWithBlobs]:
    """Return the events that record the messages of an inbox at a time. The journal has the children of the run.

    Only the first reply to a question is accepted, none after it has expired, and nothing after a cancellation. A
    reply to a question of a sub-run goes to the sub-run's inbox. At the end of a run, what was said to it is refused.
    """
    events: list[EventWithBlobs] = []
    if state.status in ENDED:
        events += refused_queue(state.inbox.queued, state.status)
    wait = state.wait if state.wait is not None and state.wait.run is None else None
    can_abort = state.is_turn_open
    for number, message in enumerate(messages):
        if isinstance(message.payload, Cancel):
            queued = state.inbox.queued if state.status not in ENDED else ()
            return events + cancellation(messages[number:], state.reserved, queued)
        body, blobs = to_event(message.id, message.payload, wait, state, now, can_abort=can_abort)
        if isinstance(body, kinds.TurnAborted):
            body = replace(body, children=open_children(journal, state))
        if isinstance(body, kinds.MessageQueued) and state.inbox.background and not body.run:
            body, blobs = _with_note(body, blobs, state, journal)
        events.append((body, blobs))
        if isinstance(body, kinds.MemoryChanged):  # several changes apply one after the other
            key = state.transcript_key(body.phase)
            state = replace(state, conversations=changed(state.conversations, key, body))
        if isinstance(body, kinds.MessageQueued):
            state = replace(state, inbox=state.inbox.with_message(body))
            wait = None if wait is not None and wait.is_message else wait
        can_abort = can_abort and not isinstance(body, kinds.TurnAborted)
        wait = None if isinstance(body, kinds.WaitAnswered | kinds.TurnAborted) else wait
    return events


def _with_note(body: kinds.MessageQueued, blobs: tuple[Blob, ...], state: RunState, journal: Journal) -> EventWithBlobs:
    """Add the questions that background runs of a conversation have open to a message: its agent reads them with it."""
    rows = (journal.find(run) for run in state.inbox.background)
    found = [asked for row in rows if row is not None and (asked := open_question(journal, row)) is not None]
    lines = []
    for asked in found:
        if not asked.is_answered and not asked.question.is_message:
            first = one_line(asked.question.message.partition("\n")[0])[:_MAX_NOTED]
            lines.append(f"- `{asked.row.skill}` (run `{asked.run_id}`) asks the user: {first}")
    if not lines:
        return body, blobs
    note = Blob.of("\n".join(["Open questions, which this message does not answer:", *lines]).encode())
    return replace(body, note=note.hash), (*blobs, note)


def to_event(
    message: int, request: RunMessage, wait: kinds.Question | None, state: RunState, now: int, *, can_abort: bool
) -> EventWithBlobs:
    """Return the event that records one message, by its id."""
    match request:
        case AbortTurn(reason, partial):
            if not can_abort:
                return refused(message, request, "no turn of a conversation is in progress")
            text = Blob.of(partial.encode()) if partial else None
            return kinds.TurnAborted(reason, message, text.hash if text else None), (text,) if text else ()
        case ChangeMemory(action, text):
            is_known = state.holds_conversation(state.phase)
            reason = memory_error(state.memory(state.phase), action, text) if is_known else "no conversation began"
            if reason:
                return refused(message, request, reason)
            return kinds.MemoryChanged(state.phase, action, text, message), ()
        case Say(text, by, ask, images, instructions, sender):
            if reason := f"the run is {state.status}" if state.status in ENDED else images_error(images):
                return refused(message, request, reason)
            content, (refs, pictures) = Blob.of(text.encode()), stored_images(images)
            told = Blob.of(instructions.encode()) if instructions is not None else None
            named = told.hash if told is not None else None
            more: Any = {"ask": ask, "images": refs, "instructions": named, "sender": sender}
            queued = kinds.MessageQueued(content.hash, message, by, **more)
            return queued, (content, *pictures, *([told] if told is not None else []))
        case Rename(title, by):
            return kinds.ConversationRenamed(title, message, by), ()
        case ReportRun(run, status, text, usage, answers):
            if reason := state.inbox.report_error(run, status):
                return refused(message, request, reason)
            content = Blob.of(text.encode())
            return kinds.MessageQueued(content.hash, message, "", run, status, usage, answers), (content,)
        case NotificationDelivered(subject, event, attempts):
            return kinds.NotificationSent(subject, event, attempts, message), ()
        case RaiseLimit(limit, value):
            return kinds.LimitRaised(limit, value, message), ()
        case Answer(asked, value, by):
            reason = answer_error(wait, asked, value)
            if not reason and wait is not None and wait.is_expired(now):
                reason = f"the question `{asked}` has expired"
            if reason:
                return refused(message, request, reason)
            content = Blob.of(canonical(value))
            return kinds.WaitAnswered(asked, content.hash, message, by), (content,)


def stored_images(images: Sequence[AttachedImage | Image]) -> tuple[tuple[kinds.ImageRef, ...], tuple[Blob, ...]]:
    """Return images as an event records them, and their content."""
    pictures = [Blob.of(base64.b64decode(image.data)) if image.data else None for image in images]
    refs = tuple(
        kinds.ImageRef(image.media_type, picture.hash if picture else None, image.url)
        for image, picture in zip(images, pictures, strict=True)
    )
    return refs, tuple(picture for picture in pictures if picture is not None)
