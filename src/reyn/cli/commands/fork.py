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
@click.option(
    "--at", type=click.IntRange(min=1), metavar="SEQ", help="Continue from this event; default: the last one."
)
@click.option("--model", metavar="MODEL", help="Call another model from there on.")
@click.option("--input", metavar="INPUT", help="Replace the input of the next phase.")
@click.option("--skill", metavar="SKILL", help="Continue with another skill, or with the current version of this one.")
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
    """Start a new run that continues from an event of RUN, and execute it. RUN itself stays as it is.

    It continues from the last event at or before SEQ that ends a visit or requests an answer of the model. `reyn show
    RUN` shows the numbers.
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
