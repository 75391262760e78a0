"""Commands that execute or stop runs: `run`, `resume`, `answer`, `fork`, `rerun`, `cancel`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.cli.execution import execute, execution_options
from reyn.cli.functions import function_work, is_function
from reyn.cli.output import clean, coloured, json_option, print_json, print_next, reyn_command, time_of
from reyn.cli.people import user_name
from reyn.cli.project import (
    model_name,
    open_existing_project,
    open_project,
    parse_input,
    print_assumed_project,
    setting_options,
    skill_name,
)
from reyn.config import Limits
from reyn.config.budgets import NANO
from reyn.errors import LimitUnknown, NextAction, QuestionUnknown, ReynError
from reyn.journal import ENDED

if TYPE_CHECKING:
    from reyn.cli.functions import Work
    from reyn.cli.progress import Progress
    from reyn.runs.questions import OpenQuestion, PostedReply
    from reyn.runtime import RunResult, SyncRuntime


@click.command(epilog='Example: reyn run hello \'{"name": "Ada"}\' --model scripted:answers.jsonl')
@click.argument("skill")
@click.argument("input", required=False)
@click.option("--run-id", metavar="ID", help="Id of the run. If it exists, continue it.")
@setting_options
@execution_options
def run_command(
    skill: str, input: str | None, run_id: str | None, no_input: bool, stream: bool, as_json: bool, **settings: Any
) -> int:
    """Start a run of SKILL with INPUT.

    SKILL is a name, a path that contains a slash, or a Python function with `@llm_function` as `module:function`.

    INPUT is a JSON object with the data of the entry phase's input type. It is plain text if that type is
    `user_message`. `-` reads INPUT from standard input, `@FILE` from a file. INPUT can also be an artifact: an object
    with `type` and `data`. For a function, INPUT is a JSON object with the arguments, or the text of the only argument.

    To find a function, the command imports its module from the current folder, the project or the installed packages,
    which executes the code of the module.

    At a terminal, the command asks the run's questions. Ctrl-C interrupts the run, and `reyn resume` continues it; a
    second Ctrl-C cancels the run.
    """
    parsed = parse_input(input)
    settings["model"] = model_name(settings["model"])
    print_assumed_project()
    work: Work
    if is_function(skill):
        work = function_work(skill, parsed, run_id=run_id, has_model=settings["model"] is not None)
    else:

        def work(runtime: SyncRuntime, progress: Progress) -> RunResult:
            return runtime.run(skill_name(skill), parsed, run_id=run_id, listener=progress, on_delta=progress.on_delta)

    return execute(
        work,
        as_json=as_json,
        no_input=no_input,
        stream=stream,
        opening=open_project,
        **settings,
    )


_AMOUNT = re.compile(r"[0-9]{1,7}(\.[0-9]{1,9})?")
_LIMITS = ", ".join(field.name for field in msgspec.structs.fields(Limits))


@click.command(epilog="Example: reyn resume order-17 --raise max_phase_visits=50")
@click.argument("run", required=False)
@click.option("--all", "is_all", is_flag=True, help="Continue every run that was interrupted; RUN is left out.")
@click.option("--retry", is_flag=True, help="Retry the model call, visit or step that failed.")
@click.option(
    "--raise",
    "raised",
    multiple=True,
    metavar="LIMIT=N",
    help=f"Raise a limit; `none` removes it. LIMIT is one of {_LIMITS}. A cost is in the project's currency: 2.50.",
)
@click.option("--model", metavar="MODEL", help="Model to call from here on.")
@click.option("--upgrade", is_flag=True, help="Continue with the current version of the skill, if it is compatible.")
@execution_options
def resume_command(
    run: str | None,
    is_all: bool,
    retry: bool,
    raised: tuple[str, ...],
    model: str | None,
    upgrade: bool,
    no_input: bool,
    stream: bool,
    as_json: bool,
) -> int:
    """Continue RUN from its last durable event. RUN is an id or a unique prefix.

    The run keeps its own copy of the skill and its own settings, so editing files does not change it. A run that has
    ended is not executed: its result is printed again.
    """
    if is_all:
        if run is not None or retry or raised or model or upgrade:
            raise click.UsageError("--all takes neither RUN nor other options that change a run")
        return _resume_all(as_json=as_json)
    if run is None:
        raise click.UsageError("missing argument RUN; --all continues every run that was interrupted")
    limits = dict(_parse_limit(argument) for argument in raised)

    def work(runtime: SyncRuntime, progress: Progress) -> RunResult:
        row = runtime.runs.find(run)
        result = runtime.resume(
            run,
            retry=retry,
            raise_limits=limits,
            model=model_name(model),
            upgrade=upgrade,
            listener=progress,
            on_delta=progress.on_delta,
        )
        if row.status in ENDED:
            show, fork, rerun = (reyn_command(verb, row.run_id) for verb in ("show", "fork", "rerun"))
            status = runtime.runs.display_status(row)
            progress.pause()
            click.echo(f"run {row.run_id} has ended ({status}); nothing was executed. Its result:", err=True)
            click.echo(f"  {show} shows its events", err=True)
            click.echo(f"  {fork} continues from one of them in a new run", err=True)
            click.echo(f"  {rerun} starts a new run with the same input", err=True)
        return result

    return execute(work, as_json=as_json, no_input=no_input, stream=stream)


def _resume_all(*, as_json: bool) -> int:
    """Continue the runs that earlier processes left, one after the other. Conversations wait for their next message."""
    from reyn.chat.services.auto_resume_handler import AutoResumeHandler
    from reyn.cli.output import clean, print_json, result_as_json
    from reyn.cli.project import open_existing_project

    code = 0
    with open_existing_project() as runtime:
        handler = AutoResumeHandler(runtime.async_form)
        interrupted = handler.interrupted()
        if not interrupted and not as_json:
            click.echo("no interrupted runs")
        for row in interrupted:
            outcome = runtime.wait(handler.resume(row))
            if isinstance(outcome, ReynError):
                code = 1
                entry = {"run_id": row.run_id, "error": outcome.as_json()}
                line = f"{row.run_id}: {outcome.code}: {clean(outcome.message)}"
            elif outcome is None:
                continue
            else:
                code = max(code, outcome.exit_code if outcome.status == "failed" else 0)
                entry = result_as_json(outcome)
                line = f"{row.run_id}: {outcome.status}{f': {clean(outcome.reason)}' if outcome.reason else ''}"
            if as_json:
                print_json(entry)
            else:
                click.echo(line)
    return code


def _parse_limit(argument: str) -> tuple[str, int | None]:
    name, _, number = argument.partition("=")
    if number == "none":
        return name, None
    if name.endswith("_cost") and _AMOUNT.fullmatch(number):
        return name, int(Decimal(number) * NANO)
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        raise LimitUnknown(
            f"`{argument}` is not of the form LIMIT=N",
            hint="N is a number, such as 5000, or 2.50 for a cost; or `none`.",
        )
    return name, int(number)


@click.command(epilog="Example: reyn answer order-17 'in plain words'")
@click.argument("run")
@click.argument("question_and_value", metavar="[QUESTION] VALUE", nargs=-1)
@click.option(
    "--show", is_flag=True, help="Print the whole question, such as the full diff to approve; store no reply."
)
@click.option("--no-resume", is_flag=True, help="Store the reply, but do not resume the run.")
@execution_options
def answer_command(
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


@click.command(epilog="Example: reyn fork order-17 --at 9 --model scripted:other.jsonl")
@click.argument("run")
@click.option("--at", type=click.IntRange(min=1), metavar="SEQ", help="Event to continue from. Default: the last one.")
@click.option("--model", metavar="MODEL", help="Model to call from there on.")
@click.option("--input", metavar="INPUT", help="New input of the next phase.")
@click.option(
    "--skill", metavar="SKILL", help="Skill to continue with: a different one, or the current version of the same."
)
@click.option("--run-id", metavar="ID", help="Id of the new run.")
@execution_options
def fork_command(
    run: str,
    at: int | None,
    model: str | None,
    input: str | None,
    skill: str | None,
    run_id: str | None,
    no_input: bool,
    stream: bool,
    as_json: bool,
) -> int:
    """Start a new run that continues from event SEQ of RUN. RUN itself does not change.

    The new run continues from the last event at or before SEQ that ends a visit or requests an answer from the model.
    `reyn show RUN` prints the event numbers.
    """
    new_input = parse_input(input)

    def work(runtime: SyncRuntime, progress: Progress) -> RunResult:
        # Chosen here, so that Ctrl-C before the first event can name the run.
        progress.run_id = run_id or _new_id()
        return runtime.fork(
            run,
            at=at,
            model=model_name(model),
            input=new_input,
            skill=skill_name(skill) if skill else None,
            run_id=progress.run_id,
            listener=progress,
            on_delta=progress.on_delta,
        )

    return execute(work, as_json=as_json, no_input=no_input, stream=stream)


def _new_id() -> str:
    from reyn.kernel.runtime_types import TimedIds

    return TimedIds().new()


@click.command(epilog="Example: reyn rerun order-17 --model scripted:other.jsonl")
@click.argument("run")
@click.option("--model", metavar="MODEL", help="Model to call. Default: the model of RUN.")
@click.option("--upgrade", is_flag=True, help="Use the current version of the skill, not the copy of RUN.")
@click.option("--run-id", metavar="ID", help="Id of the new run.")
@execution_options
def rerun_command(
    run: str, model: str | None, upgrade: bool, run_id: str | None, no_input: bool, stream: bool, as_json: bool
) -> int:
    """Start a new run with the input, settings and skill of RUN."""
    return execute(
        lambda runtime, progress: runtime.rerun(
            run, model=model_name(model), upgrade=upgrade, run_id=run_id, listener=progress, on_delta=progress.on_delta
        ),
        as_json=as_json,
        no_input=no_input,
        stream=stream,
    )


@click.command(epilog="Example: reyn cancel order-17 --reason 'wrong input'")
@click.argument("run")
@click.option("--reason", default="", metavar="TEXT", help="Reason to record in the journal.")
@json_option
def cancel_command(run: str, reason: str, as_json: bool) -> None:
    """Cancel RUN and its sub-runs. RUN is an id or a unique prefix.

    A process that executes the run stops before its next step. Files stay as they are; `reyn undo` restores them.
    """
    with open_existing_project() as runtime:
        run_id = runtime.runs.find(run).run_id
        runtime.cancel(run_id, reason)
        row = runtime.runs.find(run_id)
        action = runtime.runs.next_action(row)
    is_cancelled = row.status == "cancelled"
    if as_json:
        print_json({"run_id": run_id, "status": row.status, "is_cancelled": is_cancelled})
    elif is_cancelled:
        click.echo(f"{run_id}: {coloured('cancelled')}")
        print_next(action)
    else:
        click.echo(f"{run_id}: cancelling; another process executes the run and stops before its next step")
