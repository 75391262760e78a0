"""`reyn resume`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

import click
import msgspec

from reyn.cli.execution import execute, execution_options
from reyn.cli.output import reyn_command
from reyn.cli.project import model_name
from reyn.config import Limits
from reyn.config.budgets import NANO
from reyn.errors import LimitUnknown, ReynError
from reyn.journal import ENDED

if TYPE_CHECKING:
    from reyn.cli.progress import Progress
    from reyn.runtime import RunResult, SyncRuntime

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
def command(
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
