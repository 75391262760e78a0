"""`reyn runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import click
import msgspec

from reyn.cli.ages import Age, age_text, now
from reyn.cli.output import charge_text, clean, coloured, command_line, json_option, print_json, print_table, short
from reyn.cli.project import open_existing_project
from reyn.journal import Status
from reyn.kernel.runtime_types import Cost

if TYPE_CHECKING:
    from reyn.journal import RunRow
    from reyn.journal.kinds import Question
    from reyn.runs.questions import OpenQuestion
    from reyn.runtime import SyncRuntime

_HEADER = ("RUN", "SKILL", "STATUS", "SINCE", "WAITING FOR")


class _Listed(NamedTuple):
    """A run with everything that is printed about it."""

    row: RunRow
    depth: int
    display_status: str
    command: str
    question: OpenQuestion | None

    def as_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self.row)
        fields |= {"display_status": self.display_status, "depth": self.depth, "next": self.command}
        del fields["charge"]
        fields["cost"] = msgspec.to_builtins(Cost.of(self.row.charge))
        if self.question is None:
            return fields | {"question": None}
        asked = {"run_id": self.question.run_id, "is_answered": self.question.is_answered}
        return fields | {"question": msgspec.to_builtins(self.question.question) | asked}

    def cells(self) -> tuple[str, ...]:
        row = self.row
        since = row.started if self.display_status == "running" else row.updated
        question = "" if self.question is None else _question_text(self.question.question)
        suffix = " (reply stored)" if self.question is not None and self.question.is_answered else ""
        run = f"{'  ' * self.depth}{clean(row.run_id)}"
        return run, clean(row.skill), coloured(self.display_status), age_text(now() - since), f"{question}{suffix}"


@click.command(epilog="Example: reyn runs --status waiting --since 2d")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(get_args(Status)),
    metavar="STATUS",
    help=f"Only runs with this status. May be repeated. One of {', '.join(get_args(Status))}.",
)
@click.option("--skill", metavar="NAME", help="Only runs of this skill.")
@click.option("--since", type=Age(), metavar="AGE", help="Only runs with events since AGE: 30m, 2h, 3d, or a date.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N runs, with their sub-runs.")
@click.option("--top", is_flag=True, help="Omit sub-runs.")
@json_option
def command(
    statuses: tuple[str, ...], skill: str | None, since: int | None, limit: int | None, top: bool, as_json: bool
) -> None:
    """List runs, newest first, with status, cost and open question. Sub-runs are indented below their parent.

    With --json, each run also has the id of its question, its origin and the command that continues it.
    """
    with open_existing_project() as runtime:
        rows = runtime.runs.all()
        is_empty = not rows
        rows = [row for row in rows if not statuses or row.status in statuses]
        rows = [row for row in rows if skill is None or row.skill == skill]
        rows = [row for row in rows if since is None or row.updated >= since]
        ordered = _first_roots(in_order(rows), limit)
        listed = [_describe(runtime, row, depth) for row, depth in ordered if depth == 0 or not top]
    if as_json:
        print_json([run.as_json() for run in listed])
    elif listed:
        _print(listed)
    else:
        click.echo("no runs; start one with `reyn run SKILL`" if is_empty else "no matching runs")


def _print(listed: list[_Listed]) -> None:
    """Print the table of runs, with their costs if one of them made a call that was charged."""
    header: tuple[str, ...] = _HEADER
    rows = [run.cells() for run in listed]
    if any(run.row.charge.calls for run in listed):
        header = (*header[:-1], "COST", header[-1])
        rows = [(*cells[:-1], charge_text(run.row.charge), cells[-1]) for run, cells in zip(listed, rows, strict=True)]
    print_table(header, rows)


def in_order(rows: list[RunRow]) -> list[tuple[RunRow, int]]:
    """Return each run with its depth. Sub-runs follow their parent in the order in which they started."""
    known = {row.run_id for row in rows}
    children: dict[str, list[RunRow]] = {}
    for row in reversed(rows):
        children.setdefault(row.parent if row.parent in known else "", []).append(row)

    def branch(row: RunRow, depth: int) -> list[tuple[RunRow, int]]:
        return [(row, depth), *(found for child in children.get(row.run_id, ()) for found in branch(child, depth + 1))]

    return [found for row in reversed(children.get("", [])) for found in branch(row, 0)]


def _first_roots(ordered: list[tuple[RunRow, int]], limit: int | None) -> list[tuple[RunRow, int]]:
    """Return the first `limit` runs of depth 0, with their sub-runs."""
    roots = [number for number, (_, depth) in enumerate(ordered) if depth == 0]
    return ordered if limit is None or len(roots) <= limit else ordered[: roots[limit]]


def _describe(runtime: SyncRuntime, row: RunRow, depth: int) -> _Listed:
    question = runtime.runs.open_question(row) if row.status in ("running", "waiting") else None
    return _Listed(row, depth, runtime.runs.display_status(row), command_line(runtime.runs.next_action(row)), question)


def _question_text(question: Question) -> str:
    if question.is_approval:
        return short(f"approval: {question.message.partition(chr(10))[0]}", 80)
    return short(question.message, 80)
