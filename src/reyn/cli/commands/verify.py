"""`reyn verify`."""

from __future__ import annotations

import re

import click

from reyn.cli.output import json_option, print_json
from reyn.cli.project import open_existing_project


@click.command(epilog="Example: reyn verify order-17")
@click.argument("run")
@click.option("--head", metavar="HASH", help="Hash of an event of RUN, noted elsewhere, to compare with.")
@json_option
def command(run: str, head: str | None, as_json: bool) -> None:
    """Check the hash chain of RUN and of its sub-runs, and every blob that their events refer to.

    The exit code is 1 if an event or a blob is damaged or missing; the error names the first one. A user who can
    write the journal can compute its hashes: to detect that, store the printed head on another machine and pass it with
    --head later.
    """
    if head is not None and not re.fullmatch(r"[0-9a-f]{64}", head):
        raise click.UsageError(f"--head takes the 64 hexadecimal digits of a hash, not `{head[:80]}`")
    with open_existing_project() as runtime:
        report = runtime.runs.verify(run, head=head)
    if as_json:
        print_json(report)
    else:
        sub_runs = f", {report.sub_runs} sub-run{'s' * (report.sub_runs != 1)}" if report.sub_runs else ""
        click.echo(f"{report.run_id}: OK ({report.events} events, {report.blobs} blobs{sub_runs})")
        click.echo(f"head {report.head}")
        if report.noted_at is not None:
            since = report.events - report.noted_at
            click.echo(
                f"matches the noted hash at event {report.noted_at}" + (f", {since} more since" if since else "")
            )
