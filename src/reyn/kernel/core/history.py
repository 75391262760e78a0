"""The visits of a run so far, as a part of its snapshot: artifacts, handoffs, decisions, what visits did. No I/O."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from reyn.journal import kinds
from reyn.journal.summary import PATH_LENGTH

K = TypeVar("K")
V = TypeVar("V")
StateValues = dict[str, tuple[str, ...] | int | float]
MAX_DONE = 100
"""The ops of discarded visits that a phase is shown, at most. One more is stored, which shows that there were more."""
TRAIL_LENGTH = PATH_LENGTH
"""The number of completed visits that a rollback can return to."""
MAX_DECISIONS = 40
"""The number of recent inputs of phases for which repeated decisions are found."""
MAX_OUTCOMES = 5
"""The number of recent decisions for one input."""
MAX_HANDOFFS = 20
"""The number of handoffs that a phase receives: those of the visits that completed last."""


class Handoffs(msgspec.Struct, frozen=True, gc=False):
    """The handoffs of the visits that left one.

    Attributes:
        latest: Phase and hash of the last ones, in the order of the visits.
        count: How many there were.
    """

    latest: tuple[tuple[str, str], ...] = ()
    count: int = 0

    def added(self, phase: str, handoff: str) -> Handoffs:
        """Return the handoffs with one more."""
        return Handoffs((*self.latest, (phase, handoff))[-MAX_HANDOFFS:], self.count + 1)


NO_HANDOFFS = Handoffs()


class CompletedVisit(msgspec.Struct, frozen=True, gc=False):
    phase: str
    input: kinds.ArtifactRef
    artifact: kinds.ArtifactRef
    latest: dict[str, str]
    """The latest artifacts when the visit started."""
    handoffs: Handoffs
    """The handoffs when the visit started."""
    values: StateValues
    """The lists and sums of the skill's state when the visit started."""
    done: tuple[kinds.DoneOp, ...] = ()
    """Its ops that another visit must not repeat."""
    steps: str | None = None
    """What its steps would not do again, as content."""


class DecisionMade(msgspec.Struct, frozen=True, gc=False):
    """The decision of a visit. `artifact` is a hash; `ops` is the sum of the hashes of the visit's ops and results, and
    of the values that its rules or conditions read."""

    next_phase: str | None
    artifact: str
    ops: int


