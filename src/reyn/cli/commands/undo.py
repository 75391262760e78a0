"""`reyn undo`."""

from __future__ import annotations

import click

from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import look_at_project


@click.command(epilog="Example: reyn undo 20260704T120000-k3m9qxdt --dry-run")
@click.argument("run")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@json_option
def command(run: str, dry_run: bool, as_json: bool) -> int:
    """Restore the files that RUN and its sub-runs changed. RUN may be the beginning of an id.

    A file that was changed since by anything else is left as it is; then the exit code is 1.
    """
    with look_at_project() as runtime:
        report = runtime.undo(run, dry_run=dry_run)
    if as_json:
        print_json(report)
        return 1 if report.left else 0
    for path in report.restored:
        click.echo(f"{'would restore' if dry_run else 'restored'} {clean(path)}")
    for path in report.left:
        click.echo(f"{'would leave' if dry_run else 'left'} {clean(path)}: somebody changed it since")
    if not report.restored and not report.left:
        click.echo(f"{report.run_id} has no changes to undo")
    return 1 if report.left else 0
