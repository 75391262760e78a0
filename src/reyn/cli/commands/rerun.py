"""`reyn rerun`."""

from __future__ import annotations

import click

from reyn.cli.driving import drive, no_input_option
from reyn.cli.output import json_option
from reyn.cli.project import model_name


@click.command(epilog="Example: reyn rerun 20260704T120000-k3m9qxdt --model scripted:other.jsonl")
@click.argument("run")
@click.option("--model", metavar="MODEL", help="Call another model.")
@click.option("--upgrade", is_flag=True, help="Use the current version of the skill, not the run's own copy.")
@click.option("--run-id", metavar="KEY", help="Name the new run.")
@no_input_option
@json_option
def command(run: str, model: str | None, upgrade: bool, run_id: str | None, no_input: bool, as_json: bool) -> int:
    """Start a new run with the input, the settings and the skill of RUN, from the beginning."""
    return drive(
        lambda runtime, progress: runtime.rerun(
            run, model=model_name(model), upgrade=upgrade, run_id=run_id, listener=progress, on_delta=progress.on_delta
        ),
        as_json=as_json,
        no_input=no_input,
    )
