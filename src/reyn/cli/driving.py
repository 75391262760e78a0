"""What every command does that drives a run: show its progress, tell its end, and what a Ctrl-C leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from reyn.cli.app import INTERRUPTED
from reyn.cli.output import Progress, print_json, tell_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.kernel import RunResult


def drive(work: Callable[[Progress], RunResult], *, as_json: bool) -> int:
    """Do the work with progress shown, tell its result; the exit code of the run's state."""
    progress = Progress(err=as_json)
    try:
        result = work(progress)
    except KeyboardInterrupt:
        if progress.run_id:
            click.echo(f"interrupted; nothing is lost. Next: reyn resume {progress.run_id}", err=True)
        return INTERRUPTED
    if as_json:
        print_json(result)
    else:
        tell_result(result)
    return result.exit_code
