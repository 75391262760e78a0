"""A model that answers from a recorded run: the journal is the cassette.

An answer is found by the hash of its request (frame and contract), so a changed prompt is a miss that says so, never a
stale answer. Of several answers to the same request, the one that stands where this run stands is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import RecordingMissing, RunNotFound
from reyn.journal import decode, kinds
from reyn.models.protocol import ModelReply

if TYPE_CHECKING:
    from reyn.journal import Journal
    from reyn.models.protocol import ModelRequest


class RecordedModel:
    takes_time = False

    def __init__(self, journal: Journal, run_id: str) -> None:
        self.name = f"recorded:{run_id}"
        self._journal = journal
        if journal.find(run_id) is None:
            raise RunNotFound(f"no run `{run_id}` to answer from")
        self._replies = _replies(journal, run_id)

    async def complete(self, request: ModelRequest) -> ModelReply:
        recorded = self._replies.get(request.request_hash, [])
        if not recorded:
            raise RecordingMissing(f"`{self.name}` holds no answer to the request of call {request.call}")
        later = [reply for number, reply in recorded if number >= request.answered]
        reply = later[0] if later else recorded[-1][1]
        return ModelReply(self._journal.blob(reply.text).decode(), reply.usage, reply.mode, reply.cut)


def _replies(journal: Journal, run_id: str) -> dict[str, list[tuple[int, kinds.LlmResponded]]]:
    """Request hash → the answers to it, each with its number among those of the run and its sub-runs."""
    replies: dict[str, list[tuple[int, kinds.LlmResponded]]] = {}
    requests: dict[str, str] = {}
    number = 0
    family = [run_id, *(row.run_id for row in journal.runs(f"{run_id}.") if row.parent)]
    asked = (kinds.LlmRequested.kind, kinds.LlmResponded.kind)
    events = [(event.ts, event) for name in family for event in journal.read(name) if event.kind in asked]
    for _, event in sorted(events, key=lambda dated: dated[0]):
        match decode(event):
            case kinds.LlmRequested(call=call, request=request):
                requests[event.run_id + call] = request
            case kinds.LlmResponded() as reply:
                replies.setdefault(requests[event.run_id + reply.call], []).append((number, reply))
                number += 1
    return replies
