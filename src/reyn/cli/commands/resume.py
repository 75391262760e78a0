"""`reyn resume`."""

from __future__ import annotations

import click
import msgspec

from reyn.cli.driving import drive, no_input_option
from reyn.cli.output import json_option
from reyn.cli.project import model_name
from reyn.config import Limits
from reyn.errors import LimitUnknown

_LIMITS = ", ".join(field.name for field in msgspec.structs.fields(Limits))


@click.command(epilog="Example: reyn resume 20260704T120000-k3m9qxdt --raise max_phase_visits=50")
@click.argument("run")
@click.option("--retry", is_flag=True, help="Retry what failed.")
@click.option(
    "--raise",
    "raised",
    multiple=True,
    metavar="LIMIT=N",
    help=f"Raise the cap that stopped the run; `none` removes it. LIMIT is one of {_LIMITS}.",
)
@click.option("--model", metavar="MODEL", help="Call another model from here on; the journal records it.")
@click.option("--upgrade", is_flag=True, help="Continue with the current version of the skill, if the run fits it.")
@no_input_option
@json_option
def command(
    run: str, retry: bool, raised: tuple[str, ...], model: str | None, upgrade: bool, no_input: bool, as_json: bool
) -> int:
    """Continue RUN from its last durable event. RUN may be the beginning of an id.

    The run continues with its own copy of the skill and its own settings: editing files never changes an open run.
    """
    limits = dict(_parse_limit(words) for words in raised)
    return drive(
        lambda runtime, progress: runtime.resume(
            run,
            retry=retry,
            raise_limits=limits,
            model=model_name(model),
            upgrade=upgrade,
            listener=progress,
            on_delta=progress.on_delta,
        ),
        as_json=as_json,
        no_input=no_input,
    )


def _parse_limit(words: str) -> tuple[str, int | None]:
    name, _, number = words.partition("=")
    if number == "none":
        return name, None
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        raise LimitUnknown(f"`{words}` is not of the form LIMIT=N")
    return name, int(number)
