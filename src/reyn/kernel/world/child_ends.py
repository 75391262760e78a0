"""How a child ended or stopped, as the parent records it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from reyn.errors import error_name_of
from reyn.journal import Event, decode, kinds
from reyn.kernel.world.child_spec import charge_of, is_final
from reyn.vocabulary.error_names import ABORTED, FAILED

if TYPE_CHECKING:
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.world.child_spec import ChildEnd

TASK_STATES: dict[str, kinds.TaskState] = {"finished": "completed", "cancelled": "canceled"}
_MAX_PHASES = 50
"""Visits of a sub-run whose artifacts its parent records."""


def ended_event(
    intent: kinds.ChildStarted, state: kinds.TaskState, error: str, end: ChildEnd | None = None
) -> kinds.ChildEnded:
    """Return the event of an end; without one, the child did not start."""
    body = kinds.ChildEnded(intent.call, intent.type, intent.skill, intent.run, state, error)
    if end is None:
        return body
    ended, charge = end.state, charge_of(end.state.charge)
    return replace(body, usage=ended.usage, answers=ended.models.answers, charge=charge, seq=end.seq, head=end.head)


def stopped_event(intent: kinds.ChildStarted, end: ChildEnd) -> kinds.ChildStopped | None:
    """Return the event of a sub-run that stopped, with which its parent stops; `None` if it ended."""
    state, stop = end.state, end.state.stop
    body = kinds.ChildStopped(intent.call, intent.run, "failed", state.reason, active=end.active)
    match state.status:
        case "failed" if not is_final(state):
            return replace(body, code=stop.code, hint=stop.hint, error_name=stop.error_name)
        case "limited":
            limit, value = stop.limit or ("", 0)
            return replace(body, status="limited", limit=limit, value=value)
        case "waiting":
            return replace(body, status="waiting", wait=state.wait)
    return None


def active_counted(intent: kinds.ChildStarted, tape: Tape) -> int:
    """Return the execution time of a child that its parent has counted, because the child stopped."""
    stops = (decode(event) for event in tape.visit_events if event.kind == kinds.ChildStopped.kind)
    return sum(one.active for one in stops if isinstance(one, kinds.ChildStopped) and one.call == intent.call)


def error_name_in(state: RunState) -> str:
    """Return the name of the error of a sub-run without a result; empty for `failed`."""
    name = (state.stop.error_name or error_name_of(state.stop.code)) if state.status == "failed" else ABORTED
    return "" if name == FAILED else name


def phase_artifacts(events: Iterable[Event]) -> tuple[kinds.PhaseArtifact, ...]:
    """Return the artifacts of the latest visits, in order."""
    found: deque[kinds.PhaseArtifact] = deque(maxlen=_MAX_PHASES)
    stored: kinds.ArtifactRef | None = None
    step = 0
    for event in events:
        if event.kind == kinds.PhaseStarted.kind:
            step += 1
        elif event.kind == kinds.ArtifactStored.kind:
            body = decode(event)
            stored = body.artifact if isinstance(body, kinds.ArtifactStored) else None
        elif event.kind == kinds.PhaseCompleted.kind and stored is not None:
            body = decode(event)
            if isinstance(body, kinds.PhaseCompleted):
                found.append(kinds.PhaseArtifact(body.phase, stored, step))
            stored = None
    return tuple(found)
