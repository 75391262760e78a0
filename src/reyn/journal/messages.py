"""The inbox of a run: the messages that other processes send to it.

Other processes send messages instead of appending, so they never invalidate a driver's append after it has paid for a
model answer.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from reyn.errors import EventInvalid, MessageInvalid
from reyn.journal import kinds
from reyn.journal.canonical import canonical


class InboxRequest(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag=True
):
    """What another process asks of a run. It is stored with the name of its class."""

    @property
    def name(self) -> str:
        """The name of its class as events write it, such as `abort_turn`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()


class Cancel(InboxRequest, frozen=True):
    """Cancel the run."""

    reason: str = ""


class AbortTurn(InboxRequest, frozen=True):
    """Abort the turn of a conversation that is in progress. `partial` is what arrived of the model's answer."""

    reason: str = ""
    partial: str = ""


class ChangeMemory(InboxRequest, frozen=True):
    """Change the memory. `text` is the text to remember, or the id of the entry to forget; empty for `compact`."""

    action: Literal["remember", "forget", "compact"]
    text: str = ""


class RaiseLimit(InboxRequest, frozen=True):
    """Raise a limit to `value`; `None` removes it."""

    limit: str
    value: int | None


class AttachedImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An image of a message: its content in base64 with its media type, or its address."""

    media_type: str = ""
    data: str = ""
    url: str = ""


class Answer(InboxRequest, frozen=True):
    """Answer the open question with the id `wait`."""

    wait: str
    value: Any
    by: str = ""


class Say(InboxRequest, frozen=True):
    """Say something in a conversation. It is the next message, whether the conversation waits for one or is busy.

    `ask` is set if another agent says it. `instructions` are those that the model has from this message on. `sender` is
    the call of the op whose code says it, if one does.
    """

    text: str
    by: str = ""
    ask: kinds.AskRef | None = None
    images: tuple[AttachedImage, ...] = ()
    instructions: str | None = None
    sender: str = ""


class Rename(InboxRequest, frozen=True):
    """Give a conversation a title; an empty one removes it."""

    title: str
    by: str = ""


class NotificationDelivered(InboxRequest, frozen=True):
    """Report that the user was notified of a question or of a failure; see `NotificationSent`."""

    subject: str
    event: Literal["question", "failed"]
    attempts: int


class ReportRun(InboxRequest, frozen=True):
    """Report to a conversation that a background run which it started has ended. `text` is the message about it."""

    run: str
    status: str
    text: str
    usage: kinds.Usage = kinds.Usage()
    answers: int = 0


RunMessage = AbortTurn | ChangeMemory | RaiseLimit | Answer | Say | Rename | ReportRun | NotificationDelivered
InboxPayload = Cancel | RunMessage
_decode = msgspec.json.Decoder(InboxPayload).decode


class InboxMessage(msgspec.Struct, frozen=True):
    """A message to a run from another process. Ids increase; the run records the last one it processed."""

    id: int
    payload: InboxPayload


def encode_payload(payload: InboxPayload) -> bytes:
    """Return the JSON of a payload.

    Raises:
        EventInvalid: A run could not decode it.
        MessageInvalid: A text is not valid Unicode.
    """
    if not isinstance(payload, InboxRequest):
        raise EventInvalid(f"{payload!r} is not an inbox message")
    try:
        content = canonical(payload)
    except UnicodeEncodeError:
        raise MessageInvalid("a message to a run has a lone surrogate, which is not valid Unicode") from None
    decode_payload(content)
    return content


def decode_payload(content: bytes) -> InboxPayload:
    """Return the payload that `encode_payload` encoded. Raises `EventInvalid` if it is unknown or malformed."""
    try:
        payload: InboxPayload = _decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise EventInvalid(f"malformed inbox message: {error}") from error
    return payload
