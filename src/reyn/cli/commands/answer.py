"""`reyn answer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from reyn.cli.driving import drive, no_input_option
from reyn.cli.output import json_option, print_json, print_next
from reyn.cli.project import look_at_project
from reyn.errors import NextAction

if TYPE_CHECKING:
    from reyn.cli.progress import Progress
    from reyn.runs.questions import PostedAnswer
    from reyn.runtime import RunResult, SyncRuntime


@click.command(epilog="Example: reyn answer 20260704T120000-k3m9qxdt 1.2.1 'in plain words'")
@click.argument("run")
@click.argument("wait")
@click.argument("value")
@click.option("--no-resume", is_flag=True, help="Post the answer only; do not resume the run.")
@no_input_option
@json_option
def command(run: str, wait: str, value: str, no_resume: bool, no_input: bool, as_json: bool) -> int:
    """Answer the question WAIT of RUN with VALUE, then resume the run.

    VALUE is text where the question takes text, else JSON; empty where it may go unanswered. `reyn runs` lists the open
    questions. RUN is the run that asks, or a run above it. If another process executes the run, that one continues with
    the answer.
    """
    if no_resume:
        with look_at_project() as runtime:
            posted = runtime.answer(run, wait, value, is_text=True)
        _report(posted, is_continued=posted.is_claimed, as_json=as_json)
        return 0

    def work(runtime: SyncRuntime, progress: Progress) -> RunResult | None:
        posted = runtime.answer(run, wait, value, is_text=True)
        result = runtime.resume_answered(posted, listener=progress, on_delta=progress.on_delta)
        if result is None:
            _report(posted, is_continued=True, as_json=as_json)
        return result

    return drive(work, as_json=as_json, no_input=no_input)


def _report(posted: PostedAnswer, *, is_continued: bool, as_json: bool) -> None:
    """Report an answer whose run this process does not resume."""
    if as_json:
        goes_on = "elsewhere" if is_continued else "later"
        print_json({"run_id": posted.run_id, "wait": posted.wait_id, "goes_on": goes_on})
        return
    other = "; another process continues the run" if is_continued else ""
    click.echo(f"answered {posted.wait_id} of {posted.run_id}{other}")
    print_next(None if is_continued else NextAction("resume", posted.root_run))
