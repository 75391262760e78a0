"""Events of a transcript that grows from turn to turn: of a conversation, or of a visit with native tool calls."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from reyn.journal.kinds.shapes import ContentName, Count, DerivedText, FrameMessage, Usage
from reyn.journal.registry import TEXT, Body, event

_Rendered = msgspec.Meta(extra={TEXT: True})


@event("transcript_extended", v=1, origin="derived")
class TranscriptExtended(Body, frozen=True):
    """Messages were added to the transcript of a phase: the input of a visit, or an answer with the results of its ops.

    `visit` is 0 for a conversation, whose transcript all visits of the phase share; otherwise the transcript belongs to
    this visit. `tokens` estimates the size of the messages.
    """

    phase: str
    messages: Annotated[tuple[FrameMessage, ...], _Rendered]
    tokens: Annotated[Count, _Rendered]
    visit: Count = 0


@event("turn_aborted", v=1, origin="outside", enters="running")
class TurnAborted(Body, frozen=True):
    """The user aborted the turn in progress. `message` is the id of the request in the inbox.

    `partial` is what had arrived of the model's answer. The visit then completes its transcript and ends.
    """

    reason: str
    message: Count
    partial: ContentName | None = None


@event("phase_aborted", v=1, origin="derived")
class PhaseAborted(Body, frozen=True):
    """A visit ended because its turn was aborted. If `ends` is false, the phase is visited again with the next message.

    The transcript has the results of the tool calls that were completed, and says which ones were cancelled.
    """

    phase: str
    visit: Count
    reason: DerivedText
    ends: bool


@event("experience_remembered", v=1, origin="derived")
class ExperienceRemembered(Body, frozen=True):
    """A conversation remembers a text. Its `id` is never given to another one. `call` is the op that asked for it."""

    phase: str
    call: str
    id: str
    text: str


@event("experience_forgotten", v=1, origin="derived")
class ExperienceForgotten(Body, frozen=True):
    """A conversation forgot the experience `id`. `call` is the op that asked for it."""

    phase: str
    call: str
    id: str


@event("memory_changed", v=1, origin="outside")
class MemoryChanged(Body, frozen=True):
    """A program changed what a conversation remembers. `message` is the id of its request in the inbox.

    `text` is what was remembered, or the id of the experience that was forgotten.
    """

    phase: str
    action: Literal["remember", "forget"]
    text: str
    message: Count


@event("context_compacted", v=1, origin="derived")
class ContextCompacted(Body, frozen=True):
    """A summary replaced the older messages of a conversation.

    `call` is the model call that wrote the `summary`. The last `kept` messages stay, and so does the last message of
    the user. `dropped` is the number of messages that were replaced; the tokens are estimates of the transcript.
    """

    phase: str
    call: str
    summary: ContentName
    kept: Count
    dropped: Count
    tokens_before: Annotated[Count, _Rendered]
    tokens_after: Annotated[Count, _Rendered]


@event("message_queued", v=1, origin="outside")
class MessageQueued(Body, frozen=True):
    """A message for the conversation arrived. The conversation takes it when it is ready for the next one.

    `text` is the message, `message` its id in the inbox, and `by` the user who sent it, if known. If the message
    reports the end of a background run, `run` is that run, `status` its status, and `usage` and `answers` count its
    tokens and model answers.
    """

    text: ContentName
    message: Count
    by: str = ""
    run: str = ""
    status: str = ""
    usage: Usage = Usage()
    answers: Count = 0


@event("message_taken", v=1, origin="derived")
class MessageTaken(Body, frozen=True):
    """The conversation took the oldest message that was queued: it is the input of this visit."""

    phase: str
    visit: Count
    text: ContentName


@event("overviews_read", v=1, origin="outcome")
class OverviewsRead(Body, frozen=True):
    """What the ops of a conversation can act on was read, such as the skills that it can run.

    `text` is the section of the prompt; null if there is nothing to show. `failed` says which ops could not tell, and
    why.
    """

    call: str
    text: ContentName | None = None
    failed: tuple[str, ...] = ()
