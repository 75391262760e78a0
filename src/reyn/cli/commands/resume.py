"""`reyn resume`."""

from __future__ import annotations

import click

from reyn.cli.driving import drive
from reyn.cli.output import json_option
from reyn.cli.project import model_name, open_project
from reyn.errors import LimitUnknown


@click.command(epilog="Example: reyn resume 20260704T120000-k3m9qxdt --raise max_phase_visits=50")
@click.argument("run")
@click.option("--retry", is_flag=True, help="Try again what failed.")
@click.option("--raise", "raised", multiple=True, metavar="LIMIT=N", help="Raise the cap that stopped the run.")
@click.option("--model", metavar="MODEL", help="Ask another model from here on; the journal records it.")
@json_option
def command(run: str, retry: bool, raised: tuple[str, ...], model: str | None, as_json: bool) -> int:
    """Continue RUN from its last durable event. RUN may be the beginning of an id.

    The run goes on with its own copy of the skill and its own settings: editing files never changes a run in flight.
    """
    limits = dict(_parse_limit(words) for words in raised)
    with open_project() as runtime:
        return drive(
            lambda progress: runtime.resume(
                run, retry=retry, raise_limits=limits, model=model_name(model), listener=progress
            ),
            as_json=as_json,
        )


def _parse_limit(words: str) -> tuple[str, int]:
    name, _, number = words.partition("=")
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        raise LimitUnknown(f"`{words}` is not of the form LIMIT=N")
    return name, int(number)
