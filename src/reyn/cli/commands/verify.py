"""`reyn verify`."""

from __future__ import annotations

import click

from reyn.cli.output import json_option, print_json
from reyn.cli.project import open_existing_project


@click.command(epilog="Example: reyn verify order-17")
@click.argument("run")
@json_option
def command(run: str, as_json: bool) -> None:
    """Check the hash chain of RUN and every blob that its events refer to.

    The exit code is 1 if an event or a blob is damaged or missing; the error names the first one.
    """
    with open_existing_project() as runtime:
        report = runtime.verify(run)
    if as_json:
        print_json(report)
    else:
        click.echo(f"{report.run_id}: OK ({report.events} events, {report.blobs} blobs)")
        click.echo(f"head {report.head}")
