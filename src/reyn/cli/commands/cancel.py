"""`reyn cancel`."""

from __future__ import annotations

import click

from reyn.cli.output import coloured, json_option, print_json, print_next
from reyn.cli.project import open_existing_project


@click.command(epilog="Example: reyn cancel order-17 --reason 'wrong input'")
@click.argument("run")
@click.option("--reason", default="", metavar="TEXT", help="Reason to record in the journal.")
@json_option
def command(run: str, reason: str, as_json: bool) -> None:
    """Cancel RUN and its sub-runs. RUN is an id or a unique prefix.

    A process that executes the run stops before its next step. Files stay as they are; `reyn undo` restores them.
    """
    with open_existing_project() as runtime:
        run_id = runtime.runs.find(run).run_id
        runtime.cancel(run_id, reason)
        row = runtime.runs.find(run_id)
        action = runtime.runs.next_action(row)
    is_cancelled = row.status == "cancelled"
    if as_json:
        print_json({"run_id": run_id, "status": row.status, "is_cancelled": is_cancelled})
    elif is_cancelled:
        click.echo(f"{run_id}: {coloured('cancelled')}")
        print_next(action)
    else:
        click.echo(f"{run_id}: cancelling; another process executes the run and stops before its next step")
