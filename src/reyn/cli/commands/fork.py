"""`reyn fork`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from reyn.cli.execution import execute, execution_options
from reyn.cli.project import model_name, parse_input, skill_name

if TYPE_CHECKING:
    from reyn.cli.progress import Progress
    from reyn.runtime import RunResult, SyncRuntime


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
def command(
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
