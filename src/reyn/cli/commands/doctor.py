"""`reyn doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from reyn.cli.commands.runs import in_order
from reyn.cli.output import clean, coloured, command_line, json_option, print_json, short
from reyn.cli.project import look_without_config, project_root
from reyn.errors import JournalError

if TYPE_CHECKING:
    from reyn.cli.checkup import Check

_COLOURS = {"ok": "green", "warning": "yellow", "broken": "red"}


class _Open(msgspec.Struct, frozen=True):
    """A run that has not ended."""

    run_id: str
    standing: str
    reason: str
    next: str


@click.command(epilog="Example: reyn doctor --json")
@json_option
def command(as_json: bool) -> int:
    """Check everything that runs need here, then list every open run with its status and next command.

    Changes nothing. The exit code is 1 if something is broken.
    """
    from reyn.cli.checkup import check_up

    checks = check_up(project_root().resolve())
    try:
        runs = _open_runs()
    except JournalError:  # one of the checks reports it
        runs = []
    is_broken = any(check.health == "broken" for check in checks)
    if as_json:
        print_json({"checks": checks, "runs": runs, "is_broken": is_broken})
        return 1 if is_broken else 0
    for check in checks:
        _print_check(check)
    for run in runs:
        _print_run(run)
    if not runs and not is_broken:
        click.echo("every run is over")
    return 1 if is_broken else 0


def _open_runs() -> list[_Open]:
    """Runs that have not ended, unless their root run has."""
    from reyn.journal import ENDED

    with look_without_config() as runtime:
        rows = [row for row, _ in in_order(runtime.runs()) if row.status not in ENDED]
        rows = [row for row in rows if runtime.root_run(row).status not in ENDED]
        return [
            _Open(row.run_id, runtime.display_status(row), row.reason, command_line(runtime.next_action(row)))
            for row in rows
        ]


def _print_check(check: Check) -> None:
    mark = click.style(f"{check.health:<8}", fg=_COLOURS[check.health])
    click.echo(f"{mark} {check.name:<8} {clean(check.words)}")
    if check.hint:
        click.echo(f"                  {clean(check.hint)}")


def _print_run(run: _Open) -> None:
    click.echo(f"{clean(run.run_id)}  {coloured(run.standing)}{f': {short(run.reason)}' if run.reason else ''}")
    nothing = (
        "driven by a live process; it moves on by itself" if run.standing == "running" else "nothing moves it here"
    )
    click.echo(f"    {f'next: {clean(run.next)}' if run.next else nothing}")
