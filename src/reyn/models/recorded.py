"""A model that answers from a recorded run: the journal is the test cassette.

Answers are looked up by the hash of the request (frame and contract), so a changed prompt is an error and never a stale
answer. Among several answers to the same request, the position in the run decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reyn.errors import RecordingMissing, RunNotFound
from reyn.journal import Journal, decode, kinds
from reyn.models.protocol import ModelAnswer, ModelRequest, NativeReply, decode_reply
from reyn.models.thoughts import decode_thoughts

if TYPE_CHECKING:
    from reyn.journal.kinds import AnswerForm


_CALLS = frozenset(
    body.kind
    for body in (
        kinds.LlmRequested,
        kinds.LlmResponded,
        kinds.ChildStarted,
        kinds.ChildEnded,
    )
)


class RecordedModel:
    """Answers the requests of one recorded run and its sub-runs."""

    takes_time = False

    def __init__(self, journal: Journal, run_id: str) -> None:
        self.name = f"recorded:{run_id}"
        self._run_id = run_id
        self._journal = journal
        if journal.find(run_id) is None:
            raise RunNotFound(f"no recorded run `{run_id}`")
        self._replies = _replies(journal, run_id)

    @property
    def answer_form(self) -> AnswerForm:
        """The form in which the model of the recorded run was asked; requests in another form have other hashes."""
        started = next((decode(event) for event in self._journal.read(self._run_id)), None)
        return started.answer_form if isinstance(started, kinds.RunStarted) else "full"

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Return the recorded answer; raise `RecordingMissing` if there is none."""
        recorded = self._replies.get(request.request_hash, [])
        if not recorded:
            raise RecordingMissing(f"`{self.name}` has no answer to the request of call {request.call}")
        later = [reply for number, reply in recorded if number >= request.answered]
        reply = later[0] if later else recorded[-1][1]
        text = self._journal.blob(reply.text).decode()
        native = decode_reply(text) if request.answer_form == "tools" else NativeReply(text)
        thoughts = decode_thoughts(self._journal.blob(reply.thoughts)) if reply.thoughts is not None else None
        return ModelAnswer(
            native.content, reply.usage, reply.mode, reply.cut, reply.choice_probability, native.tool_calls, thoughts
        )


def _replies(journal: Journal, run_id: str) -> dict[str, list[tuple[int, kinds.LlmResponded]]]:
    """Return request hash → answers, each with its position among all answers of the run and its sub-runs."""
    replies: dict[str, list[tuple[int, kinds.LlmResponded]]] = {}
    for number, (request, reply) in enumerate(_answers(journal, run_id)):
        replies.setdefault(request, []).append((number, reply))
    return replies


def _answers(
    journal: Journal, run_id: str, after: int = 0, until: int | None = None
) -> Iterator[tuple[str, kinds.LlmResponded]]:
    """Yield the answers of a run with the hashes of their requests; those of a sub-run where the run started it, and
    those of another agent where it replied.

    The order does not depend on the times of sub-runs that executed together. `after` and `until` select events.
    """
    requests: dict[str, str] = {}
    seen: dict[str, int] = {}
    for event in journal.read(run_id, after):
        if until is not None and event.seq > until:
            return
        if event.kind not in _CALLS:
            continue
        match decode(event):
            case kinds.LlmRequested(call=call, request=request):
                requests[call] = request
            case kinds.LlmResponded() as reply:
                yield requests[reply.call], reply
            case (
                kinds.ChildStarted(type="skill" | "background", run=run) | kinds.ChildEnded(type="function", run=run)
            ) if run not in seen and _is_child(journal, event.run_id, run):
                seen[run] = 0
                yield from _answers(journal, run)
            case kinds.ChildEnded(type="agent", run=run, seq=seq) if _is_child(journal, event.run_id, run):
                yield from _answers(journal, run, seen.get(run, 0), seq)
                seen[run] = max(seq, seen.get(run, 0))


def _is_child(journal: Journal, run_id: str, child: str) -> bool:
    """Return whether a run started another one: an archive can name any run."""
    if journal.find(child) is None or not child.startswith(f"{run_id}."):
        return False
    started = decode(next(iter(journal.read(child))))
    return isinstance(started, kinds.RunStarted) and started.parent is not None and started.parent.run == run_id
