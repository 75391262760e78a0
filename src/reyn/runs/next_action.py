"""What moves a run on: its state becomes the words to type next, with the right names and numbers in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.config import RunSettings
from reyn.errors import BlobMissing
from reyn.journal import ENDED
from reyn.kernel.limits import SECOND, limit_of
from reyn.kernel.run_state import RunState, fold
from reyn.kernel.runtime_types import standing
from reyn.runs.family import below, topmost
from reyn.runs.questions import open_question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reyn.journal import Journal, RunRow


def command_for(journal: Journal, row: RunRow) -> str:
    """The command that moves a run on; empty where nothing does, or where whoever drives it will."""
    above = topmost(journal, row)
    if above.run_id != row.run_id:  # a sub-run moves with the run above, and only while that one needs it
        return "" if row.status in ENDED else command_for(journal, above)
    run, is_claimed = row.run_id, journal.is_claimed(row.run_id)
    match standing(row, is_claimed=is_claimed):
        case "aborted" | "cancelled":
            return f"reyn fork {run}"
        case "finished" | "blocked":
            return ""
    question = open_question(journal, row)
    if question is not None and not question.is_answered:
        return f"reyn answer {run} {question.wait.id} VALUE"
    if is_claimed:
        return ""
    match row.status:
        case "failed":
            return f"reyn resume {run} --retry"
        case "limited":
            return f"reyn resume {run} --raise {_larger(journal, run)}"
    return f"reyn resume {run}"


def _larger(journal: Journal, run_id: str) -> str:
    """The cap that stopped a run, as much again beyond what is used."""
    state = fold(journal.read(run_id))
    if state.stop.limit is None:
        return "LIMIT=N"
    name, reached = state.stop.limit
    cap = _cap(journal, state, name) or reached
    under_it = [fold(journal.read(row.run_id)) for row in below(journal, run_id) if row.status not in ENDED]
    return f"{name}={max(cap, reached, _used(name, (state, *under_it))) + max(cap, 1)}"


def _cap(journal: Journal, state: RunState, name: str) -> int | None:
    """The run's own cap: a sub-run stops at what was left of it."""
    assert state.started is not None
    try:
        settings = msgspec.json.decode(journal.blob(state.started.settings), type=RunSettings)
    except (BlobMissing, msgspec.MsgspecError):
        return None
    return limit_of(state, settings, name)


def _used(name: str, states: Sequence[RunState]) -> int:
    """What is used of a cap by a run and the sub-runs under way. Only tokens add up: the time of a sub-run is part of
    the time of the run above."""
    match name:
        case "tokens":
            return sum(state.models.usage.total for state in states)
        case "run_seconds":
            return max(state.active // SECOND for state in states)
        case "phase_seconds":
            return max((state.active - state.visit.started_after) // SECOND for state in states)
    return 0
