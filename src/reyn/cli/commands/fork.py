"""`reyn fork`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from reyn.cli.driving import drive, no_input_option
from reyn.cli.output import json_option
from reyn.cli.project import model_name, parse_input, skill_name

if TYPE_CHECKING:
    from reyn.cli.progress import Progress
    from reyn.runtime import RunResult, SyncRuntime


@click.command(epilog="Example: reyn fork 20260704T120000-k3m9qxdt --at 9 --model scripted:other.jsonl")
@click.argument("run")
@click.option("--at", type=click.IntRange(min=1), metavar="SEQ", help="Go on from this event; else from the last one.")
@click.option("--model", metavar="MODEL", help="Ask another model from there on.")
@click.option("--input", metavar="INPUT", help="Give the phase that comes next another input.")
@click.option("--skill", metavar="SKILL", help="Go on with another skill, or with this one as it is today.")
@click.option("--run-id", metavar="KEY", help="Name the new run.")
@no_input_option
@json_option
def command(
    run: str,
    at: int | None,
    model: str | None,
    input: str | None,
    skill: str | None,
    run_id: str | None,
    no_input: bool,
    as_json: bool,
) -> int:
    """Start another run that goes on from an event of RUN, and drive it. RUN itself stays as it is.

    It goes on from the last place at or before SEQ where RUN stood between two visits, or had just asked its model.
    `reyn show RUN` gives the numbers.
    """
    given = parse_input(input)

    def work(runtime: SyncRuntime, progress: Progress) -> RunResult:
        # Named here, so that a Ctrl-C before the first answer knows which run it left.
        progress.run_id = run_id or _new_id()
        return runtime.fork(
            run,
            at=at,
            model=model_name(model),
            input=given,
            skill=skill_name(skill) if skill else None,
            run_id=progress.run_id,
            listener=progress,
            on_delta=progress.on_delta,
        )

    return drive(work, as_json=as_json, no_input=no_input)


def _new_id() -> str:
    from reyn.kernel.ports import TimedIds

    return TimedIds().new()
