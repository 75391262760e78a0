"""`reyn runs`."""

from __future__ import annotations

import click
import msgspec

from reyn.cli.output import clean, coloured, json_option, print_json, time_of
from reyn.cli.project import look_at_project


@click.command(epilog="Example: reyn runs --json")
@json_option
def command(as_json: bool) -> None:
    """List the runs of this project, newest first, each with the state it is in."""
    with look_at_project() as runtime:
        rows = [(row, runtime.runtime.standing(row)) for row in runtime.runs()]
    if as_json:
        print_json([msgspec.to_builtins(row) | {"standing": standing} for row, standing in rows])
        return
    if not rows:
        click.echo("no runs yet; `reyn run SKILL` starts one")
    for row, standing in rows:
        line = f"{row.run_id}  {time_of(row.started)}  {row.skill}  {coloured(standing)}"
        at = f" at {row.phase}" if row.status not in ("finished",) and row.phase else ""
        click.echo(f"{line}{at}{f': {clean(row.reason)}' if row.reason else ''}")
