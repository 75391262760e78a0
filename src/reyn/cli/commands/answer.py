"""`reyn answer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from reyn.cli.execution import execute, execution_options
from reyn.cli.output import print_json, print_next
from reyn.cli.project import open_existing_project
from reyn.errors import NextAction, WaitUnknown

if TYPE_CHECKING:
    from reyn.cli.progress import Progress
    from reyn.runs.questions import PostedAnswer
    from reyn.runtime import RunResult, SyncRuntime


@click.command(epilog="Example: reyn answer order-17 'in plain words'")
@click.argument("run")
@click.argument("wait_and_value", metavar="[QUESTION] VALUE", nargs=-1, required=True)
@click.option("--no-resume", is_flag=True, help="Store the reply, but do not resume the run.")
@execution_options
def command(
    run: str, wait_and_value: tuple[str, ...], no_resume: bool, no_input: bool, stream: bool, as_json: bool
) -> int:
    """Reply to the open question of RUN with VALUE, then resume the run.

    VALUE is text if the question takes text, else JSON. An empty VALUE skips an optional question. QUESTION is the id
    of the question, which `reyn show RUN` prints; pass it to make sure that the reply reaches this question. RUN is the
    run that asks or one of its ancestors. If another process executes the run, that process continues it.
    """
    if len(wait_and_value) > 2:
        raise click.UsageError(f"too many arguments: expected [QUESTION] VALUE, got {len(wait_and_value)}")
    *wait_ids, value = wait_and_value
    wait_id = wait_ids[0] if wait_ids else None
    if no_resume:
        with open_existing_project() as runtime:
            posted = _post(runtime, run, wait_id, value)
        _report(posted, is_continued=posted.is_claimed, as_json=as_json)
        return 0

    def work(runtime: SyncRuntime, progress: Progress) -> RunResult | None:
        posted = _post(runtime, run, wait_id, value)
        result = runtime.resume_answered(posted, listener=progress, on_delta=progress.on_delta)
        if result is None:
            _report(posted, is_continued=True, as_json=as_json)
        return result

    return execute(work, as_json=as_json, no_input=no_input, stream=stream)


def _post(runtime: SyncRuntime, run: str, wait_id: str | None, value: str) -> PostedAnswer:
    if wait_id is None:
        wait_id = _open_wait(runtime, run)
        if value == wait_id:
            raise click.UsageError(f"`{value}` is the id of the open question; VALUE is missing")
    return runtime.answer(run, wait_id, value, is_text=True)


def _open_wait(runtime: SyncRuntime, run: str) -> str:
    row = runtime.find(run)
    question = runtime.open_question(row)
    if question is None:
        raise WaitUnknown(
            f"run `{row.run_id}` has no open question; its status is {runtime.display_status(row)}",
            hint="`reyn runs --status waiting` lists the runs that wait for a reply.",
            action=runtime.next_action(row),
        )
    return question.wait.id


def _report(posted: PostedAnswer, *, is_continued: bool, as_json: bool) -> None:
    """Report a reply whose run this process does not resume."""
    if as_json:
        print_json({"run_id": posted.run_id, "wait": posted.wait_id, "is_continued": is_continued})
        return
    suffix = "; another process continues the run" if is_continued else ""
    click.echo(f"{posted.run_id}: answered {posted.wait_id}{suffix}")
    print_next(None if is_continued else NextAction("resume", posted.root_run))
