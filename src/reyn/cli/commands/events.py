"""`reyn events`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from reyn.cli.output import clean, json_option, print_json, time_of
from reyn.cli.project import open_existing_project
from reyn.documents import nearest_hint
from reyn.errors import RunNotFound
from reyn.journal import registry

if TYPE_CHECKING:
    from reyn.runtime import SyncRuntime

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
    width = max(len(kind) for kind, _ in registry.kinds())
    with open_existing_project() as runtime:
        _check_kinds(runtime, run, kinds)
        for event in runtime.runs.events(run, after):
            if kinds and event.kind not in kinds:
                continue
            if as_json:
                print_json(event.as_json())
            else:
                data = clean(event.raw.decode(errors="backslashreplace"))
                click.echo(f"{event.seq:>6}  {time_of(event.ts)}  {event.kind:<{width}}  {data}")


def _check_kinds(runtime: SyncRuntime, run: str, kinds: tuple[str, ...]) -> None:
    """Reject a kind that is neither built in, nor of an installed op, nor in this run."""
    from reyn.ops import standard_ops

    ops = {f"{op}_{suffix}" for op in standard_ops().vocabulary.op_kinds for suffix in ("started", "completed")}
    known = {kind for kind, _ in registry.kinds()} | ops
    if known.issuperset(kinds):
        return
    with suppress(RunNotFound):  # an older kind, or of an op that is not installed
        known |= {event.kind for event in runtime.runs.events(run)}
    for kind in kinds:
        if kind not in known:
            raise click.BadParameter(
                f"no event kind `{kind}`. {nearest_hint(kind, known)}".strip(), param_hint="--kind"
            )
