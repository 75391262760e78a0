"""`reyn replay`."""

from __future__ import annotations

import click

from reyn.cli.output import json_option, print_json
from reyn.cli.project import open_existing_project


@click.command(epilog="Example: reyn replay order-17")
@click.argument("run")
@json_option
def command(run: str, as_json: bool) -> None:
    """Re-execute RUN from its recorded inputs and compare the hash of every event.

    Calls no model and writes nothing. The exit code is 1 if an event differs; the error names the first one.
    """
    with open_existing_project() as runtime:
        report = runtime.runs.replay(run)
    if as_json:
        print_json(report)
        return
    derived = report.events - report.inherited
    click.echo(f"{report.run_id}: replayed {derived} of {report.events} events, no differences")
    if report.inherited:
        click.echo(f"  {report.inherited} inherited events use an unsupported rules version; verified only")
    if report.reworded:
        events = "1 event has" if report.reworded == 1 else f"{report.reworded} events have"
        click.echo(f"  {events} another wording; derived texts were not compared")
    for kind in report.missing_ops:
        click.echo(f"  op `{kind}` is not installed; its recorded results were used")
