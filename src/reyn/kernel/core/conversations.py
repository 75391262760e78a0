"""Transcripts and messages of agents in the state of a run: values, and what each event does to them. No I/O.

A transcript refers to its messages by hash, so the state stays small. Events become mutations and pass through the
compile pipeline. That of a conversation has what every visit completed, also one that failed or was rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from reyn.context import (
    ContextMutation,
    ContextReplace,
    ContextSummary,
    DataFromSelfRef,
    ExperienceForget,
    ExperienceRemember,
    NormalizedMessageList,
)
from reyn.context.compile import compile_messages
from reyn.context.histories import HISTORIES, detached, outside, system_of
from reyn.context.messages import Memory, NormalizedMessage
from reyn.context.records import mutation_of
from reyn.context.render import normalized, recorded_mutation, rendered_message
from reyn.context.selfref import forget, memory_text, remember
from reyn.context.tokens import estimate_tokens
from reyn.errors import MutationInvalid
from reyn.journal import kinds
from reyn.journal.kinds import Part

if TYPE_CHECKING:
    from reyn.journal.canonical import ReadBlob

SUMMARY_HEADING = "# Summary of the conversation so far\n"


class Transcript(msgspec.Struct, frozen=True):
    """A transcript of a phase.

    Attributes:
        visit: The visit that it belongs to; 0 if all visits of the phase share it.
        messages: The messages, which refer to their content.
        selfref: What the conversation remembers.
        tokens: The estimated size of the messages, those of the history included, at four characters a token.
        size: Their length in bytes.
        history: What came before the messages, until it is compacted.
        wants_compaction: Whether a program asked for a compaction.
        instructions: The hash of the instructions that the last message with others than before came with.
        phase: The phase that extended it last, or changed it.
    """

    visit: int = 0
    messages: NormalizedMessageList = NormalizedMessageList()
    selfref: DataFromSelfRef | None = None
    tokens: int = 0
    history: tuple[kinds.HistoryPart, ...] = ()
    size: int = 0
    wants_compaction: bool = False
    instructions: str | None = None
    phase: str = ""

    def mutated(self, mutations: Sequence[ContextMutation], tokens: int = 0, size: int = 0) -> Transcript:
        """Return the conversation with mutations applied, which add to its tokens and bytes."""
        compiled = compile_messages(self.messages, self.selfref, mutations)
        return Transcript(
            self.visit,
            compiled.messages,
            compiled.data_from_selfref,
            self.tokens + tokens,
            self.history,
            self.size + size,
            self.wants_compaction,
            self.instructions,
            self.phase,
        )

    def taken_over(self, phase: str) -> Transcript:
        """Return the conversation as another phase continues it: with its own instructions, and the same memory."""
        if not self.phase or self.messages.system is None:
            return msgspec.structs.replace(self, phase=phase)
        memory = self.messages.system.marker
        system = NormalizedMessage("system", "", marker=memory) if memory is not None else None
        messages = self.messages.with_system(system)
        return msgspec.structs.replace(self, messages=messages, instructions=None, phase=phase)

    def instructed(self, system: str) -> Transcript:
        """Return the conversation with a system message, by its hash. What it remembers stays."""
        memory = self.messages.system.marker if self.messages.system is not None else None
        message = NormalizedMessage("system", "", parts=(Part(blob=system),), marker=memory)
        return msgspec.structs.replace(self, messages=self.messages.with_system(message), instructions=system)

    def with_recent(self, recent: Sequence[kinds.FrameMessage]) -> Transcript:
        """Return the conversation with recent messages of its history as its own, instead of the history."""
        messages = NormalizedMessageList(map(normalized, recent)).with_system(self.messages.system)
        whole = messages.append(*self.messages.tail(self.messages.length)) if recent else self.messages
        return msgspec.structs.replace(self, messages=whole, history=())

    @property
    def length(self) -> int:
        """The number of messages, those of the history included."""
        return self.messages.length + sum(part.messages for part in self.history)

    def whole(self, content: ReadBlob) -> NormalizedMessageList:
        """Return the history and the messages."""
        if not self.history:
            return self.messages
        before = HISTORIES.load(self.history, content).with_system(self.messages.system)
        return before.append(*self.messages.tail(self.messages.length))

    def rendered(self, content: ReadBlob) -> NormalizedMessageList:
        """Return the history and the messages, with their texts and images, as a history for another run."""
        own, shown = self.messages.tail(self.messages.length), outside(content)
        rendered = (detached(rendered_message(message, shown, with_images=True)) for message in own)
        messages = HISTORIES.load(self.history, content).append(*rendered)
        system = self.messages.system
        return messages.with_system(rendered_message(system, content)) if system and system.content else messages


class ConversationSize(msgspec.Struct, frozen=True):
    """How large a conversation is, in estimated tokens.

    Attributes:
        tokens: The size of the transcript.
        max_tokens: The size above which older messages are replaced by a summary; 0 if it is no conversation.
        pinned: The size of the memory, which a compaction never changes.
        max_pinned: The size of the memory, at most.
        wants_compaction: Whether a user or a program asked for a compaction, which happens before the next model call.
    """

    tokens: int
    max_tokens: int
    pinned: int
    max_pinned: int
    wants_compaction: bool = False


SEED = ""
"""The name under which a run keeps the history that its conversations start with."""


def seed_of(started: kinds.RunStarted) -> dict[str, Transcript]:
    """Return the transcripts of a run that has just started."""
    if not started.history:
        return {}
    tokens, size = sum(part.tokens for part in started.history), sum(part.size for part in started.history)
    seed = Transcript(tokens=tokens, history=started.history, size=size)
    system = system_of(started.history)
    return {SEED: seed.instructed(system) if system is not None else seed}


def sharing_after(sharing: Mapping[str, str], body: kinds.PhaseStarted) -> dict[str, str]:
    """Return the keys of the transcripts that phases share, by phase, after a visit of one started.

    No phase has the name of such a key.
    """
    others = {phase: key for phase, key in sharing.items() if phase != body.phase}
    return {**others, body.phase: f"{body.transcript}/"} if body.transcript else others


def begun(conversations: Mapping[str, Transcript], key: str, visit: int) -> Transcript:
    """Return the transcript of a conversation, or of a visit; an empty one if there is none yet."""
    found = conversations.get(key) or (conversations.get(SEED) if visit == 0 else None)
    return found if found is not None and found.visit == visit else Transcript(visit)


TranscriptChange = (
    kinds.TranscriptExtended
    | kinds.ExperienceRemembered
    | kinds.ExperienceForgotten
    | kinds.MemoryChanged
    | kinds.ContextMutated
    | kinds.ContextCompacted
)


def changed(conversations: Mapping[str, Transcript], key: str, body: TranscriptChange) -> dict[str, Transcript]:
    """Return the transcripts of a run after an event that changes one of them."""
    visit = (body.visit or 0) if isinstance(body, kinds.TranscriptExtended | kinds.ContextMutated) else 0
    before = begun(conversations, key, visit)
    if before.phase != body.phase:
        before = before.taken_over(body.phase)
    return {**conversations, key: _changed(before, body)}


def _changed(conversation: Transcript, body: TranscriptChange) -> Transcript:
    match body:
        case kinds.TranscriptExtended(messages=messages, tokens=tokens, size=size):
            if body.instructions is not None:
                conversation = conversation.instructed(body.instructions)
            return conversation.mutated([recorded_mutation(message) for message in messages], tokens, size)
        case kinds.ExperienceRemembered(text=text) | kinds.MemoryChanged(action="remember", text=text):
            return conversation.mutated([ExperienceRemember(text)])
        case kinds.ContextMutated(mutations=records, tokens_after=tokens, size_after=size):
            mutations = [mutation_of(record) for record in records]
            if any(isinstance(mutation, ContextReplace | ContextSummary) for mutation in mutations):
                conversation = conversation.with_recent(body.recent)
            patched = conversation.mutated(mutations)
            return msgspec.structs.replace(patched, tokens=tokens, size=size)
        case kinds.MemoryChanged(action="compact"):
            return msgspec.structs.replace(conversation, wants_compaction=True)
        case kinds.ExperienceForgotten(id=name) | kinds.MemoryChanged(text=name):
            return conversation.mutated([ExperienceForget(name)])
    conversation = conversation.with_recent(body.recent)
    conversation = msgspec.structs.replace(conversation, tokens=0, size=0, wants_compaction=False)
    summary = ContextSummary(summary_parts(body.summary), body.kept)
    return conversation.mutated([summary], body.tokens_after, body.size_after)


def memory_error(memory: Memory, action: str, text: str, max_tokens: int | None = None) -> str:
    """Return why a memory cannot be changed; empty if it can.

    Args:
        memory: The memory.
        action: `remember`, `forget` or `compact`.
        text: The text to remember, or the id of the entry to forget.
        max_tokens: The size of the memory, at most; `None` if the caller does not know it.
    """
    if action == "compact":
        return ""
    try:
        if action == "forget":
            forget(memory, text)
            return ""
        after, _ = remember(memory, text)
    except MutationInvalid as error:
        return error.message
    if after is memory:
        return ""
    if len(memory.entries) >= MAX_MEMORY_ENTRIES:
        return f"{MAX_MEMORY_ENTRIES} texts are remembered already; forget one first"
    tokens = estimate_tokens(memory_text(after.entries))
    if max_tokens is not None and tokens > max_tokens:
        return (
            f"what the conversation remembers would have {tokens} tokens, and at most {max_tokens} fit beside its "
            "messages; forget something first, or remember it in a file (`name`)"
        )
    return ""


MAX_MEMORY_ENTRIES = 200
"""Texts that a conversation remembers at most: every prompt contains them."""


def summary_parts(summary: str) -> tuple[Part, ...]:
    """Return the content of the message that replaces older messages."""
    return (Part(text=SUMMARY_HEADING), Part(blob=summary))


# -- messages between agents -----------------------------------------------------------------------


class AgentThread(msgspec.Struct, frozen=True):
    """The conversation of a run with another agent, as of the last message.

    Attributes:
        run: The conversation.
        seq: Its last event when the agent replied.
        is_open: Whether it can take another message.
        usage: What the run has counted of its tokens.
        answers: What the run has counted of its model answers.
        charge: What the run has counted of its charge.
        active: What the run has counted of its execution time, in microseconds.
    """

    run: str
    seq: int = 0
    is_open: bool = False
    usage: kinds.Usage = kinds.Usage()
    answers: int = 0
    charge: kinds.Charge = kinds.Charge()
    active: int = 0

    def after(self, body: kinds.ChildEnded) -> AgentThread:
        """Return the thread after a reply."""
        before = self if self.run == body.run else AgentThread(body.run)
        return AgentThread(
            body.run,
            body.seq,
            body.open,
            before.usage + body.usage,
            before.answers + body.answers,
            before.charge + (body.charge or kinds.Charge()),
            before.active + body.active,
        )


def reply_text(replied: kinds.ChildEnded, content: ReadBlob) -> str:
    """Return the reply of another agent; empty if there is none."""
    if replied.artifact is None:
        return ""
    return str(msgspec.json.decode(content(replied.artifact.hash))["data"].get("text", ""))


class ReceivedMessage(msgspec.Struct, frozen=True):
    """The last message of another agent that a conversation received.

    Attributes:
        ask: Where it comes from.
        state: Its state.
        answered_before: Model answers of the run that asks that this conversation has not counted itself.
        reply: The reply, once there is one.
        reason: Why there is none.
    """

    ask: kinds.AskRef
    state: kinds.TaskState = "submitted"
    answered_before: int = 0
    reply: kinds.ArtifactRef | None = None
    reason: str = ""

    def taken(self, ask: kinds.AskRef | None) -> ReceivedMessage:
        """Return it after the conversation took a message: this one, or a different one."""
        return replace(self, state="working") if ask == self.ask else self

    def completed(self, reply: kinds.ArtifactRef) -> ReceivedMessage:
        """Return it after a turn of the conversation."""
        return replace(self, state="completed", reply=reply) if self.state == "working" else self

    def aborted(self, body: kinds.PhaseAborted) -> ReceivedMessage:
        """Return it after a turn without a reply: it was aborted, or the model gave no usable answer."""
        state: kinds.TaskState = "failed" if body.code else "canceled"
        return replace(self, state=state, reason=body.reason) if self.state == "working" else self
