"""`reyn cancel`."""

from __future__ import annotations

import click

from reyn.cli.output import coloured, json_option, print_json, print_next
from reyn.cli.project import look_at_project


@click.command(epilog="Example: reyn cancel 20260704T120000-k3m9qxdt --reason 'asked the wrong question'")
@click.argument("run")
@click.option("--reason", default="", metavar="WORDS", help="Why; the journal records it.")
@json_option
def command(run: str, reason: str, as_json: bool) -> None:
    """End RUN and its sub-runs. RUN may be the beginning of an id.

    A process that executes the run ends it before its next step. Files stay as they are: `reyn undo` restores them.
    """
    with look_at_project() as runtime:
        run_id = runtime.find(run).run_id
        runtime.cancel(run_id, reason)
        row = runtime.find(run_id)
        action = runtime.next_action(row)
    is_over = row.status == "cancelled"
    if as_json:
        print_json({"run_id": run_id, "status": row.status, "is_over": is_over})
    elif is_over:
        click.echo(f"{run_id}: {coloured('cancelled')}")
        print_next(action)
    else:
        click.echo(f"{run_id}: another process executes it and ends it before its next step")
