"""Events of a transcript that grows from turn to turn: of a conversation, or of a visit with native tool calls."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from reyn.journal.kinds.shapes import AskRef, ContentName, Count, DerivedText, DoneOp, FrameMessage, ImageRef, Usage
from reyn.journal.registry import TEXT, Body, event

_Rendered = msgspec.Meta(extra={TEXT: True})


@event("transcript_extended", v=1, origin="derived")
class TranscriptExtended(Body, frozen=True):
    """Messages were added to the transcript of a phase: the input of a visit, or an answer with the results of its ops.

    `visit` is 0 for a conversation, whose transcript all visits of the phase share; otherwise the transcript belongs to
    this visit. `tokens` estimates the size of the messages at four characters a token, `size` is their length in bytes.
    `instructions` take the place of those of the phase from here on, if the message of a conversation came with some.
    """

    phase: str
    messages: Annotated[tuple[FrameMessage, ...], _Rendered]
    tokens: Annotated[Count, _Rendered]
    visit: Count = 0
    size: Annotated[Count, _Rendered] = 0
    instructions: ContentName | None = None


@event("turn_aborted", v=1, origin="outside", enters="running")
class TurnAborted(Body, frozen=True):
    """The turn in progress was aborted: by the user, by the next message, or because the conversation was copied.

    `message` is the id of the request in the inbox. `partial` is the received part of the model's answer. The visit
    then completes its transcript and ends. `children` are the children that had not ended, by call: they name the
    unsafe ops that each has completed or begun.
    """

    reason: str
    message: Count
    partial: ContentName | None = None
    children: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it


@event("phase_aborted", v=1, origin="derived")
class PhaseAborted(Body, frozen=True):
    """A visit ended because its turn was aborted. If `ends` is false, the phase is visited again with the next message.

    The transcript has the results of the tool calls that were completed, and says which ones were cancelled. `code` is
    set if the user did not abort the turn: the model did, or it gave no usable answer. If `ends` is true, the run fails
    then; `steps` is as in `phase_failed`, and `done` has all ops of the turn that succeeded, if the phase has work.
    """

    phase: str
    visit: Count
    reason: DerivedText
    ends: bool
    code: str = ""
    steps: ContentName | None = None
    done: tuple[DoneOp, ...] = ()


@event("experience_remembered", v=1, origin="derived")
class ExperienceRemembered(Body, frozen=True):
    """The op `call` added a text to the memory of a conversation. The `id` of an entry is never reused."""

    phase: str
    call: str
    id: str
    text: str


@event("experience_forgotten", v=1, origin="derived")
class ExperienceForgotten(Body, frozen=True):
    """The op `call` removed the entry `id` from the memory of a conversation."""

    phase: str
    call: str
    id: str


@event("memory_changed", v=1, origin="outside")
class MemoryChanged(Body, frozen=True):
    """A program changed the memory of a conversation. `message` is the id of its request in the inbox.

    `text` is the text to remember, or the id of the entry to forget. After `compact`, a summary replaces the older
    messages before the next model call.
    """

    phase: str
    action: Literal["remember", "forget", "compact"]
    text: str
    message: Count


MutationName = Literal[
    "AssistantMessage",
    "ToolResult",
    "MultimodalToolResult",
    "UserMessage",
    "ContextReplace",
    "ContextSummary",
    "ExperienceRemember",
    "ExperienceForget",
    "AssistantTruncated",
    "ToolCancelled",
]


class MutationRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A patch of a transcript. `messages` are those that it adds, or that replace the transcript.

    `keep` is the number of messages that a summary leaves, `texts` are texts to remember, or the id to forget.
    """

    mutation: MutationName
    messages: tuple[FrameMessage, ...] = ()
    keep: Count = 0
    texts: tuple[str, ...] = ()


@event("context_mutated", v=1, origin="outcome")
class ContextMutated(Body, frozen=True):
    """The hooks of a program were called before a model call, and patched what the model sees.

    `visit` is 0 if they patched the transcript of a conversation, the number of the visit if they patched that of a
    visit with native tool calls, and null if they patched the prompt of this turn alone. The tokens and the size are
    those of the transcript after it. `called` is false if the run was resumed without the program's hooks. `images` is
    true if the model sees images that came with this turn or with the mutations. `drops_correction` is true if they
    replaced the messages without the correction of the last answer. `recent` are the messages of the history that the
    run started with to which a summary applies; older ones are left out.
    """

    call: str
    phase: str
    hooks: tuple[str, ...]
    mutations: tuple[MutationRecord, ...] = ()
    visit: Count | None = None
    tokens_after: Count = 0
    size_after: Count = 0
    called: bool = True
    images: bool = False
    drops_correction: bool = False
    recent: tuple[FrameMessage, ...] = ()


@event("context_compacted", v=1, origin="derived")
class ContextCompacted(Body, frozen=True):
    """A summary replaced the older messages of a conversation; with an `error`, a note that they are left out.

    `call` is the model call that wrote the `summary`, or failed. The last `kept` messages stay, among them the whole
    current turn, which begins with the last message of the user. `recent` are those of them that are part of the
    history that the run started with.
    `dropped` is the number of messages that were replaced; the tokens are estimates of the transcript, and
    `size_after` is its length in bytes.
    """

    phase: str
    call: str
    summary: ContentName
    kept: Count
    dropped: Count
    tokens_before: Annotated[Count, _Rendered]
    tokens_after: Annotated[Count, _Rendered]
    size_after: Annotated[Count, _Rendered] = 0
    error: DerivedText = ""
    recent: Annotated[tuple[FrameMessage, ...], _Rendered] = ()


@event("message_queued", v=1, origin="outside")
class MessageQueued(Body, frozen=True):
    """A message for the conversation arrived. The conversation takes it when it is ready for the next one.

    `text` is the message, `images` come with it, `message` is its id in the inbox, and `by` the user who sent it, if
    known. If the message reports the end of a background run, `run` is that run, `status` its status, and `usage` and
    `answers` count its tokens and model answers. If another agent sent it, `ask` says which one, and for which of its
    calls. `instructions` are those that the model has from this message on, if a program sent some. `sender` is the
    call that sent it, if the code of an op did. `note` names the questions that background runs had open when it
    arrived; the model reads it below the message.
    """

    text: ContentName
    message: Count
    by: str = ""
    run: str = ""
    status: str = ""
    usage: Usage = Usage()
    answers: Count = 0
    ask: AskRef | None = None
    images: tuple[ImageRef, ...] = ()
    instructions: ContentName | None = None
    sender: str = ""
    note: ContentName | None = None


@event("message_taken", v=1, origin="derived")
class MessageTaken(Body, frozen=True):
    """The conversation took the oldest message that was queued: it is the input of this visit.

    The fields other than `phase` and `visit` are those of its `message_queued`.
    """

    phase: str
    visit: Count
    text: ContentName
    message: Count
    by: str = ""
    run: str = ""


@event("conversation_renamed", v=1, origin="outside")
class ConversationRenamed(Body, frozen=True):
    """A user gave the conversation a title; an empty one removes the title. `message` is the request in the inbox."""

    title: str
    message: Count
    by: str = ""


@event("overviews_read", v=1, origin="outcome")
class OverviewsRead(Body, frozen=True):
    """What the ops of a conversation can act on was read, such as the skills that it can run.

    `text` is the section of the prompt; null if there is nothing to show. `failed` says which ops could not tell, and
    why. `targets` is a JSON object: for each op kind, the list of what its calls can name.
    """

    call: str
    text: ContentName | None = None
    failed: tuple[str, ...] = ()
    targets: ContentName | None = None
