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
        return
    derived = report.events - report.inherited
    click.echo(f"{report.run_id}: replayed {derived} of {report.events} events, no differences")
    if report.inherited:
        click.echo(f"  {report.inherited} inherited events follow rules that are not supported; only verified")
    if report.reworded:
        click.echo(f"  {report.reworded} events have another wording; their derived texts were not compared")
    for kind in report.missing_ops:
        click.echo(f"  op `{kind}` is not installed; its recorded results were used")
