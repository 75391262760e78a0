"""`reyn show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from reyn.cli.output import (
    clean,
    coloured,
    command_line,
    duration,
    json_option,
    print_json,
    print_result,
    result_as_json,
    time_of,
)
from reyn.cli.progress import coloured_line
from reyn.cli.project import open_existing_project
from reyn.cli.timeline import Timeline

if TYPE_CHECKING:
    from reyn.cli.timeline import TimelineEntry


@click.command(epilog="Example: reyn show order-17 --json")
@click.argument("run")
@json_option
def command(run: str, as_json: bool) -> None:
    """Show the visits of RUN with turns, ops, questions and decisions, then the result and the next command.

    RUN is an id or a unique prefix. Each line starts with the event number and the time since the start. Sub-runs have
    their own ids.
    """
    with open_existing_project() as runtime:
        row = runtime.runs.find(run)
        status, action = runtime.runs.display_status(row), runtime.runs.next_action(row)
        timeline = Timeline(runtime.runs.content)
        steps = [entry for event in runtime.runs.events(row.run_id) if (entry := timeline.add(event)) is not None]
        result, files = runtime.runs.result(row.run_id), runtime.runs.changed_files(row.run_id)
        active = runtime.runs.state(row.run_id).active
    start = steps[0].ts if steps else row.started
    if as_json:
        fields: dict[str, Any] = {"skill": row.skill, "display_status": status, "next": command_line(action)}
        fields |= {"files": files, "parent": row.parent, "fork_of": row.fork_of, "imported": row.imported}
        fields["steps"] = [_as_json(step, start) for step in steps]
        print_json(result_as_json(result) | fields)
        return
    click.echo(f"{clean(row.run_id)} · {clean(row.skill)} · {coloured(status)} · started {time_of(start)} UTC")
    if row.imported:
        click.echo(f"imported from {clean(row.imported)}")
    for step in steps:
        click.echo(f"{step.seq:>6}  {duration(step.ts - start):>8}  {coloured_line(step)}")
    took = _took(active, row.updated - start)
    print_result(result, took=took, is_complete=not timeline.unreported, files=files, action=action)


def _took(active: int, total: int) -> str:
    """Return the time of execution, and the total time if the run was also interrupted, stopped or waiting."""
    return duration(total) if total - active < 1_000_000 else f"{duration(active)} active of {duration(total)}"


def _as_json(step: TimelineEntry, start: int) -> dict[str, Any]:
    return {
        "seq": step.seq,
        "seconds": (step.ts - start) / 1_000_000,
        "type": step.type,
        "text": step.text,
    } | step.data
