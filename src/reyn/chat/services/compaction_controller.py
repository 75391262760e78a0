"""When a conversation is compacted, and what a compaction leaves alone: a recent tail and the pinned facts.

The kernel compacts a conversation before a model call, when the transcript exceeds its budget. A fact is pinned by
remembering it in the conversation: it is no message, so no summary replaces it, and every prompt contains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from reyn.context.transcript import MemoryEntry
    from reyn.kernel.core.conversations import ConversationSize
    from reyn.runtime import OSRuntime


class Compacted(msgspec.Struct, frozen=True):
    """A compaction that happened.

    Attributes:
        seq: The event that recorded it.
        at: When, in microseconds since 1970, UTC.
        dropped: The number of messages that the summary replaced.
        kept: The number of recent messages that stayed.
        tokens_before: The estimated size of the transcript before it.
        tokens_after: The estimated size after it.
        summary: The summary.
    """

    seq: int
    at: int
    dropped: int
    kept: int
    tokens_before: int
    tokens_after: int
    summary: str


class CompactionController:
    """The size of one conversation."""

    def __init__(self, runtime: OSRuntime, run_id: str) -> None:
        self._runtime = runtime
        self._run_id = run_id

    def size(self) -> ConversationSize:
        """Return how large the conversation is, and at which size it is compacted."""
        return self._runtime.runs.conversation_size(self._run_id)

    def request(self) -> None:
        """Let the conversation be compacted before its next model call, whatever its size.

        Raises:
            MutationInvalid: The run has no conversation yet.
        """
        self._runtime.conversations.compact(self._run_id)

    def pin(self, fact: str) -> None:
        """Pin a fact.

        Raises:
            MutationInvalid: The fact is blank, or the pinned facts would not fit beside the messages.
        """
        self._runtime.conversations.remember(self._run_id, fact)

    def pinned(self) -> tuple[MemoryEntry, ...]:
        """Return the pinned facts, the oldest first."""
        return self._runtime.runs.memory(self._run_id)

    def compactions(self) -> list[Compacted]:
        """Return the compactions so far, in order."""
        found = []
        for event in self._runtime.runs.events(self._run_id):
            if event.kind != kinds.ContextCompacted.kind:
                continue
            body = decode(event)
            assert isinstance(body, kinds.ContextCompacted)
            summary = self._runtime.runs.content(body.summary).decode()
            sizes = (body.dropped, body.kept, body.tokens_before, body.tokens_after)
            found.append(Compacted(event.seq, event.ts, *sizes, summary))
        return found
