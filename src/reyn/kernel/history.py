"""The visits of a run so far: counts, path, trail, repeated decisions, handoffs. Values and their rules, no I/O.

Everything here is bounded in size, so that the cost of a visit does not grow with the run. `run_state` decides when
each rule applies.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from reyn.context.frame import PATH_LENGTH
from reyn.journal import kinds
from reyn.kernel.conversations import Conversation

K = TypeVar("K")
V = TypeVar("V")
TRAIL_LENGTH = PATH_LENGTH
"""The number of completed visits that a rollback can return to."""
MAX_DECISIONS = 40
"""The number of recent inputs of phases for which repeated decisions are found."""
MAX_OUTCOMES = 5
"""The number of recent decisions for one input."""


class CompletedVisit(msgspec.Struct, frozen=True):
    phase: str
    input: kinds.ArtifactRef
    artifact: kinds.ArtifactRef
    latest: dict[str, str]
    """The latest artifacts when the visit started."""
    handoffs: dict[str, str]
    """The handoffs when the visit started."""
    conversations: dict[str, Conversation] = {}
    """The transcripts when the visit started."""


class Decision(msgspec.Struct, frozen=True):
    """What a visit decided. `artifact` is a hash; `ops` is the digest of the visit's ops and their results."""

    next_phase: str | None
    artifact: str
    ops: str


class History(msgspec.Struct, frozen=True):
    """The visits so far."""

    visits: dict[str, int] = {}
    """The number of visits, by phase."""
    path: tuple[str, ...] = ()
    """The last phases entered."""
    trail: tuple[CompletedVisit, ...] = ()
    total_steps: int = 0
    latest: dict[str, str] = {}
    """The hash of the latest artifact of each type; the run's input counts."""
    decisions: dict[tuple[str, str], dict[Decision, int]] = {}
    """How often each of the last decisions was made, by phase and hash of its input."""
    repeats: int = 0
    """How often the decision of the last visit was made, until the next visit starts."""
    handoffs: dict[str, str] = {}
    """The hash of the handoff of each phase that left one, the latest last."""

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
            path=(*self.path, phase)[-PATH_LENGTH:],
            total_steps=self.total_steps + 1,
        )

    def with_artifact(self, artifact: kinds.ArtifactRef) -> History:
        """Make an artifact the latest of its type."""
        return replace(self, latest={**self.latest, artifact.type: artifact.hash})

    def with_handoff(self, phase: str, handoff: str) -> History:
        """Add the handoff of a phase; a phase that left one before moves to the end."""
        before = {name: one for name, one in self.handoffs.items() if name != phase}
        return replace(self, handoffs={**before, phase: handoff})

    def with_decision(
        self, completed: CompletedVisit, next_phase: str | None, ops: str, *, is_answered: bool
    ) -> History:
        """Add a visit to the trail, and count how often the same decision was made.

        Args:
            completed: The visit.
            next_phase: The phase that it chose.
            ops: The digest of its ops and their results.
            is_answered: Whether a user answered a question in it. That is progress, whatever the model made of it.
        """
        trail = (*self.trail, completed)[-TRAIL_LENGTH:]
        if is_answered:
            return replace(self, trail=trail)
        key = (completed.phase, completed.input.hash)
        decision = Decision(next_phase, completed.artifact.hash, ops)
        made = self.decisions.get(key, {})
        count = made.get(decision, 0) + 1
        outcomes = with_latest(made, decision, count, MAX_OUTCOMES)
        decisions = with_latest(self.decisions, key, outcomes, MAX_DECISIONS)
        return replace(self, trail=trail, decisions=decisions, repeats=count)

    def without_decisions(self) -> History:
        """Forget repetitions: another model, skill or input may decide differently."""
        return replace(self, decisions={}, repeats=0)

    def rolled_back(self) -> History:
        """Return to the previous visit, with the artifacts and handoffs that it could read."""
        if not self.trail:
            return self
        before = self.trail[-1]
        return replace(self, trail=self.trail[:-1], latest=before.latest, handoffs=before.handoffs)


def with_latest(table: dict[K, V], key: K, value: V, limit: int) -> dict[K, V]:
    """Return a table with one more entry, or a newer one, without the oldest entry beyond the limit."""
    table = {**table}
    table.pop(key, None)
    table[key] = value
    if len(table) > limit:
        del table[next(iter(table))]
    return table
