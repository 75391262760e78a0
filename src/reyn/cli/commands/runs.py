"""`reyn runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from reyn.cli.output import clean, coloured, command_line, json_option, print_json, short, time_of
from reyn.cli.project import look_at_project

if TYPE_CHECKING:
    from reyn.journal import RunRow
    from reyn.runs.questions import Question
    from reyn.runtime import SyncRuntime


class _Listed(NamedTuple):
    """A run of the list with everything that is printed of it."""

    row: RunRow
    depth: int
    standing: str
    command: str
    question: Question | None

    def as_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self.row)
        fields |= {"standing": self.standing, "depth": self.depth, "next": self.command}
        return fields | {"question": msgspec.to_builtins(self.question)}


@click.command(epilog="Example: reyn runs --json")
@click.option("--top", is_flag=True, help="Leave out the sub-runs.")
@json_option
def command(top: bool, as_json: bool) -> None:
    """List the runs of this project, newest first: status, open question and next command of each.

    Sub-runs are listed below their parent.
    """
    with look_at_project() as runtime:
        listed = [_look(runtime, row, depth) for row, depth in in_order(runtime.runs()) if depth == 0 or not top]
    if as_json:
        print_json([run.as_json() for run in listed])
        return
    if not listed:
        click.echo("no runs yet; `reyn run SKILL` starts one")
    for run in listed:
        _print(run)


def in_order(rows: list[RunRow]) -> list[tuple[RunRow, int]]:
    """Each run with its depth: sub-runs follow their parent, in the order in which they started."""
    known = {row.run_id for row in rows}
    children: dict[str, list[RunRow]] = {}
    for row in reversed(rows):
        children.setdefault(row.parent if row.parent in known else "", []).append(row)

    def branch(row: RunRow, depth: int) -> list[tuple[RunRow, int]]:
        return [(row, depth), *(found for child in children.get(row.run_id, ()) for found in branch(child, depth + 1))]

    return [found for row in reversed(children.get("", [])) for found in branch(row, 0)]


def _look(runtime: SyncRuntime, row: RunRow, depth: int) -> _Listed:
    question = runtime.open_question(row) if row.status in ("running", "waiting") else None
    return _Listed(row, depth, runtime.display_status(row), command_line(runtime.next_action(row)), question)


def _print(run: _Listed) -> None:
    row, indent = run.row, "  " * run.depth
    at = f" at {row.phase}" if row.status != "finished" and row.phase else ""
    origin = f" · fork of {row.fork_of} at {row.fork_seq}" if row.fork_of else ""
    reason = f": {row.reason}" if row.reason and run.question is None else ""
    who = clean(f"{row.run_id}  {time_of(row.started)}  {row.skill}")
    click.echo(f"{indent}{who}  {coloured(run.standing)}{short(f'{at}{origin}{reason}')}")
    if run.depth:  # the root run shows the question and the next command
        return
    if run.question is not None:
        answered = " (answered)" if run.question.is_answered else ""
        click.echo(f"{indent}    asks: {short(run.question.wait.message)}{answered}")
    if run.command and run.standing not in ("aborted", "cancelled"):
        click.echo(f"{indent}    next: {clean(run.command)}")
