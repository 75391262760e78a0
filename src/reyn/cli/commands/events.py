"""`reyn events`."""

from __future__ import annotations

import click

from reyn.cli.output import clean, json_option, print_json, time_of
from reyn.cli.project import open_existing_project
from reyn.documents import nearest
from reyn.journal import registry

_MAX_SEQ = 2**62


@click.command(epilog="Example: reyn events order-17 --kind llm_responded --json")
@click.argument("run")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only events of this kind. May be repeated.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Only events after event SEQ.")
@json_option
def command(run: str, kinds: tuple[str, ...], after: int, as_json: bool) -> None:
    """Print the events of RUN, one per line. RUN is an id or a unique prefix."""
    if after > _MAX_SEQ:
        raise click.BadParameter("no run has that many events", param_hint="--after")
    known = {kind for kind, _ in registry.kinds()}
    width = max(map(len, known))
    for kind in kinds:
        if kind not in known:
            raise click.BadParameter(f"no event kind `{kind}`. {nearest(kind, known)}".strip(), param_hint="--kind")
    with open_existing_project() as runtime:
        for event in runtime.events(run, after):
            if kinds and event.kind not in kinds:
                continue
            if as_json:
                print_json(event.as_json())
            else:
                data = clean(event.raw.decode(errors="backslashreplace"))
                click.echo(f"{event.seq:>6}  {time_of(event.ts)}  {event.kind:<{width}}  {data}")
