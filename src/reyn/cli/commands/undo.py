"""`reyn undo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import open_existing_project

if TYPE_CHECKING:
    from reyn.runs.run_files import UntrackedOp


@click.command(epilog="Example: reyn undo order-17 --dry-run")
@click.argument("run")
@click.option("--dry-run", is_flag=True, help="Print the changes without making them.")
@json_option
def command(run: str, dry_run: bool, as_json: bool) -> int:
    """Restore the files that RUN and its sub-runs changed, and delete those they created.

    RUN is an id or a unique prefix. Files that another program changed since, and files that the run may not write by
    today's permissions, are skipped, and the exit code is 1. Changes that Reyn does not record (of shell commands,
    tools and unsafe Python) stay; the ops that may have made some are listed.
    """
    with open_existing_project() as runtime:
        report = runtime.runs.undo(run, dry_run=dry_run)
    if as_json:
        print_json(report)
        return 1 if report.left or report.denied else 0
    restored, deleted, skipped = ("would restore", "would delete", "would skip") if dry_run else _DONE
    for path in report.restored:
        click.echo(f"{deleted if path in report.deleted else restored} {clean(path)}")
    for path in report.left:
        click.echo(f"{skipped} {clean(path)}: changed since the run")
    for verdict in report.denied:
        click.echo(f"{skipped} {clean(verdict.path)}: denied ({clean(verdict.rule)}): {clean(verdict.reason)}")
    for op in report.untracked:
        click.echo(f"not undone: {_described(op)}")
    if not report.restored and not report.left and not report.denied:
        click.echo(f"{report.run_id}: nothing to undo")
    return 1 if report.left or report.denied else 0


_DONE = ("restored", "deleted", "skipped")
_MAX_ARGUMENTS = 200


def _described(op: UntrackedOp) -> str:
    """Return the files that an op changed, or what it was called with."""
    if op.paths:
        return f"{clean(', '.join(op.paths))}: changed by `{clean(op.op)}`, content not recorded"
    args = op.args if len(op.args) <= _MAX_ARGUMENTS else f"{op.args[:_MAX_ARGUMENTS]}…"
    return f"`{clean(op.op)}` {clean(args)}: Reyn does not record what it changes"
