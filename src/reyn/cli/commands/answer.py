"""`reyn answer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from reyn.cli.execution import execute, execution_options
from reyn.cli.output import clean, print_json, print_next, time_of
from reyn.cli.people import user_name
from reyn.cli.project import open_existing_project
from reyn.errors import NextAction, QuestionUnknown

if TYPE_CHECKING:
    from reyn.cli.progress import Progress
    from reyn.runs.questions import OpenQuestion, PostedReply
    from reyn.runtime import RunResult, SyncRuntime


@click.command(epilog="Example: reyn answer order-17 'in plain words'")
@click.argument("run")
@click.argument("question_and_value", metavar="[QUESTION] VALUE", nargs=-1)
@click.option(
    "--show", is_flag=True, help="Print the whole question, such as the full diff to approve; store no reply."
)
@click.option("--no-resume", is_flag=True, help="Store the reply, but do not resume the run.")
@execution_options
def command(
    run: str,
    question_and_value: tuple[str, ...],
    show: bool,
    no_resume: bool,
    no_input: bool,
    stream: bool,
    as_json: bool,
) -> int:
    """Reply to the open question of RUN with VALUE, then resume the run.

    VALUE is text if the question takes text, else JSON. An empty VALUE skips an optional question. For an approval,
    VALUE is `approve`, `reject`, `reject REMARK`, `defer` or a JSON object. Your user name is recorded.

    QUESTION is the id of the question, which `reyn show RUN` prints. With QUESTION, the reply is refused if the run
    asks a newer question by then. RUN is the run that asks or one of its ancestors. If another process executes the
    run, that process continues with the reply.
    """
    if show:
        if question_and_value:
            raise click.UsageError("--show takes no VALUE")
        with open_existing_project() as runtime:
            _show(runtime, run, as_json=as_json)
        return 0
    if not question_and_value:
        raise click.UsageError("missing argument VALUE")
    if len(question_and_value) > 2:
        raise click.UsageError(f"too many arguments: expected [QUESTION] VALUE, got {len(question_and_value)}")
    *question_ids, value = question_and_value
    question_id = question_ids[0] if question_ids else None
    if no_resume:
        with open_existing_project() as runtime:
            posted = _post(runtime, run, question_id, value)
        _report(posted, is_continued=posted.is_claimed, as_json=as_json)
        return 0

    def work(runtime: SyncRuntime, progress: Progress) -> RunResult | None:
        posted = _post(runtime, run, question_id, value)
        result = runtime.resume_answered(posted, listener=progress, on_delta=progress.on_delta)
        if result is None:
            _report(posted, is_continued=True, as_json=as_json)
        return result

    return execute(work, as_json=as_json, no_input=no_input, stream=stream)


def _post(runtime: SyncRuntime, run: str, question_id: str | None, value: str) -> PostedReply:
    if question_id is not None:
        return runtime.answer(run, question_id, value, is_text=True, by=user_name())
    question = _open_question(runtime, run)
    if value == question.question.id:
        raise click.UsageError(f"`{value}` is the id of the open question; VALUE is missing")
    return runtime.reply(question, value, is_text=True, by=user_name())


def _show(runtime: SyncRuntime, run: str, *, as_json: bool) -> None:
    """Print the open question of a run. Nothing is truncated."""
    question = _open_question(runtime, run)
    text = runtime.runs.question_text(question)
    if as_json:
        print_json({"run_id": question.run_id, "question": question.question, "message": text})
        return
    click.echo(f"{question.run_id} {question.question.id}: {question.question.reason}")
    for line in text.removesuffix("\n").split("\n"):
        click.echo(f"    {clean(line)}")
    if question.question.expires_at is not None:
        click.echo(f"expires: {time_of(question.question.expires_at)} UTC")


def _open_question(runtime: SyncRuntime, run: str) -> OpenQuestion:
    row = runtime.runs.find(run)
    question = runtime.runs.open_question(row)
    if question is None:
        raise QuestionUnknown(
            f"run `{row.run_id}` has no open question; its status is {runtime.runs.display_status(row)}",
            hint="`reyn runs --status waiting` lists the runs that wait for a reply.",
            action=runtime.runs.next_action(row),
        )
    return question


def _report(posted: PostedReply, *, is_continued: bool, as_json: bool) -> None:
    """Report a reply whose run this process does not resume."""
    if as_json:
        print_json({"run_id": posted.run_id, "question_id": posted.question_id, "is_continued": is_continued})
        return
    suffix = "; another process continues the run" if is_continued else ""
    click.echo(f"{posted.run_id}: stored the reply to {posted.question_id}{suffix}")
    print_next(None if is_continued else NextAction("resume", posted.root_run))
