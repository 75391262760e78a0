"""`reyn answer`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from reyn.cli.driving import drive, no_input_option
from reyn.cli.output import json_option, print_json, tell_next
from reyn.cli.project import look_at_project
from reyn.errors import ModelError, RunBusy

if TYPE_CHECKING:
    from reyn.runtime import SyncRuntime

_PATIENCE = 1.0
"""Seconds to see whether whoever drives the run takes the answer, or stops just now."""


@click.command(epilog="Example: reyn answer 20260704T120000-k3m9qxdt 1.2.1 'in plain words'")
@click.argument("run")
@click.argument("wait")
@click.argument("value")
@click.option("--no-resume", is_flag=True, help="Only leave the answer; do not drive the run.")
@no_input_option
@json_option
def command(run: str, wait: str, value: str, no_resume: bool, no_input: bool, as_json: bool) -> int:
    """Answer the question WAIT of RUN with VALUE, then let the run go on.

    VALUE is text where the question takes text, else JSON; empty where it may go unanswered. `reyn runs` lists the open
    questions. RUN is the run that asks, or one above it. If another process drives the run, it goes on there; else it
    goes on here.
    """
    from reyn.runs.family import topmost
    from reyn.runs.questions import read_answer

    with look_at_project() as runtime:
        row = runtime.find(run)
        question = runtime.find_question(row, wait)
        runtime.answer(question.run_id, wait, read_answer(question.wait, value))
        above = topmost(runtime.runtime.journal, row).run_id
        is_driven = _is_driven(runtime, above, wait)
    if not is_driven and not no_resume:
        try:
            return drive(
                lambda runtime, progress: runtime.resume(above, listener=progress, on_delta=progress.on_delta),
                as_json=as_json,
                no_input=no_input,
            )
        except RunBusy:  # somebody was faster, and goes on with the answer
            is_driven = True
        except ModelError as error:
            error.hint = (
                f"The answer is kept. `reyn resume {above} --model MODEL` goes on with it. {error.hint}".strip()
            )
            raise
    goes_on = "elsewhere" if is_driven else "later"
    if as_json:
        print_json({"run_id": question.run_id, "wait": wait, "goes_on": goes_on})
        return 0
    click.echo(f"answered {wait} of {question.run_id}" + ("; it goes on where it is driven" if is_driven else ""))
    tell_next("" if is_driven else f"reyn resume {above}")
    return 0


def _is_driven(runtime: SyncRuntime, run_id: str, wait: str) -> bool:
    """Whether a live driver has the run and has taken the answer, or will."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        is_claimed = runtime.runtime.journal.is_claimed(run_id)  # first: who lets go of the run has taken the answer
        question = runtime.open_question(runtime.find(run_id))
        if question is None or question.wait.id != wait:
            return True
        if not is_claimed:
            return False
        if time.monotonic() > deadline:
            return True
        time.sleep(0.02)
