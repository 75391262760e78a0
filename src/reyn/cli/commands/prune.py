"""`reyn prune`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, cast, get_args

import click

from reyn.cli.ages import Age, now
from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import open_project
from reyn.journal import ENDED, Status

if TYPE_CHECKING:
    from reyn.runs.prune import PruneReport

_DELETABLE = [status for status in get_args(Status) if status != "running"]


@click.command(epilog="Example: reyn prune --older-than 30d --status failed --dry-run")
@click.option("--older-than", type=Age(), metavar="AGE", required=True, help="30m, 2h, 3d, 1w, or a date.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(_DELETABLE),
    metavar="STATUS",
    help=f"Delete runs with this status. May be repeated. One of {', '.join(_DELETABLE)}. Default: {', '.join(ENDED)}.",
)
@click.option("--dry-run", is_flag=True, help="Print the runs without deleting them.")
@json_option
def command(older_than: int, statuses: tuple[str, ...], dry_run: bool, as_json: bool) -> int:
    """Delete runs whose last event is older than AGE, with their sub-runs and workspace folders.

    A run is skipped if a fork continues from it or an unfinished run uses it as its model (`recorded:RUN`). Deleted
    runs cannot be restored; export those that you need with `reyn export` first. The exit code is 1 if a workspace
    folder could not be removed.
    """
    age = timedelta(microseconds=now() - older_than)
    if age < timedelta():
        raise click.BadParameter("the date is in the future", param_hint="--older-than")
    wanted = cast("tuple[Status, ...]", statuses) or ENDED
    # `open_existing_project` reads an empty journal if there is none: every workspace folder would look unused.
    with open_project() as runtime:
        report = runtime.runs.prune(older_than=age, statuses=wanted, dry_run=dry_run)
    if as_json:
        print_json(report)
    else:
        _print(report)
    return 1 if report.left else 0


def _print(report: PruneReport) -> None:
    for run in report.runs:
        click.echo(f"{'would delete' if report.is_dry else 'deleted'} {clean(run)}")
    for run in report.needed:
        click.echo(f"skipped {clean(run)}: another run needs it")
    for folder in report.left:
        click.echo(f"could not remove {clean(folder)}; the next prune tries again")
    verb = "would free" if report.is_dry else "freed"
    runs = f"{len(report.runs)} run{'' if len(report.runs) == 1 else 's'}"
    counts = f"{runs}, {report.events:,} events, {report.blobs:,} blobs"
    click.echo(f"{counts}; {verb} {report.bytes:,} bytes")
