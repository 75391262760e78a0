"""`reyn verify`."""

from __future__ import annotations

import click

from reyn.cli.output import json_option, print_json
from reyn.cli.project import look_at_project


@click.command(epilog="Example: reyn verify 20260704T120000-k3m9qxdt")
@click.argument("run")
@json_option
def command(run: str, as_json: bool) -> None:
    """Check the hashes of all events of RUN and of the contents that they refer to.

    The first one that is damaged or missing is named, with exit code 1.
    """
    with look_at_project() as runtime:
        report = runtime.verify(run)
    if as_json:
        print_json(report)
    else:
        click.echo(f"{report.run_id}: OK ({report.events} events, {report.blobs} blobs)")
        click.echo(f"head {report.head}")
