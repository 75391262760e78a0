"""Limits of a run: their current values, and whether one is reached. A limit stops a run and never ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from reyn.config import Limits, RunSettings
from reyn.config.budgets import BUDGET_LIMITS, MESSAGE_LIMITS, money_text
from reyn.journal import kinds
from reyn.journal.summary import SECOND, limit_of
from reyn.kernel.core.effects import Pause
from reyn.skills.values import END

if TYPE_CHECKING:
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.skills import Skill

UNLIMITED = 1_000_000
"""The number of act turns if the cap was removed."""


def limit_reached(state: RunState, settings: RunSettings) -> kinds.LimitReached | None:
    """Return the limit that a run has reached, if any. Time is taken from events, never from the clock."""
    caps = settings.limits
    if not state.raised and caps.tokens is None and caps.run_seconds is None and caps.phase_seconds is None:
        return None
    used = {
        "tokens": (state.usage.total, "tokens used"),
        "run_seconds": (state.active // SECOND, "seconds spent in the run"),
        "phase_seconds": ((state.active - state.visit_start) // SECOND, "seconds spent in the visit"),
    }
    for name, (amount, unit) in used.items():
        cap = limit_of(state, settings, name)
        if cap is not None and amount >= cap:
            reason = f"phase `{state.phase}`: {amount} {unit}; `{name}` is {cap}"
            return kinds.LimitReached(name, cap, state.phase, reason)
    return None


def visits_left(state: RunState, skill: Skill, cap: int | None, phase: str) -> dict[str, int]:
    """Return how often each successor of a phase may still be visited; empty if `cap` does not limit visits.

    The visit of the phase itself counts, whether it has started or is about to start.
    """
    if cap is None:
        return {}
    visits, phases, left = state.history.visits, skill.phases, {}
    for name in skill.graph.get(phase, ()):
        if name != END and (name not in phases or phases[name].conversation is None):
            left[name] = cap - visits.get(name, 0)
    if phase in left and not state.visit.is_open:
        left[phase] -= 1
    return left


def repeated_failure(state: RunState, settings: RunSettings, op: str, times: int) -> kinds.LimitReached | None:
    """Return the limit on repeated failures of the same op, if a visit has reached it."""
    cap = limit_of(state, settings, "no_progress")
    if cap is None or times < cap:
        return None
    reason = f"no progress: phase `{state.phase}` called `{op}` {times} times with the same arguments; it failed"
    return kinds.LimitReached("no_progress", cap, state.phase, reason)


async def within_limits(tape: Tape, settings: RunSettings) -> None:
    """Stop the run if a limit is reached; return once no limit is."""
    while (stop := limit_reached(tape.state, settings)) is not None:
        await Pause(stop=stop)


def refusal_reason(refused: kinds.BudgetRefused, phase: str) -> str:
    """Return why a model call was not made."""

    def amount(value: int) -> str:
        return money_text(value, "") if refused.currency else f"{value:,}"

    unit, verb = (refused.currency, "is") if refused.currency else ("tokens", "are")
    left = max(0, refused.cap - refused.used - refused.reserved)
    interrupted = [holder for holder in refused.holders if holder.interrupted]
    in_progress = refused.reserved - sum(holder.amount for holder in interrupted)
    others = f"; calls in progress reserve {amount(in_progress)} {unit}" if in_progress > 0 else ""
    names = [f"`{holder.run}`" for holder in refused.holders if not holder.interrupted]
    others += f" ({'run' if len(names) == 1 else 'runs'} {', '.join(names)})" if others and names else ""
    for holder in interrupted:
        others += (
            f"; run `{holder.run}` was interrupted during a call, which is charged in full: {amount(holder.amount)} "
            f"{unit} (resuming or cancelling the run settles the call)"
        )
    return (
        f"phase `{phase}`: the next call of `{refused.model}` needs up to {amount(refused.needed)} {unit}, "
        f"but only {amount(left)} of {amount(refused.cap)} {unit} (`{refused.limit}`) {verb} left{others}"
    )


def allowance_reason(reached: kinds.AllowanceReached, phase: str) -> str:
    """Return why a run stopped that led to more than one message, or one start of a run, may lead to."""
    what = {"message_tokens": "tokens were used", "model_calls": "model calls were made"}
    of_message = "the last message or reply of a person"
    of_run = "the start of the run, or the last reply of a person"
    since = f"{reached.count:,} {what.get(reached.limit, 'runs were started')} since "
    since += of_message if reached.limit.startswith("message") else of_run
    return f"phase `{phase}`: {since}; `{reached.limit}` is {reached.cap:,}"


async def within_allowance(tape: Tape) -> None:
    """Stop the run if the last model call used more than its budget allowed; return once that is accepted."""
    while tape.state.over is not None:
        (call, over), allowed = tape.state.over, tape.state.raised.get("overrun", 0)
        if allowed is None or over <= allowed:
            return
        reason = f"phase `{tape.state.phase}`: call {call} used {over:,} tokens more than the model was allowed"
        await Pause(stop=kinds.LimitReached("overrun", allowed, tape.state.phase, reason))


def act_turns(state: RunState, settings: RunSettings, phase_limit: int) -> int:
    """Return how many act turns a visit may take: the smaller of the phase's limit and the configured cap.

    A raised cap replaces both.
    """
    if "max_act_turns" in state.raised:
        raised = state.raised["max_act_turns"]
        return UNLIMITED if raised is None else raised
    cap = settings.limits.max_act_turns
    return phase_limit if cap is None else min(cap, phase_limit)


def sub_run_settings(state: RunState, settings: RunSettings, tokens: int | None = None) -> RunSettings:
    """Return the settings of a sub-run. Its limits on time and tokens are what its parent has left.

    `tokens` is less than that if sub-runs execute together, and share the tokens.
    """
    if tokens is None and not state.raised and settings.limits.tokens is None and settings.limits.run_seconds is None:
        return settings
    caps = {name: limit_of(state, settings, name) for name in Limits.__struct_fields__}
    spent = {"run_seconds": state.active // SECOND, "tokens": state.usage.total}
    for name, amount in spent.items():
        cap = caps[name]
        caps[name] = None if cap is None else max(0, cap - amount)
    if tokens is not None:
        caps["tokens"] = tokens
    return replace(settings, limits=replace(settings.limits, **caps))


def limits_to_raise(
    parent: RunState, child: RunState, child_settings: RunSettings, allowed: Limits, *, lowers: bool
) -> dict[str, int | None]:
    """Return the limits of a child that its parent can now extend, with their new values.

    With `lowers`, also time and tokens of which the parent has less left than before.

    Caps that a phase or a model may set, too, are raised in the sub-run to the value that they were raised to in the
    parent.
    """
    found: dict[str, int | None] = {}
    for name in ("max_act_turns", "max_prompt_tokens", "overrun", *MESSAGE_LIMITS, *BUDGET_LIMITS):
        if name in parent.raised and child.raised.get(name, 0) != parent.raised[name]:
            found[name] = parent.raised[name]
    for name in ("max_phase_visits", "phase_seconds", "run_seconds", "tokens", "no_progress"):
        cap, now = limit_of(child, child_settings, name), getattr(allowed, name)
        is_lower = lowers and name in ("run_seconds", "tokens") and now is not None and (cap is None or now < cap)
        if is_lower or (cap is not None and (now is None or now > cap)):
            found[name] = now
    return found
