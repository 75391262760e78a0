"""The compactions of a conversation.

The kernel compacts a conversation before a model call, when the transcript exceeds its budget, or after
`rt.conversations.compact`. A fact is pinned by `rt.conversations.remember`: no summary replaces it, because it is no
message, and every prompt contains it. `rt.runs.conversation_size` has the sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from reyn.runs.recorded import Runs


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


def compactions(runs: Runs, run_id: str) -> list[Compacted]:
    """Return the compactions of a conversation so far, in order."""
    found = []
    for event in runs.events(run_id):
        body = decode(event) if event.kind == kinds.ContextCompacted.kind else None
        if isinstance(body, kinds.ContextCompacted):
            sizes = (body.dropped, body.kept, body.tokens_before, body.tokens_after)
            found.append(Compacted(event.seq, event.ts, *sizes, runs.content(body.summary).decode()))
    return found
