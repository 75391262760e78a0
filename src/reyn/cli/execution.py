"""Shared by all commands that execute a run: progress, questions at the terminal, the result, Ctrl-C."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from reyn.cli.interrupts import INTERRUPTED, Interrupts
from reyn.cli.output import lasted, print_json, print_result, reyn_command
from reyn.cli.progress import Progress
from reyn.cli.project import look_at_project
from reyn.errors import RunNotResumable

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from reyn.cli.people import TerminalPeople
    from reyn.runtime import RunResult, SyncRuntime

no_input_option = click.option(
    "--no-input", is_flag=True, help="Do not ask at the terminal: a question stops the run, to be answered later."
)


def drive(
    work: Callable[[SyncRuntime, Progress], RunResult | None],
    *,
    as_json: bool,
    no_input: bool,
    opening: Callable[..., AbstractContextManager[SyncRuntime]] = look_at_project,
    **settings: Any,
) -> int:
    """Execute a run with progress, print its result and return the exit code of its status.

    Args:
        work: Executes the run. It returns nothing if it executed none and printed why.
        as_json: Print the result as JSON.
        no_input: Do not ask questions at the terminal.
        opening: Opens the project.
        settings: Keys of the configuration to override.
    """
    people = None if no_input else _people()
    with opening(people=people, **settings) as runtime:
        progress = Progress(runtime, err=as_json, people=people)
        if people is not None:
            people.before_output = progress.pause
        with Interrupts(runtime.interrupt) as interrupts:
            try:
                result = work(runtime, progress)
                if result is None:
                    return 0
                progress.introduce(result.run_id)
            except (asyncio.CancelledError, KeyboardInterrupt):
                progress.pause()
                return _interrupted(runtime, progress, interrupts, as_json=as_json)
            finally:
                progress.pause()
        return _report(runtime, result, took=lasted(progress.took), as_json=as_json)


def _people() -> TerminalPeople | None:
    from reyn.cli.people import TerminalPeople, is_attended

    return TerminalPeople() if is_attended() else None


def _report(runtime: SyncRuntime, result: RunResult, *, took: str, as_json: bool) -> int:
    if as_json:
        print_json(result)
    else:
        action = runtime.next_action(runtime.find(result.run_id))
        print_result(result, took=took, files=runtime.touched(result.run_id), action=action)
    return result.exit_code


def _interrupted(runtime: SyncRuntime, progress: Progress, interrupts: Interrupts, *, as_json: bool) -> int:
    """Report an interrupted run; cancel it if Ctrl-C is pressed again soon."""
    run = progress.run_id
    if not run or not runtime.is_recorded(run):
        return INTERRUPTED
    command = reyn_command("resume", run)
    click.echo(f"interrupted; nothing is lost. Next: {command} (Ctrl-C again cancels the run for good)", err=True)
    if not interrupts.is_twice():
        if as_json:
            print_json(runtime.result(run))
        return INTERRUPTED
    with suppress(RunNotResumable):  # it has ended already
        runtime.cancel(run, "Ctrl-C twice")
    result = runtime.result(run)
    exit_code = _report(runtime, result, took=lasted(progress.took), as_json=as_json)
    return INTERRUPTED if result.status == "running" else exit_code
