"""What happens between a visit that failed and the next one: the wait before it is repeated, or the handler."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal import canonical, kinds
from reyn.kernel.visit.skill_state import change_of
from reyn.kernel.visit.visit_end import store_artifact
from reyn.kernel.visit.waits import ask_person, question_id
from reyn.skills.error_settings import NODE_ERROR

if TYPE_CHECKING:
    from reyn.kernel.core.effects import Effect
    from reyn.kernel.core.errors_of_nodes import HandleError
    from reyn.kernel.core.run_orchestrator import Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.run_context import RunContext

NOW = "now"
"""The reply that ends the wait before a repetition."""


async def after_wait(visit: Coroutine[Effect[Any], Any, None], entry: Visit, tape: Tape) -> None:
    """Repeat a visit when the time has come, or as soon as a person says so. A kill does not end it."""
    try:
        at = tape.ts + entry.wait_ms * 1_000
        seconds = f"{entry.wait_ms / 1_000:g} s"
        message = f"`{entry.phase}` failed and is visited again after {seconds} (repetition {entry.attempt})"
        key = question_id(f"{entry.step}.{kinds.RETRY}", tape)
        await ask_person(key, message, {"enum": [NOW]}, tape, reason=kinds.RETRY, suggestions=(NOW,), expires_at=at)
        await visit
    finally:
        visit.close()


async def hand_to(run: RunContext, move: HandleError, tape: Tape) -> None:
    """Store the error as an artifact, and go on at its handler."""
    given = msgspec.json.decode(tape.content(move.input.hash))
    data = {
        "error": move.error,
        "message": move.reason,
        "code": move.code,
        "node": move.phase,
        "attempts": move.attempts,
        "input": {"type": given["type"], "data": given["data"]},
    }
    artifact = {"type": NODE_ERROR, "data": data}
    change = change_of(run, artifact, tape) if run.skill.state else None
    reference = store_artifact(artifact, tape, canonical(artifact), change)
    tape.emit(kinds.ErrorHandled(move.phase, move.error, move.to, reference))
