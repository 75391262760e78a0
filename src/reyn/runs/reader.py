"""Read a recorded run: each event with the state before and after it, and the turn that it belongs to.

The views of a run (prompts, decisions, visits, fork points) are functions of what this module yields, so none of them
has a fold of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

from reyn.errors import ChainBroken, RunNotFound
from reyn.journal import Body, Event, decode, kinds
from reyn.kernel.core.run_state import EMPTY, apply

if TYPE_CHECKING:
    from reyn.kernel.core.snapshot import RunState


_OUTCOMES = (kinds.OpCompleted, kinds.PermissionDenied, kinds.ApprovalDecided, kinds.ValidationError)


class RecordedTurn(NamedTuple):
    """A prompt of a visit, and the model's answer.

    Attributes:
        seq: The event of the frame.
        frame: The frame.
        start: The state before the visit.
        state: The state when the frame was built.
        results: The hashes of the results of the visit's ops before the frame.
        handoff: The last handoff that was assembled before the frame.
        truncated: The hash of the whole content, by the hash of the part that a frame contains.
        request: The model call.
        answer: The model's answer, if there is one.
        answer_seq: The event of the answer.
        checked: The conditions on the edges of the phase, if there are any.
    """

    seq: int
    frame: kinds.FrameBuilt
    start: RunState
    state: RunState
    results: tuple[str, ...]
    handoff: kinds.ContextBudgetApplied | None
    truncated: dict[str, str]
    request: kinds.LlmRequested | None = None
    answer: kinds.LlmResponded | None = None
    answer_seq: int = 0
    checked: kinds.ConditionsChecked | None = None


class ReadEvent(NamedTuple):
    """An event of a run, its data, the state before and after it, and the last turn up to it."""

    event: Event
    body: Body
    before: RunState
    after: RunState
    turn: RecordedTurn | None

    @property
    def follows_turn(self) -> bool:
        """Whether the visit had a turn, so that a model requested its ops; before that, its steps did."""
        return self.turn is not None and self.turn.state.history.total_steps == self.after.history.total_steps


class RunReader:
    """The fold behind `read_run`, one event at a time. A copy reads on from the same place."""

    def __init__(self) -> None:
        self.seq = 0
        self._before_visit = self._state = EMPTY
        self._turn: RecordedTurn | None = None
        self._handoff: kinds.ContextBudgetApplied | None = None
        self._results: dict[str, str] = {}
        self._truncated: dict[str, str] = {}
        self._checked: kinds.ConditionsChecked | None = None
        self._ordered = 0

    def copy(self) -> RunReader:
        """Return a reader at the same place. What was truncated is shared: its keys are hashes of content."""
        other = copy(self)
        other._results = dict(self._results)  # noqa: SLF001 - of the same class
        return other

    def take(self, event: Event) -> ReadEvent:
        """Read the next event.

        Raises:
            ChainBroken: An event before it is missing.
        """
        seq = self.seq + 1
        if event.seq != seq:
            raise ChainBroken(f"event {seq} of run `{event.run_id}` is missing")
        body, before = decode(event), self._state
        self.seq, self._state = seq, apply(before, body, event.ts)
        self._note(body, before)
        read = ReadEvent(event, body, before, self._state, self._turn)
        if isinstance(body, _OUTCOMES) and body.result is not None and read.follows_turn:
            self._results[body.call] = body.result
        return read

    def _note(self, body: Body, before: RunState) -> None:
        turn = self._turn
        match body:
            case kinds.PhaseStarted():
                self._before_visit, self._results, self._ordered, self._checked = before, {}, 0, None
            case kinds.ConditionsChecked():
                self._checked = body
            case kinds.ContextBudgetApplied():
                self._handoff = body
            case kinds.FrameBuilt():
                self._begin_turn(body)
            case kinds.LlmRequested() if turn is not None and turn.answer is None:
                self._turn = turn._replace(request=body)
            case kinds.LlmResponded() if turn is not None and turn.answer is None:
                self._turn = turn._replace(answer=body, answer_seq=self.seq)
            case kinds.ContentTruncated(name=call, part=part):
                self._truncated[part] = body.content
                if call in self._results:
                    self._results[call] = part

    def _begin_turn(self, frame: kinds.FrameBuilt) -> None:
        self._results = _in_call_order(self._results, self._ordered)
        self._ordered = len(self._results)
        self._truncated |= {one.part: one.content for one in (frame.budget.truncated if frame.budget else ())}
        self._turn = RecordedTurn(
            self.seq,
            frame,
            self._before_visit,
            self._state,
            tuple(self._results.values()),
            self._handoff,
            self._truncated,
            checked=self._checked,
        )


def read_run(events: Iterable[Event]) -> Iterator[ReadEvent]:
    """Yield the events of a run from its first one on.

    Raises:
        ChainBroken: An event is missing.
    """
    return map(RunReader().take, events)


def _in_call_order(results: dict[str, str], ordered: int) -> dict[str, str]:
    """Return the results of a visit with those of its last turn in the order of the calls, of which they end in any.

    The first `ordered` ones are of earlier turns.
    """
    calls = [*results]
    if len(calls) - ordered > 1:
        calls[ordered:] = sorted(calls[ordered:], key=lambda call: (len(call), call))
    return {call: results[call] for call in calls}


def turn_at(run_id: str, events: Iterable[Event], seq: int | None) -> RecordedTurn:
    """Return the turn of an event, or the last one before it; by default the last turn of the run.

    Raises:
        RunNotFound: The run has no event `seq`, or no turn at or before it.
    """
    found: RecordedTurn | None = None
    last = 0
    for read in read_run(events):
        last = read.event.seq
        if seq is not None and read.turn is not None and read.turn.seq > seq:
            break
        found = read.turn
    if seq is not None and seq > last:
        raise RunNotFound(f"run `{run_id}` has no event {seq}", hint=f"The last event of the run is {last}.")
    if found is None:
        raise RunNotFound(
            f"run `{run_id}` has no frame{'' if seq is None else f' at or before event {seq}'}",
            hint="The first frame is recorded by the first `frame_built` event.",
        )
    return found
