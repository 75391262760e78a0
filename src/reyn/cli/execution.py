"""Shared by all commands that execute a run: progress, streamed text, questions at the terminal, result, Ctrl-C."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from reyn.cli.interrupts import INTERRUPTED, Interrupts
from reyn.cli.output import duration, json_option, print_json, print_result, result_as_json, reyn_command
from reyn.cli.progress import Progress
from reyn.cli.project import open_existing_project
from reyn.cli.trust import ask_for_trust
from reyn.errors import RunNotResumable

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from reyn.cli.people import TerminalPeople
    from reyn.runtime import RunResult, SyncRuntime

    F = TypeVar("F", bound=Callable[..., Any])


def _switch(name: str, text: str) -> Callable[[F], F]:
    """Return an option that allows something for this command; `open_project` reads it."""

    def store(context: click.Context, option: click.Parameter, value: bool) -> None:
        context.ensure_object(dict)[option.name] = value

    return click.option(name, is_flag=True, expose_value=False, callback=store, help=text)


_OPTIONS = (
    _switch("--allow-shell", "Let skills run shell commands that a rule grants."),
    _switch("--allow-unsafe-python", "Let skills run their unsafe python steps with your rights."),
    click.option("--no-input", is_flag=True, help="Do not ask questions at the terminal; the run waits instead."),
    click.option(
        "--stream",
        is_flag=True,
        help="Print the model's text as it arrives. With --json: one JSON object a line, the result last.",
    ),
    json_option,
)


def execution_options(command: F) -> F:
    """Add the options that all of these commands have."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def execute(
    work: Callable[[SyncRuntime, Progress], RunResult | None],
    *,
    as_json: bool,
    no_input: bool,
    stream: bool,
    opening: Callable[..., AbstractContextManager[SyncRuntime]] = open_existing_project,
    **settings: Any,
) -> int:
    """Execute a run with progress, print its result and return the exit code of its status.

    Args:
        work: Executes the run. It returns `None` if it executed none and has printed why.
        as_json: Print the result as JSON; progress goes to standard error.
        no_input: Do not ask questions at the terminal.
        stream: Print the model's text as it arrives.
        opening: Opens the project.
        settings: Keys of the configuration to override.
    """
    people = None if no_input else _terminal_people()
    if people is not None:
        ask_for_trust()
    with opening(people=people, **settings) as runtime:
        progress = Progress(runtime, err=as_json, people=people, stream=stream)
        if people is not None:
            people.before_output = progress.pause
        with Interrupts(runtime.interrupt) as interrupts:
            try:
                progress.start()
                result = work(runtime, progress)
                if result is None:
                    return 0
                progress.introduce(result.run_id)
            except (asyncio.CancelledError, KeyboardInterrupt):
                progress.pause()
                return _report_interrupted(runtime, progress, interrupts, as_json=as_json)
            finally:
                progress.pause()
        return _report(runtime, result, progress, as_json=as_json)


def _terminal_people() -> TerminalPeople | None:
    from reyn.cli.people import TerminalPeople, is_attended

    return TerminalPeople() if is_attended() else None


def _report(runtime: SyncRuntime, result: RunResult, progress: Progress, *, as_json: bool) -> int:
    if as_json:
        print_json(result_as_json(result))
    else:
        took, action = duration(progress.took), runtime.runs.next_action(runtime.runs.find(result.run_id))
        new = tuple(warning for warning in result.warnings if warning not in progress.warned)
        result = msgspec.structs.replace(result, warnings=new)
        files, is_complete = runtime.runs.changed_files(result.run_id), progress.is_usage_complete(result)
        print_result(result, took=took, is_complete=is_complete, files=files, action=action)
    return result.exit_code


def _report_interrupted(runtime: SyncRuntime, progress: Progress, interrupts: Interrupts, *, as_json: bool) -> int:
    """Report an interrupted run; cancel it if Ctrl-C is pressed again soon."""
    run = progress.run_id
    if not run or not runtime.runs.is_recorded(run):
        return INTERRUPTED
    command = reyn_command("resume", run)
    click.echo(f"interrupted; the run is saved. Press Ctrl-C again to cancel it.\nnext: {command}", err=True)
    if not interrupts.is_twice():
        if as_json:
            print_json(result_as_json(runtime.runs.result(run)))
        return INTERRUPTED
    with suppress(RunNotResumable):  # the run has already ended
        runtime.cancel(run, "Ctrl-C twice")
    result = runtime.runs.result(run)
    exit_code = _report(runtime, result, progress, as_json=as_json)
    return INTERRUPTED if result.status == "running" else exit_code
