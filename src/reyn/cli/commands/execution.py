"""Commands that execute or stop runs: `run`, `resume`, `answer`, `fork`, `rerun`, `cancel`."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from reyn.cli.groups import command
from reyn.cli.options import LIMITS, execution_options, json_option, number_option, setting_options
from reyn.cli.output import coloured, next_lines, now, reply_lines, result_as_json, reyn_command, time_of
from reyn.cli.project import (
    model_name,
    open_existing_project,
    open_journal,
    open_project,
    parse_input,
    print_assumed_project,
    skill_name,
    text_argument,
)
from reyn.cli.writer import Line, Report, is_attended, out
from reyn.errors import LimitUnknown, NextAction, ReynError

if TYPE_CHECKING:
    from reyn.cli.functions import CommandWork
    from reyn.cli.progress import Progress
    from reyn.journal.family import OpenQuestion
    from reyn.kernel.world.inbox import PostedReply
    from reyn.runtime import OSRuntime, RunResult, SyncRuntime

run_id_option = click.option("--run-id", metavar="ID", help="Id of the new run.")


@command(epilog='Example: reyn run hello \'{"name": "Ada"}\' --model scripted:answers.jsonl')
@click.argument("skill")
@click.argument("input", required=False)
@click.option("--run-id", metavar="ID", help="Id of the run. If it exists, continue it, or wait for its result.")
@setting_options
@execution_options
def run_command(skill: str, input: str | None, run_id: str | None, **settings: Any) -> Report | int:
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
    from reyn.cli.execution import execute
    from reyn.cli.functions import function_work, is_function

    parsed = parse_input(input)
    settings["model"] = model_name(settings["model"])
    print_assumed_project()
    work: CommandWork
    if is_function(skill):
        work = function_work(skill, parsed, run_id=run_id, has_model=settings["model"] is not None)
    else:

        def work(runtime: SyncRuntime, progress: Progress) -> RunResult:
            if run_id is not None and runtime.services.existing_journal.is_claimed(run_id):
                out.note(f"run {run_id} is being executed by another process; waiting for its result")
            return runtime.run(skill_name(skill), parsed, run_id=run_id, listener=progress, on_delta=progress.on_delta)

    return execute(work, opening=open_project, **settings)


_AMOUNT = re.compile(r"[0-9]{1,7}(\.[0-9]{1,9})?")


@command(epilog="Example: reyn resume order-17 --raise max_phase_visits=50")
@click.argument("run", required=False)
@click.option("--all", "is_all", is_flag=True, help="Continue every run that was interrupted; RUN is left out.")
@click.option("--retry", is_flag=True, help="Retry the model call, visit or step that failed.")
@click.option(
    "--raise",
    "raised",
    multiple=True,
    metavar="LIMIT=N",
    help=f"Raise a limit; `none` removes it. LIMIT is one of {', '.join(LIMITS)}. "
    "A cost is in the project's currency: 2.50.",
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
    **how: Any,
) -> Report | int:
    """Continue RUN from its last durable event. RUN is an id or a unique prefix.

    The run keeps its own copy of the skill and its own settings, so editing files does not change it. A run that has
    ended is not executed: its result is printed again.
    """
    if is_all:
        if run is not None or retry or raised or model or upgrade:
            raise click.UsageError("--all takes neither RUN nor other options that change a run")
        return _resume_all()
    if run is None:
        raise click.UsageError("missing argument RUN; --all continues every run that was interrupted")
    from reyn.cli.execution import execute

    limits = dict(_parse_limit(argument) for argument in raised)

    def work(runtime: SyncRuntime, progress: Progress) -> RunResult:
        from reyn.journal import ENDED

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
            status = runtime.runs.display_status(row)
            progress.pause()
            out.note(f"run {row.run_id} has ended ({status}); nothing was executed. Its result:")
            for verb, effect in _AFTER_END.items():
                out.note(f"  {reyn_command(verb, row.run_id)} {effect}")
        return result

    return execute(work, **how)


_AFTER_END = {
    "show": "shows its events",
    "fork": "continues from one of them in a new run",
    "rerun": "starts a new run with the same input",
}


def _resume_all() -> Report | int:
    """Continue the runs that earlier processes left, one after the other. Conversations wait for their next message."""
    from reyn.chat.services.auto_resume_handler import interrupted_runs, resume_interrupted

    code = 0
    runtime = open_existing_project()
    interrupted = interrupted_runs(runtime)
    if not interrupted:
        return Report([], ["no interrupted runs"], each=True)
    for row in interrupted:
        outcome = runtime.wait(resume_interrupted(runtime.async_form, row))
        if isinstance(outcome, ReynError):
            code = 1
            entry = {"run_id": row.run_id, "error": outcome.as_json()}
            line = f"{row.run_id}: {outcome.code}: {outcome.message}"
        elif outcome is None:
            continue
        else:
            code = max(code, outcome.exit_code if outcome.code else 0)
            entry = result_as_json(outcome)
            line = f"{row.run_id}: {outcome.status}{f': {outcome.reason}' if outcome.reason else ''}"
        out.report(Report(entry, [line]))
    return code


def _parse_limit(argument: str) -> tuple[str, int | None]:
    name, _, number = argument.partition("=")
    if number == "none":
        return name, None
    from reyn.config.budgets import NANO

    if name.endswith("_cost") and _AMOUNT.fullmatch(number):
        return name, int(Decimal(number) * NANO)
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        raise LimitUnknown(
            f"`{argument}` is not of the form LIMIT=N",
            hint="N is a number, such as 5000, or 2.50 for a cost; or `none`.",
        )
    return name, int(number)


@command(epilog="Example: reyn answer order-17 'in plain words'")
@click.argument("run")
@click.argument("question_and_value", metavar="[QUESTION] VALUE", nargs=-1)
@click.option(
    "--show", is_flag=True, help="Print the whole question, such as the full diff to approve; store no reply."
)
@click.option("--no-resume", is_flag=True, help="Store the reply, but do not resume the run.")
@execution_options
def answer_command(
    run: str, question_and_value: tuple[str, ...], show: bool, no_resume: bool, **how: Any
) -> Report | int:
    """Reply to the open question of RUN with VALUE, then resume the run.

    VALUE is text if the question takes text, else JSON, or the number of a reply that the question offers; `--show`
    prints the question and these replies. An empty VALUE skips an optional question. For an approval, VALUE is
    `approve`, `reject`, `reject REMARK`, `edit JSON`, `defer` or a JSON object. `edit` alone opens the editor that
    $EDITOR names, with the op or the artifact. Your user name is recorded.

    QUESTION is the id of the question, which `reyn show RUN` prints. With QUESTION, the reply is refused if the run
    asks a newer question by then. RUN is the run that asks or one of its ancestors. If another process executes the
    run, that process continues with the reply.
    """
    if show:
        if question_and_value:
            raise click.UsageError("--show takes no VALUE")
        return _show(open_existing_project(), run)
    if not question_and_value:
        raise click.UsageError("missing argument VALUE")
    if len(question_and_value) > 2:
        raise click.UsageError(f"too many arguments: expected [QUESTION] VALUE, got {len(question_and_value)}")
    from reyn.cli.people import user_name

    *question_ids, value = question_and_value
    if value == "edit":
        value = _edited_reply(open_existing_project(), run)
    reply = partial(_post, run, question_ids[0] if question_ids else None, value, user_name())
    if no_resume:
        posted = reply(open_existing_project().async_form)
        return _stored(posted, is_continued=posted.is_claimed)
    from reyn.cli.execution import execute

    def work(runtime: SyncRuntime, progress: Progress) -> RunResult | Report:
        posted = reply(runtime.async_form)
        result = runtime.resume_answered(posted, listener=progress, on_delta=progress.on_delta)
        return _stored(posted, is_continued=True) if result is None else result

    return execute(work, **how)


def _post(run: str, question_id: str | None, value: str, by: str, runtime: OSRuntime) -> PostedReply:
    return runtime.answer(run, question_id, value, is_text=True, by=by)


def _show(runtime: SyncRuntime, run: str) -> Report:
    """Return the open question of a run, and the replies that it offers. Nothing is truncated."""
    from reyn.journal.family import offered_replies

    found = _open_question(runtime, run)
    question, text = found.question, runtime.runs.question_text(found)
    lines = [f"{found.run_id} {question.id}: {question.reason}"]
    lines += [f"    {line}" for line in text.removesuffix("\n").split("\n")]
    lines += reply_lines(question)
    if question.expires_at is not None:
        lines.append(f"expires: {time_of(question.expires_at)} UTC")
    fields = {"run_id": found.run_id, "question": question, "message": text, "replies": offered_replies(question)}
    return Report(fields, lines)


def _edited_reply(runtime: SyncRuntime, run: str) -> str:
    """Return the reply `edit` with what the user makes of the op or the artifact in an editor."""
    from reyn.cli.people import edit_in_editor

    draft = runtime.runs.edit_draft(_open_question(runtime, run))
    return f"edit {edit_in_editor(draft)}" if draft is not None and is_attended() else "edit"


def _open_question(runtime: SyncRuntime, run: str) -> OpenQuestion:
    row = runtime.runs.find(run)
    question = runtime.runs.open_question(row)
    if question is None:
        from reyn.runs.next_action import unknown_question

        raise unknown_question(runtime.services.existing_journal, row, None)
    return question


def _stored(posted: PostedReply, *, is_continued: bool) -> Report:
    """Report a reply whose run this process does not resume."""
    fields = {"run_id": posted.run_id, "question_id": posted.question_id, "is_continued": is_continued}
    suffix = "; another process continues the run" if is_continued else ""
    stored = f"{posted.run_id}: stored the reply to {posted.question_id}{suffix}"
    return Report(fields, [stored, *next_lines(None if is_continued else NextAction("resume", posted.root_run))])


@command(epilog="Example: reyn fork order-17 --at 9 --model scripted:other.jsonl")
@click.argument("run")
@number_option("--at", "Event to continue from. Default: the last one.", metavar="SEQ")
@click.option("--model", metavar="MODEL", help="Model to call from there on.")
@click.option("--input", metavar="INPUT", help="New input of the next phase.")
@click.option(
    "--skill", metavar="SKILL", help="Skill to continue with: a different one, or the current version of the same."
)
@click.option(
    "--instructions",
    metavar="PHASE=FILE",
    multiple=True,
    help="New instructions of a phase, from a file (- for standard input). May be repeated.",
)
@click.option("--answer", metavar="FILE", help="Your answer to the model call at SEQ (- for standard input).")
@run_id_option
@execution_options
def fork_command(
    run: str,
    at: int | None,
    model: str | None,
    input: str | None,
    skill: str | None,
    instructions: tuple[str, ...],
    answer: str | None,
    run_id: str | None,
    **how: Any,
) -> Report | int:
    """Start a new run that continues from event SEQ of RUN. RUN itself does not change.

    The new run continues from the last event at or before SEQ that ends a visit or requests an answer from the model.
    `reyn show RUN` prints the event numbers. With --answer, it continues from the last model call at or before SEQ, and
    the content of FILE, a decision as JSON or a text, is the model's answer. One that does not fit is refused.
    `reyn diff` compares both runs.
    """
    from reyn.cli.execution import execute
    from reyn.kernel.runtime_types import TimedIds

    new_input, own_answer = parse_input(input), parse_input(_from_file(answer)) if answer is not None else None
    texts = dict(_edited(option) for option in instructions)

    def work(runtime: SyncRuntime, progress: Progress) -> RunResult:
        # Chosen here, so that Ctrl-C before the first event can name the run.
        progress.run_id = run_id or TimedIds().new()
        return runtime.fork(
            run,
            at=at,
            model=model_name(model),
            input=new_input,
            skill=skill_name(skill) if skill else None,
            instructions=texts,
            answer=own_answer,
            run_id=progress.run_id,
            listener=progress,
            on_delta=progress.on_delta,
        )

    return execute(work, **how)


def _from_file(name: str) -> str:
    """Return a file name as `parse_input` takes it."""
    return name if name == "-" else f"@{name}"


def _edited(option: str) -> tuple[str, str]:
    """Return the phase and the text of `--instructions PHASE=FILE`."""
    phase, separator, file = option.partition("=")
    if not separator or not phase or not file:
        raise click.UsageError(f"--instructions takes PHASE=FILE, not `{option}`")
    return phase, text_argument(_from_file(file))


@command(epilog="Example: reyn rerun order-17 --model scripted:other.jsonl")
@click.argument("run")
@click.option("--model", metavar="MODEL", help="Model to call. Default: the model of RUN.")
@click.option("--upgrade", is_flag=True, help="Use the current version of the skill, not the copy of RUN.")
@run_id_option
@execution_options
def rerun_command(run: str, model: str | None, upgrade: bool, run_id: str | None, **how: Any) -> Report | int:
    """Start a new run with the input, settings and skill of RUN."""
    from reyn.cli.execution import execute

    def work(runtime: SyncRuntime, progress: Progress) -> RunResult:
        name = model_name(model)
        return runtime.rerun(
            run, model=name, upgrade=upgrade, run_id=run_id, listener=progress, on_delta=progress.on_delta
        )

    return execute(work, **how)


@command(epilog="Example: reyn cancel order-17 --reason 'wrong input'")
@click.argument("run")
@click.option("--reason", default="", metavar="TEXT", help="Reason to record in the journal.")
@json_option
def cancel_command(run: str, reason: str) -> Report:
    """Cancel RUN and its sub-runs. RUN is an id or a unique prefix.

    A process that executes the run stops before its next step. Files stay as they are; `reyn undo` restores them.
    """
    from reyn.journal.cancellation import cancel_run
    from reyn.journal.family import find_run
    from reyn.runs.next_action import next_action

    journal = open_journal()
    row = find_run(journal, run)
    run_id = row.run_id
    cancel_run(journal, row, reason, now)
    row = journal.find(run_id) or row
    fields = {"run_id": run_id, "status": row.status, "is_cancelled": row.status == "cancelled"}
    if row.status != "cancelled":
        text = "cancelling; another process executes the run and stops before its next step"
        return Report(fields, [f"{run_id}: {text}"])
    done = Line(f"{run_id}: ", coloured("cancelled"))
    return Report(fields, [done, *next_lines(next_action(journal, row))])
