"""`reyn replay`."""

from __future__ import annotations

import click

from reyn.cli.output import json_option, print_json
from reyn.cli.project import look_at_project


@click.command(epilog="Example: reyn replay 20260704T120000-k3m9qxdt")
@click.argument("run")
@json_option
def command(run: str, as_json: bool) -> None:
    """Derive RUN again from its recorded inputs and compare the hash of every event.

    Calls no model and writes nothing. The first event that differs is named, with exit code 1.
    """
    with look_at_project() as runtime:
        report = runtime.replay(run)
    if as_json:
        print_json(report)
    else:
        visits = f"{report.visits} visit{'' if report.visits == 1 else 's'}"
        click.echo(f"{report.run_id}: {report.events} events in {visits} derived again, all the same")
