"""Read the inbox of a run: when to look, and the event that records each message or refuses it."""

from __future__ import annotations

import base64
import binascii
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from reyn.journal import (
    AbortTurn,
    Answer,
    Blob,
    Cancel,
    ChangeMemory,
    RaiseLimit,
    Rename,
    ReportRun,
    Say,
    canonical,
    check_json,
    kinds,
)
from reyn.journal.spending import in_full
from reyn.jsonschema import compile_schema
from reyn.kernel.core.conversations import changed, memory_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reyn.journal import AttachedImage, InboxMessage
    from reyn.kernel.core.effects import EventWithBlobs
    from reyn.kernel.core.snapshot import RunState

_POLL_SECONDS = 0.02
"""Interval for reading the inbox between effects."""
_BUSY_POLL_SECONDS = 0.25
"""Interval for looking for a cancellation during an effect."""


class InboxPolling:
    """Limits how often the drivers of this process read inboxes between effects: a read costs a tenth of a visit.

    A message that this process posts is reported with `notify` and read before the next effect.
    """

    def __init__(self, seconds: float = _POLL_SECONDS, busy_seconds: float = _BUSY_POLL_SECONDS) -> None:
        self.busy_seconds = busy_seconds
        self._seconds = seconds
        self._read_at: dict[str, float] = {}

    def is_due(self, run_id: str) -> bool:
        """Return whether to read the inbox now; if so, start a new interval."""
        now = time.monotonic()
        read_at = self._read_at.get(run_id)
        if read_at is not None and now - read_at < self._seconds:
            return False
        self._read_at[run_id] = now
        return True

    def skip(self, run_id: str) -> None:
        """Start a new interval without a read."""
        self._read_at[run_id] = time.monotonic()

    def notify(self, run_id: str) -> None:
        """Make the next read due: a message was posted, or the run stopped."""
        self._read_at.pop(run_id, None)


def inbox_events(messages: Sequence[InboxMessage], state: RunState, now: int) -> list[EventWithBlobs]:
    """Return the events that record the messages of an inbox at a time.

    Only the first reply to a question is accepted, none after it has expired, and nothing after a cancellation. A
    reply to a question of a sub-run goes to the sub-run's inbox.
    """
    events: list[EventWithBlobs] = []
    wait = state.wait if state.wait is not None and state.wait.run is None else None
    is_cancelled, can_abort = False, state.is_turn_open
    for message in messages:
        if is_cancelled:
            events.append(
                (kinds.MessageRefused(message.id, type(message.payload).__name__, "the run is cancelled"), ())
            )
            continue
        body, blobs = to_event(message, wait, state, now, can_abort=can_abort)
        events.append((body, blobs))
        is_cancelled = isinstance(body, kinds.RunCancelled)
        if is_cancelled and state.reserved is not None:  # the process that made the call died
            events.append((in_full(state.reserved), ()))
        if isinstance(body, kinds.MemoryChanged):  # several changes apply one after the other
            state = replace(state, conversations=changed(state.conversations, body))
        if isinstance(body, kinds.MessageQueued):
            state = replace(state, inbox=state.inbox.with_message(body))
            wait = None if wait is not None and wait.is_message else wait
        can_abort = can_abort and not isinstance(body, kinds.TurnAborted)
        wait = None if isinstance(body, kinds.WaitAnswered | kinds.TurnAborted) else wait
    return events


def to_event(
    message: InboxMessage, wait: kinds.Question | None, state: RunState, now: int, *, can_abort: bool
) -> EventWithBlobs:
    """Return the event that records one message."""
    match message.payload:
        case Cancel(reason):
            return kinds.RunCancelled(reason, message.id), ()
        case AbortTurn(reason, partial):
            if not can_abort:
                return kinds.MessageRefused(message.id, "abort_turn", "no turn of a conversation is in progress"), ()
            text = Blob.of(partial.encode()) if partial else None
            return kinds.TurnAborted(reason, message.id, text.hash if text else None), (text,) if text else ()
        case ChangeMemory(action, text):
            is_known = state.phase in state.conversations and not state.conversations[state.phase].visit
            reason = memory_error(state.memory(state.phase), action, text) if is_known else "no conversation began"
            if reason:
                return kinds.MessageRefused(message.id, "change_memory", reason), ()
            return kinds.MemoryChanged(state.phase, action, text, message.id), ()
        case Say(text, by, ask, images):
            if reason := images_error(images):
                return kinds.MessageRefused(message.id, "say", reason), ()
            content, (refs, pictures) = Blob.of(text.encode()), _stored(images)
            return kinds.MessageQueued(content.hash, message.id, by, ask=ask, images=refs), (content, *pictures)
        case Rename(title, by):
            return kinds.ConversationRenamed(title, message.id, by), ()
        case ReportRun(run, status, text, usage, answers):
            if reason := state.inbox.report_error(run, status):
                return kinds.MessageRefused(message.id, "report_run", reason), ()
            content = Blob.of(text.encode())
            return kinds.MessageQueued(content.hash, message.id, "", run, status, usage, answers), (content,)
        case RaiseLimit(limit, value):
            return kinds.LimitRaised(limit, value, message.id), ()
        case Answer(asked, value, by):
            reason = answer_error(wait, asked, value)
            if not reason and wait is not None and wait.is_expired(now):
                reason = f"the question `{asked}` has expired"
            if reason:
                return kinds.MessageRefused(message.id, "answer", reason), ()
            content = Blob.of(canonical(value))
            return kinds.WaitAnswered(asked, content.hash, message.id, by), (content,)


def _stored(images: Sequence[AttachedImage]) -> tuple[tuple[kinds.ImageRef, ...], tuple[Blob, ...]]:
    """Return the images of a message as its event records them, and their content."""
    pictures = [Blob.of(base64.b64decode(image.data)) if image.data else None for image in images]
    refs = tuple(
        kinds.ImageRef(image.media_type, picture.hash if picture else None, image.url)
        for image, picture in zip(images, pictures, strict=True)
    )
    return refs, tuple(picture for picture in pictures if picture is not None)


def images_error(images: Sequence[AttachedImage]) -> str:
    """Return why the images of a message are invalid; empty if they are valid."""
    for image in images:
        try:
            content = base64.b64decode(image.data, validate=True)
        except (binascii.Error, ValueError) as error:
            return f"the data of an image is not base64: {error}"
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
    return f"the reply does not match the question's schema: {error.path('reply')} {error.message}" if error else ""
