"""Events of what the graph of a skill decides without a model: rules, conditions, joins, errors of nodes."""

from __future__ import annotations

from typing import Literal

from reyn.journal.kinds.shapes import ArtifactRef, Count, Scalar
from reyn.journal.registry import Body, event


@event("rule_matched", v=1, origin="derived")
class RuleMatched(Body, frozen=True):
    """A node without a model decided: its rule number `rule` was the first that matched.

    `when` is the condition, empty for `else`; `to` is the next node, or `end`. `read` has the values that the rules up
    to this one could read, by path.
    """

    phase: str
    visit: Count
    rule: Count
    when: str
    to: str
    read: dict[str, Scalar] = {}  # noqa: RUF012 - msgspec copies it


@event("conditions_checked", v=1, origin="derived")
class ConditionsChecked(Body, frozen=True):
    """The conditions on the edges of a phase were evaluated: the model cannot choose the successors in `removed`.

    `read` has the values that the conditions could read, by path.
    """

    phase: str
    visit: Count
    removed: tuple[str, ...] = ()
    read: dict[str, Scalar] = {}  # noqa: RUF012 - msgspec copies it


@event("branches_joined", v=1, origin="derived")
class BranchesJoined(Body, frozen=True):
    """Enough branches of a node have completed, or so many have failed that its join can never be met.

    Of `total` branches, `needed` had to complete. `completed` did before the join was decided, `failed` failed for
    good, `cancelled` were in progress then; the others did not start.
    """

    phase: str
    visit: Count
    verdict: Literal["met", "impossible"]
    total: Count
    needed: Count
    completed: Count
    failed: Count
    cancelled: Count


@event("visit_retried", v=1, origin="derived")
class VisitRetried(Body, frozen=True):
    """A failed visit of `phase` is repeated with the same input, as `retry` of the node says.

    `error` is the name of its error, `attempt` counts the repetitions, of which there are at most `max`. The next visit
    begins `wait_ms` milliseconds after it has started.
    """

    phase: str
    error: str
    attempt: Count
    max: Count
    wait_ms: Count = 0


@event("error_handled", v=1, origin="derived")
class ErrorHandled(Body, frozen=True):
    """A visit of `phase` failed or was aborted, and the run goes on at the node `to`, as `on_error` of the node says.

    `error` is the name of the error. The artifact that was stored before this event arrives at `to`, or is the final
    one if that is `end`.
    """

    phase: str
    error: str
    to: str
    artifact: ArtifactRef
