"""The caps of a run: how large each is now, and whether one is reached. A cap stops a run, it never ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from reyn.journal import kinds
from reyn.kernel.effects import Pause

if TYPE_CHECKING:
    from reyn.config import Limits, RunSettings
    from reyn.kernel.run_state import RunState
    from reyn.kernel.tape import Tape

SECOND = 1_000_000
UNLIMITED = 1_000_000
"""Act turns where the cap was taken away."""


def limit_of(state: RunState, settings: RunSettings, name: str) -> int | None:
    """A cap as it was set or last raised."""
    if name in state.raised:
        return state.raised[name]
    value: int | None = getattr(settings.limits, name)
    return value


def limit_reached(state: RunState, settings: RunSettings) -> kinds.LimitReached | None:
    """The cap that keeps a visit from asking the model once more. Time is the time of events, never the clock's."""
    caps = settings.limits
    if not state.raised and caps.tokens is None and caps.run_seconds is None and caps.phase_seconds is None:
        return None
    used = {
        "tokens": (state.models.usage.total, "tokens were used"),
        "run_seconds": (state.active // SECOND, "seconds were spent on the run"),
        "phase_seconds": ((state.active - state.visit.started_after) // SECOND, "seconds were spent on the visit"),
    }
    for name, (amount, words) in used.items():
        cap = limit_of(state, settings, name)
        if cap is not None and amount >= cap:
            reason = f"phase `{state.phase}`: {amount} {words}, and `{name}` is {cap}"
            return kinds.LimitReached(name, cap, state.phase, reason)
    return None


async def within_limits(tape: Tape, settings: RunSettings) -> None:
    """Stop the run while a cap is reached; continue once it is raised."""
    while (stop := limit_reached(tape.state, settings)) is not None:
        tape.emit(stop)
        await Pause()


def act_turns(state: RunState, settings: RunSettings, of_phase: int) -> int:
    """How many act turns a visit may take: what the phase allows, within the operator's cap; a raised cap is both."""
    if "max_act_turns" in state.raised:
        raised = state.raised["max_act_turns"]
        return UNLIMITED if raised is None else raised
    cap = settings.limits.max_act_turns
    return of_phase if cap is None else min(cap, of_phase)


def nested(state: RunState, settings: RunSettings) -> RunSettings:
    """The settings of a sub-run: of what is shared, it gets what is left."""
    names = ("max_phase_visits", "max_act_turns", "phase_seconds", "run_seconds", "tokens")
    caps = {name: limit_of(state, settings, name) for name in names}
    spent = {"run_seconds": state.active // SECOND, "tokens": state.models.usage.total}
    for name, amount in spent.items():
        cap = caps[name]
        caps[name] = None if cap is None else max(0, cap - amount)
    return replace(settings, limits=replace(settings.limits, **caps))


def raises_for(above: RunState, child: RunState, child_settings: RunSettings, allowed: Limits) -> dict[str, int | None]:
    """Which caps of a sub-run are smaller than what it is allowed now. A phase's own cap on act turns is raised for it
    as it was raised above."""
    found: dict[str, int | None] = {}
    act = above.raised.get("max_act_turns", 0)
    if "max_act_turns" in above.raised and child.raised.get("max_act_turns", 0) != act:
        found["max_act_turns"] = act
    for name in ("max_phase_visits", "phase_seconds", "run_seconds", "tokens"):
        cap, now = limit_of(child, child_settings, name), getattr(allowed, name)
        if cap is not None and (now is None or now > cap):
            found[name] = now
    return found
