"""Commands about runs that workers execute: `submit`, `worker`, `workers`, `queue`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from reyn.cli.groups import command
from reyn.cli.options import json_option, number_option, setting_options
from reyn.cli.output import age_text, coloured, now, reyn_command, table_lines
from reyn.cli.project import (
    model_name,
    open_existing_project,
    open_project,
    parse_input,
    print_assumed_project,
    skill_name,
)
from reyn.cli.writer import Report, out

if TYPE_CHECKING:
    from reyn.engines import Serving
    from reyn.runtime import OSRuntime
    from reyn.runtime.workers import QueuedRun

_QUEUE = "default"
_MOST_NAMED = 5


@command(epilog='Example: reyn submit hello \'{"name": "Ada"}\' --run-id order-17')
@click.argument("skill_or_run", metavar="SKILL|RUN")
@click.argument("input", required=False)
@click.option("--run-id", metavar="ID", help="Id of the run. If it exists, it is submitted, unless it has been.")
@click.option("--queue", default=_QUEUE, show_default=True, metavar="NAME", help="Queue whose workers execute it.")
@click.option(
    "--priority",
    type=int,
    metavar="N",
    help="Higher ones are executed first. By default that of the skill or queue, else 0.",
)
@click.option("--label", "labels", multiple=True, metavar="NAME", help="Label that a worker needs. May be repeated.")
@setting_options
@json_option
def submit_command(
    skill_or_run: str,
    input: str | None,
    run_id: str | None,
    queue: str,
    priority: int | None,
    labels: tuple[str, ...],
    **settings: Any,
) -> Report:
    """Start a run of SKILL that workers execute, and return at once. Or hand over RUN, which was interrupted or waits.

    INPUT is as for `reyn run`. A word that is the id of a run is RUN. `reyn worker` executes submitted runs,
    `reyn watch` follows one, `reyn answer` replies to its questions.
    """
    parsed = parse_input(input)
    settings["model"] = model_name(settings["model"])
    print_assumed_project()
    runtime = open_project(**settings)
    if input is None and run_id is None and runtime.runs.is_recorded(skill_or_run):
        row = runtime.workers.hand_over(skill_or_run, queue=queue, priority=priority, labels=labels)
    else:
        name = skill_name(skill_or_run)
        row = runtime.submit(name, parsed, run_id=run_id, queue=queue, priority=priority, labels=labels)
    status = runtime.runs.display_status(row)
    reason = runtime.workers.reason(row) if status == "queued" else row.reason
    fields = {"run_id": row.run_id, "status": status, "queue": row.queue, "reason": reason}
    text = f"run {row.run_id}: {status}{f' ({reason})' if reason else ''}"
    return Report(fields, [text, f"next: {reyn_command('watch', row.run_id)}"])


@command(epilog="Example: reyn worker --queue default --concurrency 4")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Queue to serve. May be repeated.")
@number_option("--concurrency", "Runs to execute at once.", default=1, show_default=True, metavar="N")
@click.option("--label", "labels", multiple=True, metavar="NAME", help="Label of this worker. May be repeated.")
@click.option("--once", is_flag=True, help="Stop when nothing is due.")
@json_option
def worker_command(queues: tuple[str, ...], concurrency: int, labels: tuple[str, ...], once: bool) -> int:
    """Execute submitted runs: new ones, those that got an answer, and those that a dead worker left.

    SIGTERM and Ctrl-C drain the worker: runs in progress are interrupted at once, and other workers continue them.
    """
    from reyn.engines import Serving

    runtime = open_project()
    serving = Serving(queues=queues or (_QUEUE,), concurrency=concurrency, is_once=once, labels=labels)
    out.note(f"worker: queue {', '.join(serving.queues)}; {concurrency} at once")
    runtime.wait(_serve(runtime.async_form, serving))
    return 0


async def _serve(runtime: OSRuntime, serving: Serving) -> None:
    """Serve until a signal arrives."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.stop.set)
    try:
        await runtime.workers.serve(serving=serving)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@command(epilog="Example: reyn workers --json")
@json_option
def workers_command() -> Report:
    """List the workers of the last day: what they execute, since when, and when they reported last."""
    from reyn.runtime.workers import is_lost

    workers = open_existing_project().workers
    reports, at = workers.all(), now()
    for reason, runs in _unserved(workers.queued()).items():
        out.note(f"queued: {', '.join(runs[:_MOST_NAMED])}{' …' if len(runs) > _MOST_NAMED else ''}: {reason}")
    if not reports:
        return Report([], ["no workers; start one with `reyn worker`"])
    rows = [
        (
            f"{one.host}:{one.pid}",
            coloured("lost" if is_lost(one, at) else "running"),
            ", ".join(one.queues),
            ", ".join(one.labels) or "-",
            f"{len(one.runs)} of {one.concurrency}",
            age_text(at - one.started),
            age_text(at - one.seen),
            ", ".join(one.runs),
        )
        for one in reports
    ]
    header = ("WORKER", "STATUS", "QUEUES", "LABELS", "BUSY", "STARTED", "SEEN", "RUNS")
    import msgspec

    fields = [msgspec.to_builtins(one) | {"is_lost": is_lost(one, at)} for one in reports]
    return Report(
        fields, [*table_lines(header, rows), *_refusals({k: v for one in reports for k, v in one.refusals.items()})]
    )


def _unserved(queued: list[QueuedRun]) -> dict[str, list[str]]:
    """Return the runs that no worker serves, by the reason."""
    found: dict[str, list[str]] = {}
    for one in queued:
        if one.reason.startswith("no worker"):
            found.setdefault(one.reason, []).append(one.run_id)
    return found


def _refusals(refusals: dict[str, str]) -> list[str]:
    return [f"run {run} is not taken: {reason}" for run, reason in sorted(refusals.items())]


@command(epilog="Example: reyn queue --json")
@json_option
def queue_command() -> Report:
    """List the submitted runs that no worker executes, in their order, with the reason."""
    queued = open_existing_project().workers.queued()
    if not queued:
        return Report([], ["no queued runs"])
    rows = [
        (one.run_id, one.skill, one.queue, str(one.priority), age_text(now() - one.since), one.reason) for one in queued
    ]
    header = ("RUN", "SKILL", "QUEUE", "PRIORITY", "WAITING", "REASON")
    return Report([one._asdict() for one in queued], table_lines(header, rows))
