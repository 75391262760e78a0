"""`reyn frame`."""

from __future__ import annotations

import click

from reyn.cli.output import json_option, print_json
from reyn.cli.project import look_at_project, parse_input, skill_name
from reyn.context import messages_of


@click.command(epilog='Example: reyn frame hello \'{"name": "Ada"}\'')
@click.argument("skill")
@click.argument("input", required=False)
@json_option
def command(skill: str, input: str | None, as_json: bool) -> None:
    """Show what the model would see first of SKILL with INPUT: the exact text of its messages.

    Without INPUT, an empty one stands in its place. With --json, the context frame as one object. Nothing runs and
    nothing is recorded.
    """
    with look_at_project() as runtime:
        frame = runtime.runtime.first_frame(skill_name(skill), parse_input(input))
    if as_json:
        print_json(frame.as_json())
        return
    for role, text in messages_of(frame):
        click.echo(f"[{role}]")
        click.echo(text)
