"""What every command does that drives a run: show its progress, ask who is there, tell its end, and heed Ctrl-C."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from reyn.cli.interrupts import INTERRUPTED, Interrupts
from reyn.cli.output import as_typed, lasted, print_json, tell_result
from reyn.cli.progress import Progress
from reyn.cli.project import look_at_project
from reyn.errors import RunNotResumable

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from reyn.cli.people import TerminalPeople
    from reyn.runtime import RunResult, SyncRuntime

no_input_option = click.option(
    "--no-input", is_flag=True, help="Ask nobody: a question stops the run, to be answered later."
)


def drive(
    work: Callable[[SyncRuntime, Progress], RunResult],
    *,
    as_json: bool,
    no_input: bool,
    opening: Callable[..., AbstractContextManager[SyncRuntime]] = look_at_project,
    **settings: Any,
) -> int:
    """Do the work with progress shown, tell its result; the exit code of the run's state."""
    people = None if no_input else _people()
    with opening(people=people, **settings) as runtime:
        progress = Progress(runtime, err=as_json, people=people)
        if people is not None:
            people.hush = progress.pause
        with Interrupts(runtime.interrupt) as interrupts:
            try:
                result = work(runtime, progress)
                progress.introduce(result.run_id)
            except (asyncio.CancelledError, KeyboardInterrupt):
                progress.pause()
                return _interrupted(runtime, progress, interrupts, as_json=as_json)
            finally:
                progress.pause()
        return tell(runtime, result, took=lasted(progress.took), as_json=as_json)


def _people() -> TerminalPeople | None:
    """Whoever sits at the terminal."""
    from reyn.cli.people import TerminalPeople, is_somebody_there

    return TerminalPeople() if is_somebody_there() else None


def tell(runtime: SyncRuntime, result: RunResult, *, took: str, as_json: bool) -> int:
    if as_json:
        print_json(result)
    else:
        command = runtime.command_for(runtime.find(result.run_id))
        tell_result(result, took=took, files=runtime.touched(result.run_id), command=command)
    return result.exit_code


def _interrupted(runtime: SyncRuntime, progress: Progress, interrupts: Interrupts, *, as_json: bool) -> int:
    """What was recorded stays; a second Ctrl-C soon after takes the run back for good."""
    run = progress.run_id
    if not run or runtime.runtime.journal.find(run) is None:
        return INTERRUPTED
    command = as_typed(f"reyn resume {run}")
    click.echo(f"interrupted; nothing is lost. Next: {command} (Ctrl-C again cancels the run for good)", err=True)
    if not interrupts.is_twice():
        if as_json:
            print_json(runtime.result(run))
        return INTERRUPTED
    with suppress(RunNotResumable):  # it was over already
        runtime.cancel(run, "Ctrl-C twice")
    result = runtime.result(run)
    told = tell(runtime, result, took=lasted(progress.took), as_json=as_json)
    return INTERRUPTED if result.status == "running" else told
