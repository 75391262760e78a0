"""`reyn show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.cli.output import clean, coloured, command_line, json_option, lasted, print_json, print_result, time_of
from reyn.cli.progress import coloured_line
from reyn.cli.project import look_at_project
from reyn.cli.timeline import Timeline

if TYPE_CHECKING:
    from reyn.cli.timeline import Entry


@click.command(epilog="Example: reyn show 20260704T120000-k3m9qxdt --json")
@click.argument("run")
@json_option
def command(run: str, as_json: bool) -> None:
    """Show what RUN did: every visit with its turns, ops, questions and decision, then its result and the next command.
    RUN may be the beginning of an id.

    Each line starts with the number of its event and the time since the start. Sub-runs are shown by their own ids.
    """
    with look_at_project() as runtime:
        row = runtime.find(run)
        standing, action = runtime.display_status(row), runtime.next_action(row)
        timeline = Timeline(runtime.content)
        steps = [entry for event in runtime.events(row.run_id) if (entry := timeline.take(event)) is not None]
        result, files = runtime.result(row.run_id), runtime.changed_files(row.run_id)
        worked = runtime.state(row.run_id).active
    began = steps[0].ts if steps else row.started
    if as_json:
        about = {"skill": row.skill, "standing": standing, "next": command_line(action), "files": files}
        told = [_as_json(step, began) for step in steps]
        print_json(msgspec.to_builtins(result) | about | {"parent": row.parent, "fork_of": row.fork_of, "steps": told})
        return
    click.echo(f"{clean(row.run_id)} · {clean(row.skill)} · {coloured(standing)} · started {time_of(began)} UTC")
    for step in steps:
        click.echo(f"{step.seq:>6}  {lasted(step.ts - began):>8}  {coloured_line(step)}")
    print_result(result, took=_took(worked, row.updated - began), files=files, action=action)


def _took(worked: int, whole: int) -> str:
    """The time a run was executed, and the whole time if it was also interrupted, stopped or waiting."""
    return lasted(whole) if whole - worked < 1_000_000 else f"{lasted(worked)} of work in {lasted(whole)}"


def _as_json(step: Entry, began: int) -> dict[str, Any]:
    return {
        "seq": step.seq,
        "seconds": (step.ts - began) / 1_000_000,
        "what": step.what,
        "text": step.text,
    } | step.about
