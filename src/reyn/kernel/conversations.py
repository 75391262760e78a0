"""Transcripts in the state of a run: values, and what each event does to them. No I/O.

A transcript refers to its messages by hash, so the state stays small. Events become mutations and pass through the
compile pipeline; a transcript that a failed visit extended is dropped by keeping the one from before the visit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.context import (
    ContextState,
    ContextSummary,
    DataFromSelfRef,
    ExperienceForget,
    ExperienceRemember,
    NormalizedMessageList,
    SelfRefMarker,
    compile_context,
    recorded_mutation,
)
from reyn.context.selfref import forget, remember
from reyn.errors import MutationInvalid
from reyn.journal import kinds
from reyn.journal.kinds import Part
from reyn.ops.op import MemoryOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reyn.context import ContextMutation
    from reyn.kernel.compiled_skill import RunContext
    from reyn.kernel.run_state import RunState
    from reyn.kernel.tape import Tape

SUMMARY_HEADING = "# Summary of the conversation so far\n"


class Conversation(msgspec.Struct, frozen=True):
    """A transcript of a phase.

    Attributes:
        visit: The visit that it belongs to; 0 if all visits of the phase share it.
        messages: The messages, which refer to their content.
        selfref: What the conversation remembers.
        tokens: The estimated size of the messages.
    """

    visit: int = 0
    messages: NormalizedMessageList = NormalizedMessageList()
    selfref: DataFromSelfRef | None = None
    tokens: int = 0

    def mutated(self, mutations: Sequence[ContextMutation], tokens: int) -> Conversation:
        """Return the conversation with mutations applied, and its new size."""
        compiled = compile_context(ContextState(self.messages, self.selfref), mutations)
        return Conversation(self.visit, compiled.messages, compiled.data_from_selfref, tokens)


def transcript_of(state: RunState, phase: str, visit: int = 0) -> Conversation:
    """Return the transcript of a conversation, or of a visit; an empty one if there is none yet."""
    found = state.conversations.get(phase)
    return found if found is not None and found.visit == visit else Conversation(visit)


def is_turn_open(state: RunState) -> bool:
    """Return whether a turn of a conversation is in progress: its message is part of the transcript."""
    found = state.conversations.get(state.phase)
    is_extended = found is not None and found.visit == 0 and found is not state.visit.conversations.get(state.phase)
    return state.visit.is_open and is_extended and state.aborted is None


Change = kinds.TranscriptExtended | kinds.ExperienceRemembered | kinds.ExperienceForgotten | kinds.ContextCompacted


def changed(before: Conversation | None, body: Change) -> Conversation:
    """Return the transcript of a phase after an event."""
    visit = body.visit if isinstance(body, kinds.TranscriptExtended) else 0
    conversation = before if before is not None and before.visit == visit else Conversation(visit)
    tokens = conversation.tokens
    match body:
        case kinds.TranscriptExtended(messages=messages, tokens=more):
            return conversation.mutated([recorded_mutation(message) for message in messages], tokens + more)
        case kinds.ExperienceRemembered(text=text):
            return conversation.mutated([ExperienceRemember(text)], tokens)
        case kinds.ExperienceForgotten(id=name):
            return conversation.mutated([ExperienceForget(name)], tokens)
    return conversation.mutated([ContextSummary(summary_parts(body.summary), body.kept)], body.tokens_after)


def change_memory(request: kinds.MemoryRequest, call: str, context: RunContext, tape: Tape) -> MemoryOutcome:
    """Record the change of memory that an op requests. A compaction happens before the next turn."""
    phase = context.conversation
    if phase is None:
        return MemoryOutcome(error="this phase is not a conversation; it has no memory")
    if request.action == "compact":
        return MemoryOutcome()
    selfref = transcript_of(tape.state, phase).selfref
    memory = selfref.marker if selfref is not None else SelfRefMarker()
    try:
        if request.action == "forget":
            forget(memory, request.text)
            tape.emit(kinds.ExperienceForgotten(phase, call, request.text))
            return MemoryOutcome(request.text)
        if len(memory.experiences) >= MAX_EXPERIENCES:
            return MemoryOutcome(error=f"{MAX_EXPERIENCES} texts are remembered already; forget one first")
        after, experience = remember(memory, request.text)
    except MutationInvalid as error:
        return MemoryOutcome(error=error.message)
    if after is not memory:
        tape.emit(kinds.ExperienceRemembered(phase, call, experience.id, experience.text))
    return MemoryOutcome(experience.id)


MAX_EXPERIENCES = 200
"""Texts that a conversation remembers at most: every prompt contains them."""


def summary_parts(summary: str) -> tuple[Part, ...]:
    """Return the content of the message that replaces older messages."""
    return (Part(text=SUMMARY_HEADING), Part(blob=summary))
