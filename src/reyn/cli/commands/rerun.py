"""`reyn rerun`."""

from __future__ import annotations

import click

from reyn.cli.execution import execute, execution_options
from reyn.cli.project import model_name


@click.command(epilog="Example: reyn rerun order-17 --model scripted:other.jsonl")
@click.argument("run")
@click.option("--model", metavar="MODEL", help="Model to call. Default: the model of RUN.")
@click.option("--upgrade", is_flag=True, help="Use the current version of the skill, not the copy of RUN.")
@click.option("--run-id", metavar="ID", help="Id of the new run.")
@execution_options
def command(
    run: str, model: str | None, upgrade: bool, run_id: str | None, no_input: bool, stream: bool, as_json: bool
) -> int:
    """Start a new run with the input, settings and skill of RUN."""
    return execute(
        lambda runtime, progress: runtime.rerun(
            run, model=model_name(model), upgrade=upgrade, run_id=run_id, listener=progress, on_delta=progress.on_delta
        ),
        as_json=as_json,
        no_input=no_input,
        stream=stream,
    )
