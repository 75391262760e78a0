"""`reyn show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.cli.output import clean, coloured, json_option, print_json, tell_result, time_of
from reyn.cli.project import look_at_project
from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.journal import Event


@click.command(epilog="Example: reyn show 20260704T120000-k3m9qxdt --json")
@click.argument("run")
@json_option
def command(run: str, as_json: bool) -> None:
    """Tell what RUN did: every visit with its decision, then how it stands. RUN may be the beginning of an id."""
    with look_at_project() as runtime:
        row = runtime.runtime.find(run)
        standing = runtime.runtime.standing(row)
        steps = timeline(runtime.events(row.run_id))
        result = runtime.result(row.run_id)
    if as_json:
        print_json(msgspec.to_builtins(result) | {"skill": row.skill, "standing": standing, "steps": steps})
        return
    click.echo(f"{row.run_id} · {row.skill} · {coloured(standing)} · started {time_of(row.started)} UTC")
    for step in steps:
        _tell_step(step)
    tell_result(result)


def timeline(events: Iterable[Event]) -> list[dict[str, Any]]:
    """One entry a visit, and one for whatever stopped or moved the run in between."""
    steps: list[dict[str, Any]] = []
    visits: list[dict[str, Any]] = []
    entered = 0
    for event in events:
        body = decode(event)
        match body:
            case kinds.PhaseStarted():
                entered = event.ts
                visits.append({"seq": event.seq, "phase": body.phase, "visit": body.visit, "rejected": 0})
                steps.append(visits[-1])
            case kinds.ValidationError():
                visits[-1]["rejected"] += 1
            case kinds.ControlDecided():
                visits[-1] |= {
                    "next": body.next_phase or body.type,
                    "confidence": body.confidence,
                    "reason": body.reason,
                    "seconds": (event.ts - entered) / 1_000_000,
                }
            case _ if body.kind in _BETWEEN:
                steps.append({"seq": event.seq, "event": body.kind} | event.data)
    return steps


_BETWEEN = {
    cls.kind
    for cls in (
        kinds.RunResumed,
        kinds.LimitReached,
        kinds.LimitRaised,
        kinds.LlmFailed,
        kinds.PhaseFailed,
        kinds.RunCancelled,
    )
}


def _tell_step(step: dict[str, Any]) -> None:
    if "event" in step:
        told = ", ".join(f"{key} {clean(str(value))}" for key, value in step.items() if key not in ("seq", "event"))
        click.echo(f"{step['seq']:>6}  · {step['event']} {told}")
        return
    retries = f", {step['rejected']} rejected" if step["rejected"] else ""
    took = f", {step['seconds']:.1f} s" if "seconds" in step else ""
    click.echo(f"{step['seq']:>6}  {step['phase']} (visit {step['visit']}{retries}{took})")
    if "next" in step:
        click.echo(f"          → {step['next']} ({step['confidence']:.2f}) {clean(step['reason'])}")
