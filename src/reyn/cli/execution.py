"""Shared by all commands that execute a run: progress, streamed text, questions at the terminal, result, Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.cli.interrupts import EXIT_INTERRUPTED, Interrupts
from reyn.cli.output import command_line, result_as_json, result_lines
from reyn.cli.people import TerminalPeople
from reyn.cli.progress import Progress
from reyn.cli.project import ask_for_trust, open_existing_project
from reyn.cli.writer import Report, is_attended, out, wants_json
from reyn.errors import NextAction, RunNotResumable

if TYPE_CHECKING:
    from reyn.runtime import RunResult, SyncRuntime


def execute(
    work: Callable[[SyncRuntime, Progress], RunResult | Report],
    *,
    no_input: bool,
    stream: bool,
    opening: Callable[..., SyncRuntime] = open_existing_project,
    **settings: Any,
) -> Report | int:
    """Execute a run with progress; return its result with the exit code of its status.

    With `--json`, progress goes to standard error.

    Args:
        work: Executes the run. It returns a report if it executed none.
        no_input: Do not ask questions at the terminal.
        stream: Print the model's text as it arrives.
        opening: Opens the project.
        settings: Keys of the configuration to override.
    """
    people = TerminalPeople() if not no_input and is_attended() else None
    if people is not None:
        ask_for_trust()
    runtime = opening(people=people, **settings)
    progress = Progress(runtime, err=wants_json(), people=people, stream=stream)
    if people is not None:
        people.before_output = progress.pause
        people.draft_of = partial(_draft_of, runtime)
    with Interrupts(runtime.interrupt) as interrupts:
        try:
            progress.start()
            result = work(runtime, progress)
            if isinstance(result, Report):
                return result
            progress.introduce(result.run_id)
        except (asyncio.CancelledError, KeyboardInterrupt):
            progress.pause()
            return _interrupted(runtime, progress, interrupts)
        finally:
            progress.pause()
    return report_result(runtime, result, progress)


def _draft_of(runtime: SyncRuntime, run: str) -> dict[str, Any] | None:
    question = runtime.runs.open_question(runtime.runs.find(run))
    return runtime.runs.edit_draft(question) if question is not None else None


def report_result(runtime: SyncRuntime, result: RunResult, progress: Progress) -> Report:
    """Return the report of a result, after the progress of its run."""
    from reyn.runs.event_lines import duration

    if wants_json():
        progress.read_visits(result.run_id)
        return Report(result_as_json(result) | {"visits": progress.visits}, code=result.exit_code)
    took, action = duration(progress.took), runtime.runs.next_action(runtime.runs.find(result.run_id))
    new = tuple(warning for warning in result.warnings if warning not in progress.warned)
    files, is_complete = runtime.runs.changed_files(result.run_id), progress.is_usage_complete(result)
    shown = msgspec.structs.replace(result, warnings=new)
    lines = result_lines(shown, took=took, is_complete=is_complete, files=files, action=action)
    return Report(None, lines, result.exit_code)


def _interrupted(runtime: SyncRuntime, progress: Progress, interrupts: Interrupts) -> Report | int:
    """Report an interrupted run; cancel it if Ctrl-C is pressed again soon."""
    run = progress.run_id
    if not run or not runtime.runs.is_recorded(run):
        return EXIT_INTERRUPTED
    out.note("interrupted; the run is saved. Press Ctrl-C again to cancel it.")
    out.note(f"next: {command_line(NextAction('resume', run))}")
    if not interrupts.is_twice():
        return Report(result_as_json(runtime.runs.result(run)), code=EXIT_INTERRUPTED)
    with suppress(RunNotResumable):  # the run has already ended
        runtime.cancel(run, "Ctrl-C twice")
    result = runtime.runs.result(run)
    report = report_result(runtime, result, progress)
    return report._replace(code=EXIT_INTERRUPTED) if result.status == "running" else report
