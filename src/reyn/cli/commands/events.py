"""`reyn events`."""

from __future__ import annotations

import click

from reyn.cli.output import json_option, print_json, time_of
from reyn.cli.project import look_at_project


@click.command(epilog="Example: reyn events 20260704T120000-k3m9qxdt --kind llm_responded --json")
@click.argument("run")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only events of this kind; may be repeated.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Only events after this one.")
@json_option
def command(run: str, kinds: tuple[str, ...], after: int, as_json: bool) -> None:
    """Print the events of RUN, one a line. RUN may be the beginning of an id."""
    with look_at_project() as runtime:
        for event in runtime.events(run, after):
            if kinds and event.kind not in kinds:
                continue
            if as_json:
                print_json(event.as_json())
            else:
                click.echo(f"{event.seq:>6}  {time_of(event.ts)}  {event.kind:<16}  {event.raw.decode()}")
