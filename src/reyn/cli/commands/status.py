"""Commands that list runs and what they used: `runs`, `show`, `usage`, `context`."""

from __future__ import annotations

from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

import click
import msgspec
from msgspec.structs import replace

from reyn.cli.charts import budget_json, cost_text, prompts_svg, prompts_text, section_json, usage_svg, usage_text
from reyn.cli.output import (
    Age,
    age_text,
    budget_text,
    charge_text,
    clean,
    coloured,
    command_line,
    duration,
    is_terminal,
    json_option,
    now,
    print_json,
    print_result,
    print_table,
    result_as_json,
    reyn_command,
    short,
    time_of,
)
from reyn.cli.progress import coloured_line
from reyn.cli.project import open_existing_project
from reyn.cli.timeline import Timeline
from reyn.config.budgets import amount_text, money_text
from reyn.journal import Status
from reyn.kernel.runtime_types import Cost
from reyn.runs.usage import GROUPINGS

if TYPE_CHECKING:
    from reyn.cli.timeline import TimelineEntry
    from reyn.journal import RunRow
    from reyn.journal.kinds import Question
    from reyn.journal.port import OpenReservation
    from reyn.runs.questions import OpenQuestion
    from reyn.runs.usage import BudgetStatus, Grouping, UsageRow
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
def runs_command(
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


@click.command(epilog="Example: reyn show order-17 --json")
@click.argument("run")
@json_option
def show_command(run: str, as_json: bool) -> None:
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


_MAX_RESERVED = 10
_LOST = " (its process ended during a call, which is charged in full)"


@click.command(epilog="Example: reyn usage --by skill --since 7d --format svg")
@click.option("--by", type=click.Choice(GROUPINGS), default="day", show_default=True, help="What to group by.")
@click.option("--since", type=Age(), metavar="AGE", help="Only days since AGE: 7d, 4w, or a date.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "plot", "svg"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the N highest groups, or the last N days.")
@json_option
def usage_command(by: str, since: int | None, form: str, limit: int | None, as_json: bool) -> None:
    """Show what model calls used and cost, by day, skill, model or run, and the budgets of today.

    A sub-run counts for its own skill and run. Runs that were deleted since are included, imported runs are not.
    Models that answer at once, such as scripted ones, are counted only under a budget. The total and the budgets do not
    depend on --limit.
    """
    with open_existing_project() as runtime:
        report = runtime.runs.usage(cast("Grouping", by), since=since)
    hidden = max(0, len(report.rows) - limit) if limit is not None else 0
    if hidden:
        report = replace(report, rows=report.rows[hidden:] if by == "day" else report.rows[:limit])
    if as_json:
        print_json(
            {
                "by": report.by,
                "rows": [_row_json(row) for row in report.rows],
                "total": _row_json(report.total),
                "today": report.today,
                "budgets": [_budget_json(status) for status in report.budgets],
                "reserved": [_reserved_json(row) for row in report.reserved],
            }
        )
        return
    if form == "svg":
        click.echo(usage_svg(report), nl=False)
        return
    if not report.rows:
        click.echo(
            "no usage recorded; calls of scripted models are counted only under a budget"
            if since is None
            else "no usage recorded since then"
        )
    elif form == "plot":
        click.echo(usage_text(report, _columns()), nl=False)
    else:
        rows = [_cells(row) for row in report.rows]
        rows += [_cells(report.total)] if len(rows) > 1 or hidden else []
        print_table((by.upper(), "CALLS", "INPUT", "CACHED", "OUTPUT", "COST"), rows, _columns())
        if report.total.assumed:
            calls = "call" if report.total.assumed == 1 else "calls"
            click.echo(f"{report.total.assumed:,} {calls} without a reported usage, charged in full")
    for status in report.budgets:
        click.echo(f"today: {budget_text(status)}")
    _print_reserved(report.reserved)


def _columns() -> int | None:
    """Return the width of the terminal; `None` if the output is not one."""
    return get_terminal_size().columns if is_terminal() else None


def _cells(row: UsageRow) -> tuple[str, ...]:
    counts = (row.calls, row.input_tokens, row.cached_tokens, row.output_tokens)
    return clean(row.name), *(f"{count:,}" for count in counts), cost_text(row)


def _row_json(row: UsageRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "calls": row.calls,
        "input_tokens": row.input_tokens,
        "cached_tokens": row.cached_tokens,
        "output_tokens": row.output_tokens,
        "costs": {currency: amount_text(cost) for currency, cost in sorted(row.costs.items())},
        "unpriced": row.unpriced,
        "assumed": row.assumed,
    }


def _budget_json(status: BudgetStatus) -> dict[str, Any]:
    def amount(value: int) -> int | str:
        return amount_text(value) if status.currency else value

    return {
        "limit": status.limit,
        "skill": status.skill or None,
        "cap": amount(status.cap),
        "used": amount(status.used),
        "reserved": amount(status.reserved),
        "currency": status.currency or None,
    }


def _reserved_json(one: OpenReservation) -> dict[str, Any]:
    reserved = one.reserved
    return {
        "run": one.run_id,
        "skill": one.skill,
        "model": reserved.model,
        "day": reserved.day,
        "tokens": reserved.tokens,
        "cost": None if reserved.cost is None else amount_text(reserved.cost),
        "currency": reserved.currency or None,
        "is_executing": one.is_executing,
    }


def _print_reserved(reservations: tuple[OpenReservation, ...]) -> None:
    for one in reservations[:_MAX_RESERVED]:
        reserved, lost = one.reserved, "" if one.is_executing else _LOST
        cost = f", {money_text(reserved.cost, reserved.currency)}" if reserved.cost is not None else ""
        click.echo(f"reserved: run {clean(one.run_id)}: {reserved.tokens:,} tokens{cost}{lost}")
        if not one.is_executing:
            resume, cancel = reyn_command("resume", one.run_id), reyn_command("cancel", one.run_id)
            click.echo(f"    next: {resume}, or {cancel}")
    if len(reservations) > _MAX_RESERVED:
        click.echo(f"reserved: {len(reservations) - _MAX_RESERVED:,} more runs; --json lists all")


@click.command(epilog="Example: reyn context order-17; reyn context order-17 --format svg")
@click.argument("run")
@click.option(
    "--format", "form", type=click.Choice(["text", "svg"]), default="text", show_default=True, help="Output format."
)
@json_option
def context_command(run: str, form: str, as_json: bool) -> None:
    """Show the tokens of each section of a prompt, for the last prompt of each visit of RUN, and truncated sections.

    RUN is an id or a unique prefix. Tokens are estimates, at four characters a token. For a prompt that was truncated,
    they are the counts of its budget. Cached tokens are those that the provider reported.
    """
    with open_existing_project() as runtime:
        visits = list(runtime.runs.visit_contexts(run))
    if as_json:
        for visit in visits:
            print_json(
                {
                    "seq": visit.seq,
                    "phase": visit.phase,
                    "visit": visit.visit,
                    "turns": visit.turns,
                    "tokens": visit.tokens,
                    "input_tokens": visit.input_tokens,
                    "cached_tokens": visit.cached_tokens,
                    "sections": [section_json(section) for section in visit.sections],
                    "budget": budget_json(visit.budget),
                }
            )
    elif form == "svg":
        click.echo(prompts_svg(clean(run), visits), nl=False)
    else:
        click.echo(prompts_text(visits), nl=False)
