"""`reyn doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from reyn.cli.ages import now
from reyn.cli.commands.runs import in_order
from reyn.cli.output import clean, coloured, command_line, json_option, print_json, reyn_command, short
from reyn.cli.project import open_without_config, project_root
from reyn.errors import JournalError

if TYPE_CHECKING:
    from reyn.cli.checks import Check
    from reyn.journal import RunRow

_COLOURS = {"ok": "green", "warning": "yellow", "broken": "red"}
_WEEK = 7 * 86_400 * 1_000_000


class _OpenRun(msgspec.Struct, frozen=True):
    """A run that has not ended."""

    run_id: str
    display_status: str
    reason: str
    next: str


@click.command(epilog="Example: reyn doctor --json")
@json_option
def command(as_json: bool) -> int:
    """Check the installation and the project, then list the runs that have not ended, with status and next command.

    A run has ended if it is finished, aborted or cancelled. Failed runs older than a week are only counted. Writes
    nothing. The exit code is 1 if a check is `broken`.
    """
    from reyn.cli.checks import run_checks

    checks = run_checks(project_root().resolve())
    try:
        runs, old_failures = _open_runs()
    except JournalError:  # the journal check reports it
        runs, old_failures = [], 0
    is_broken = any(check.health == "broken" for check in checks)
    if as_json:
        print_json({"checks": checks, "runs": runs, "old_failures": old_failures, "is_broken": is_broken})
        return 1 if is_broken else 0
    for check in checks:
        _print_check(check)
    for run in runs:
        _print_run(run)
    if old_failures:
        noun = "failed run" if old_failures == 1 else "failed runs"
        listing = reyn_command("runs", "--status", "failed")
        pruning = reyn_command("prune", "--older-than", "7d", "--status", "failed")
        click.echo(f"{old_failures} {noun} older than a week; list: {listing}; delete: {pruning}")
    if not runs and not old_failures and not is_broken:
        click.echo("all runs have ended")
    return 1 if is_broken else 0


def _open_runs() -> tuple[list[_OpenRun], int]:
    """Return the runs that have not ended and whose root run has not, and the number of old failed root runs."""
    from reyn.journal import ENDED

    with open_without_config() as runtime:
        rows = [(row, runtime.runs.root_run(row)) for row, _ in in_order(runtime.runs.all()) if row.status not in ENDED]
        rows = [(row, root) for row, root in rows if root.status not in ENDED]
        old_failures = {root.run_id for _, root in rows if _is_old_failure(root)}
        runs = [
            _OpenRun(
                row.run_id, runtime.runs.display_status(row), row.reason, command_line(runtime.runs.next_action(row))
            )
            for row, root in rows
            if root.run_id not in old_failures
        ]
    return runs, len(old_failures)


def _is_old_failure(row: RunRow) -> bool:
    return row.status == "failed" and now() - row.updated > _WEEK


def _print_check(check: Check) -> None:
    mark = click.style(f"{check.health:<8}", fg=_COLOURS[check.health])
    click.echo(f"{mark} {check.name:<8} {clean(check.text)}")
    if check.hint:
        click.echo(f"                  {clean(check.hint)}")


def _print_run(run: _OpenRun) -> None:
    click.echo(f"{clean(run.run_id)}  {coloured(run.display_status)}{f': {short(run.reason)}' if run.reason else ''}")
    if run.next:
        click.echo(f"    next: {clean(run.next)}")
    else:
        click.echo(
            f"    {'another process executes it' if run.display_status == 'running' else 'it cannot continue here'}"
        )