class History(msgspec.Struct, frozen=True, gc=False):
    """The visits so far."""

    visits: dict[str, int] = {}
    """The number of visits, by phase."""
    trail: tuple[CompletedVisit, ...] = ()
    total_steps: int = 0
    latest: dict[str, str] = {}
    """The hash of the latest artifact of each type; the run's input counts."""
    decisions: dict[tuple[str, str], dict[DecisionMade, int]] = {}
    """How often each of the last decisions was made since the last one that was new, by phase and hash of its input."""
    most_repeats: int = 1
    """The highest of these numbers."""
    repeats: int = 0
    """How often the decision of the last visit was made, until the next visit starts."""
    handoffs: Handoffs = NO_HANDOFFS
    values: StateValues = {}
    """The lists and sums of the skill's state, by name: hashes of artifacts, or a number."""
    done: dict[str, tuple[kinds.DoneOp, ...]] = {}
    """The last ops that must not be repeated, of visits that failed or were rolled back, by phase."""
    steps: dict[str, str] = {}
    """What the steps of such visits completed, as content, by phase; that of the postprocessor by an empty name."""

    def times_decided(self, phase: str, input: str) -> tuple[str | None, int]:
        """Return the next phase of the decision that a phase made most often for an input, and how often."""
        made = self.decisions.get((phase, input))
        if made is None:
            return None, 0
        decision = max(made, key=made.__getitem__)
        return decision.next_phase, made[decision]

    def ordinal(self, phase: str) -> int:
        """Return the rank of a phase by first visit; a phase that was not visited comes next."""
        return next((rank for rank, name in enumerate(self.visits, start=1) if name == phase), len(self.visits) + 1)

    # -- rules ----------------------------------------------------------------------------------------

    def with_visit(self, phase: str) -> History:
        """Enter a phase."""
        return replace(
            self,
            repeats=0,
            visits={**self.visits, phase: self.visits.get(phase, 0) + 1},
            total_steps=self.total_steps + 1,
        )

    def with_artifact(self, artifact: kinds.ArtifactRef) -> History:
        """Make an artifact the latest of its type."""
        return replace(self, latest={**self.latest, artifact.type: artifact.hash})

    def with_state(self, artifact: kinds.ArtifactRef, change: kinds.StateChange) -> History:
        """Add an artifact to the lists and sums of the state that follow its type."""
        values: StateValues = {**self.values, **change.sums}
        for name, count in change.items.items():
            values[name] = (*self.items(name), artifact.hash)[-count:]
        return replace(self, values=values)

    def items(self, name: str) -> tuple[str, ...]:
        """Return the artifacts in a list of the state, by hash."""
        found = self.values.get(name)
        return found if isinstance(found, tuple) else ()

    def sum(self, name: str) -> int | float:
        """Return a sum of the state."""
        found = self.values.get(name)
        return found if isinstance(found, int | float) else 0

    def with_decision(
        self, completed: CompletedVisit, next_phase: str | None, ops: int, *, is_answered: bool
    ) -> History:
        """Add a visit to the trail, and count how often the same decision was made.

        A decision that is new is progress of the run: those of other phases are counted again from there.

        Args:
            completed: The visit.
            next_phase: The phase that it chose.
            ops: The sum of the hashes of its ops, their results and the values that its expressions read.
            is_answered: Whether a user answered a question in it. That is progress, whatever the model made of it.
        """
        trail = (*self.trail, completed)[-TRAIL_LENGTH:]
        key = (completed.phase, completed.input.hash)
        if is_answered:
            return replace(self if self.most_repeats == 1 else self._after_progress(), trail=trail)
        decision = DecisionMade(next_phase, completed.artifact.hash, ops)
        count = self.decisions.get(key, {}).get(decision, 0) + 1
        before = self._after_progress() if count == 1 < self.most_repeats else self
        outcomes = with_latest(before.decisions.get(key, {}), decision, count, MAX_OUTCOMES)
        decisions, most = with_latest(before.decisions, key, outcomes, MAX_DECISIONS), max(before.most_repeats, count)
        return replace(before, trail=trail, decisions=decisions, most_repeats=most, repeats=count)

    def _after_progress(self) -> History:
        """Count repetitions from here: each decision was made once."""
        once = {key: dict.fromkeys(made, 1) for key, made in self.decisions.items()}
        return replace(self, decisions=once, most_repeats=1)

    def without_decisions(self) -> History:
        """Forget repetitions: another model, skill or input may decide differently."""
        return replace(self, decisions={}, most_repeats=1, repeats=0)

    def rolled_back(self) -> History:
        """Return to the previous visit, with the artifacts and handoffs that it could read."""
        if not self.trail:
            return self
        before = self.trail[-1]
        back = replace(
            self, trail=self.trail[:-1], latest=before.latest, handoffs=before.handoffs, values=before.values
        )
        return back.with_done(before.phase, before.done, before.steps)

    def with_done(self, phase: str, done: tuple[kinds.DoneOp, ...], steps: str | None) -> History:
        """Add what a visit of a phase did that does not count as a visit any more."""
        if not done and steps is None:
            return self
        return replace(
            self,
            done={**self.done, phase: _latest((*self.done.get(phase, ()), *done))} if done else self.done,
            steps=self.steps if steps is None else {**self.steps, phase: steps},
        )

    def without_ops(self, phase: str) -> History:
        """Forget the ops of earlier visits of a phase: its next visit has another message to reply to."""
        return replace(self, done={name: done for name, done in self.done.items() if name != phase})

    def without_done(self, phase: str) -> History:
        """Forget what failed visits of a phase did: its next visit is a new one, and does it again."""
        steps = {name: steps for name, steps in self.steps.items() if name != phase}
        return replace(self.without_ops(phase), steps=steps)

    def with_other_work(self, phase: str) -> History:
        """Let what a phase did not count as the work of its later visits: their input is another one."""
        done = tuple(kinds.DoneOp(op.text) for op in self.done.get(phase, ()))
        return replace(self, done={**self.done, phase: done}) if done else self


def _latest(done: tuple[kinds.DoneOp, ...]) -> tuple[kinds.DoneOp, ...]:
    """Return the ops without the oldest beyond the limit, but with the last of each form: it counts as work."""
    excess = len(done) - MAX_DONE - 1
    if excess <= 0:
        return done
    last = {op.form: at for at, op in enumerate(done) if op.form}
    return (*(op for at, op in enumerate(done[:excess]) if last.get(op.form) == at), *done[excess:])


def with_latest(table: dict[K, V], key: K, value: V, limit: int) -> dict[K, V]:
    """Return a table with one more entry, or a newer one, without the oldest entry beyond the limit."""
    table = {**table}
    table.pop(key, None)
    table[key] = value
    if len(table) > limit:
        del table[next(iter(table))]
    return table
