"""Commands that list runs and what they used: `runs`, `show`, `usage`, `context`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click
import msgspec
from msgspec.structs import replace

from reyn.characters import clean
from reyn.cli.groups import command
from reyn.cli.options import GROUPINGS, SHOWN_STATUSES, STATUSES, Age, choice_option, json_option, number_option
from reyn.cli.output import (
    age_text,
    charge_text,
    coloured,
    coloured_line,
    command_line,
    now,
    result_as_json,
    result_lines,
    reyn_command,
    short,
    table_lines,
    text_lines,
    time_of,
)
from reyn.cli.project import open_existing_project, open_runs
from reyn.cli.writer import Line, Printed, Raw, Report, Styled, is_terminal, out

if TYPE_CHECKING:
    from reyn.journal import RunRow, Status
    from reyn.journal.family import OpenQuestion
    from reyn.journal.kinds import Question
    from reyn.journal.listing import ShownStatus
    from reyn.journal.port import OpenReservation
    from reyn.journal.results import RunResult
    from reyn.runs.reading import RecordedRuns
    from reyn.runs.timeline import TimelineEntry
    from reyn.runs.usage import BudgetStatus, Grouping, UsageReport, UsageRow

_MANY = 100_000
"""How far runs that are not indexed are counted."""
_HEADER = ("RUN", "SKILL", "STATUS", "SINCE", "WAITING FOR")


class _Listed(NamedTuple):
    """A run with everything that is printed about it."""

    row: RunRow
    depth: int
    display_status: str
    command: str
    question: OpenQuestion | None
    reason: str = ""
    """Why no worker executes it, if it is queued."""

    def as_json(self) -> dict[str, Any]:
        from reyn.journal.results import Cost

        fields: dict[str, Any] = msgspec.to_builtins(self.row)
        fields |= {"display_status": self.display_status, "depth": self.depth, "next": self.command}
        fields["reason"] = self.reason or self.row.reason
        del fields["charge"]
        fields["cost"] = msgspec.to_builtins(Cost.of(self.row.charge))
        if self.question is None:
            return fields | {"question": None}
        asked = {"run_id": self.question.run_id, "is_answered": self.question.is_answered}
        return fields | {"question": msgspec.to_builtins(self.question.question) | asked}

    def cells(self) -> tuple[str | Styled, ...]:
        row = self.row
        since = row.started if self.display_status == "running" else row.updated
        question = short(self.reason, 80) if self.question is None else _question_text(self.question.question)
        suffix = " (reply stored)" if self.question is not None and self.question.is_answered else ""
        run = f"{'  ' * self.depth}{row.run_id}"
        return run, row.skill, coloured(self.display_status), age_text(now() - since), f"{question}{suffix}"


@command(epilog="Example: reyn runs --status waiting --since 2d")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice((*STATUSES, *SHOWN_STATUSES)),
    metavar="STATUS",
    help=f"Only runs with this status. May be repeated. One of {', '.join((*STATUSES, *SHOWN_STATUSES))}.",
)
@click.option("--skill", metavar="NAME", help="Only runs of this skill.")
@click.option("--since", type=Age(), metavar="AGE", help="Only runs with events since AGE: 30m, 2h, 3d, or a date.")
@click.option("--search", default="", metavar="WORDS", help="Only runs that have all these words.")
@number_option("--limit", "Maximum number to list.", default=50, show_default=True, metavar="N")
@click.option("--after", default="", metavar="RUN", help="Only what follows RUN in the list: the next page.")
@click.option("--top", is_flag=True, help="Omit sub-runs.")
@json_option
def runs_command(
    statuses: tuple[str, ...], skill: str | None, since: int | None, search: str, limit: int, after: str, top: bool
) -> Report:
    """List runs, newest first, with status, cost and open question. Sub-runs are indented below their parent.

    Without a filter, --limit does not count sub-runs. --search finds words in the names, the input, the result and the
    reason of a run, without case and accents; `tea` also finds `teapot`.

    With --json, each run also has the id of its question, its origin and the command that continues it.
    """
    from reyn.journal.listing import RunQuery

    runs = open_runs()
    query = RunQuery(cast("tuple[Status | ShownStatus, ...]", statuses), skill, since, top=top, search=search)
    has_filter = query.has_filter
    page = runs.page(query if has_filter else replace(query, top=True), limit=limit, after=after)
    if page.unindexed:
        count = f"{page.unindexed:,} runs or more" if page.unindexed >= _MANY else f"{page.unindexed:,} older runs"
        out.note(f"{count} are not indexed yet, so that a search does not find them; search again")
    if not page.rows:
        is_filtered = has_filter or bool(after)
        return Report([], ["no matching runs" if is_filtered else "no runs; start one with `reyn run SKILL`"])
    below = [] if has_filter or top else [child for row in page.rows for child in runs.descendants(row.run_id)]
    rows = list({row.run_id: row for row in (*page.rows, *below)}.values())
    if not search:
        rows.sort(key=lambda row: (row.started, row.run_id), reverse=True)
    listed = [_describe(runs, row, depth) for row, depth in in_order(rows)]
    if page.next is not None:
        out.note(f"more runs: add `--after {page.next}`")
    return Report([run.as_json() for run in listed], _run_lines(listed))


def _run_lines(listed: list[_Listed]) -> Iterator[Line]:
    """Return the table of runs, with their costs if one of them made a call that was charged."""
    header: tuple[str, ...] = _HEADER
    rows = [run.cells() for run in listed]
    if any(run.row.charge.calls for run in listed):
        header = (*header[:-1], "COST", header[-1])
        rows = [(*cells[:-1], charge_text(run.row.charge), cells[-1]) for run, cells in zip(listed, rows, strict=True)]
    return table_lines(header, rows)


def in_order(rows: list[RunRow]) -> list[tuple[RunRow, int]]:
    """Return each run with its depth. Sub-runs follow their parent in the order in which they started."""
    known = {row.run_id for row in rows}
    children: dict[str, list[RunRow]] = {}
    for row in reversed(rows):
        children.setdefault(row.parent if row.parent in known else "", []).append(row)

    def branch(row: RunRow, depth: int) -> list[tuple[RunRow, int]]:
        return [(row, depth), *(found for child in children.get(row.run_id, ()) for found in branch(child, depth + 1))]

    return [found for row in reversed(children.get("", [])) for found in branch(row, 0)]


def _describe(runs: RecordedRuns, row: RunRow, depth: int) -> _Listed:
    question = runs.open_question(row) if row.status in ("running", "waiting") else None
    status = runs.display_status(row)
    return _Listed(row, depth, status, command_line(runs.next_action(row)), question, _queue_reason(row, status))


def _queue_reason(row: RunRow, status: str) -> str:
    return open_existing_project().workers.reason(row) if status == "queued" else ""


def _question_text(question: Question) -> str:
    if question.is_approval:
        return short(f"approval: {question.message.partition(chr(10))[0]}", 80)
    return short(f"{question.code}: {question.message}" if question.code else question.message, 80)


@command(epilog="Example: reyn show order-17 --json")
@click.argument("run")
@click.option(
    "--thoughts", is_flag=True, help="Show what models thought before their answers, as far as it is readable."
)
@json_option
def show_command(run: str, thoughts: bool) -> Report:
    """Show the visits of RUN with turns, ops, questions and decisions, then the result and the next command.

    RUN is an id or a unique prefix. Each line starts with the event number and the time since the start. Sub-runs have
    their own ids.
    """
    from reyn.journal.summary import to_result
    from reyn.runs.event_lines import duration
    from reyn.runs.timeline import Timeline

    runs = open_runs()
    row = runs.find(run)
    status, action = runs.display_status(row), runs.next_action(row)
    timeline = Timeline(runs.content)
    steps = [entry for event in runs.events(row.run_id) if (entry := timeline.add(event)) is not None]
    summary, files = runs.summary(row.run_id), runs.changed_files(row.run_id)
    result = to_result(summary, runs.content)
    start = steps[0].ts if steps else row.started
    fields: dict[str, Any] = {"skill": row.skill, "display_status": status, "next": command_line(action)}
    fields |= {"files": files, "parent": row.parent, "fork_of": row.fork_of, "imported": row.imported}
    reason = _queue_reason(row, status)
    fields |= {"reason": reason} if reason else {}
    thought = {step.seq: _thoughts(step, runs.content) for step in steps if "thoughts" in step.data} if thoughts else {}
    fields["steps"] = [
        _as_json(step, start) | ({"thoughts": thought[step.seq]} if step.seq in thought else {}) for step in steps
    ]

    def lines() -> Iterator[Printed]:
        yield Line(f"{row.run_id} · {row.skill} · ", coloured(status), f" · started {time_of(start)} UTC")
        if reason:
            yield f"queued: {reason}"
        if row.imported:
            yield f"imported from {row.imported}"
        for step in steps:
            yield Line(f"{step.seq:>6}  {duration(step.ts - start):>8}  ", coloured_line(step), _options(step, result))
            for line in text_lines(thought[step.seq]) if step.seq in thought else ():
                yield f"{'':>20}{line}"
        took = _took(summary.active, row.updated - start)
        yield from result_lines(result, took=took, is_complete=not timeline.unreported, files=files, action=action)

    return Report(result_as_json(result) | fields, lines())


def _took(active: int, total: int) -> str:
    """Return the time of execution, and the total time if the run was also interrupted, stopped or waiting."""
    from reyn.runs.event_lines import duration

    return duration(total) if total - active < 1_000_000 else f"{duration(active)} active of {duration(total)}"


def _options(step: TimelineEntry, result: RunResult) -> str:
    """Return the suggested replies to an earlier question; the result has those to the open one."""
    is_open = result.question is not None and step.data.get("wait") == result.question.id
    texts = () if is_open else step.data.get("suggestions", ())
    return f" (suggested: {', '.join(short(text, 80) for text in texts)})" if texts else ""


_NO_TEXT = "(the provider gives no text of these thoughts)"


def _thoughts(step: TimelineEntry, content: Callable[[str], bytes]) -> str:
    """Return the readable part of the thoughts of a turn."""
    from reyn.models.thoughts import decode_thoughts

    return decode_thoughts(content(step.data["thoughts"])).summary.strip() or _NO_TEXT


def _as_json(step: TimelineEntry, start: int) -> dict[str, Any]:
    return {
        "seq": step.seq,
        "seconds": (step.ts - start) / 1_000_000,
        "type": step.type,
        "text": step.text,
    } | step.data


_MAX_RESERVED = 10
_LOST = " (its process ended during a call, which is charged in full)"


@command(epilog="Example: reyn usage --by skill --since 7d --format svg")
@choice_option("--by", GROUPINGS, "What to group by.")
@click.option("--since", type=Age(), metavar="AGE", help="Only days since AGE: 7d, 4w, or a date.")
@choice_option("--format", ("table", "plot", "svg"), "Output format.")
@number_option("--limit", "Only the N highest groups, or the last N days.", metavar="N")
@json_option
def usage_command(by: str, since: int | None, format: str, limit: int | None) -> Report:
    """Show what model calls used and cost, by day, skill, model or run, and the budgets of today.

    A sub-run counts for its own skill and run. Runs that were deleted since are included, imported runs are not.
    Models that answer at once, such as scripted ones, are counted only under a budget. The total and the budgets do not
    depend on --limit.
    """
    report = open_runs().usage(cast("Grouping", by), since=since)
    hidden = max(0, len(report.rows) - limit) if limit is not None else 0
    if hidden:
        report = replace(report, rows=report.rows[hidden:] if by == "day" else report.rows[:limit])
    value = {
        "by": report.by,
        "rows": [_row_json(row) for row in report.rows],
        "total": _row_json(report.total),
        "today": report.today,
        "budgets": [_budget_json(status) for status in report.budgets],
        "reserved": [_reserved_json(row) for row in report.reserved],
    }
    return Report(value, _usage_lines(report, format, has_total=bool(hidden), is_limited=since is not None))


def _usage_lines(report: UsageReport, form: str, *, has_total: bool, is_limited: bool) -> Iterator[Printed]:
    from reyn.cli.charts import usage_svg, usage_text
    from reyn.runs.usage import budget_text, usage_cells, usage_columns

    if form == "svg":
        yield Raw(usage_svg(report))
        return
    if not report.rows:
        why = "calls of scripted models are counted only under a budget"
        yield "no usage recorded since then" if is_limited else f"no usage recorded; {why}"
    elif form == "plot":
        yield Raw(usage_text(report, get_terminal_size().columns if is_terminal() else None))
    else:
        listed = [*report.rows, report.total] if len(report.rows) > 1 or has_total else report.rows
        names = usage_columns(report)
        rows = [(row.name, *usage_cells(row, names)) for row in listed]
        yield from table_lines((report.by.upper(), *map(str.upper, names)), rows)
        if report.total.assumed:
            calls = "call" if report.total.assumed == 1 else "calls"
            yield f"{report.total.assumed:,} {calls} without a reported usage, charged in full"
    yield from (f"today: {budget_text(status)}" for status in report.budgets)
    yield from _reserved_lines(report.reserved)


def _counts(row: UsageRow) -> dict[str, int]:
    names = ("calls", "input_tokens", "cached_tokens", "output_tokens", "thinking_tokens")
    return {name: getattr(row, name) for name in names}


def _row_json(row: UsageRow) -> dict[str, Any]:
    from reyn.config.budgets import amount_text

    costs = {currency: amount_text(cost) for currency, cost in sorted(row.costs.items())}
    return {"name": row.name, **_counts(row), "costs": costs, "unpriced": row.unpriced, "assumed": row.assumed}


def _budget_json(status: BudgetStatus) -> dict[str, Any]:
    from reyn.config.budgets import amount_text

    amounts = {"cap": status.cap, "used": status.used, "reserved": status.reserved}
    shown = {name: amount_text(value) if status.currency else value for name, value in amounts.items()}
    return {"limit": status.limit, "skill": status.skill or None, **shown, "currency": status.currency or None}


def _reserved_json(one: OpenReservation) -> dict[str, Any]:
    from reyn.config.budgets import amount_text

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


def _reserved_lines(reservations: tuple[OpenReservation, ...]) -> Iterator[str]:
    from reyn.config.budgets import money_text

    for one in reservations[:_MAX_RESERVED]:
        run, reserved, lost = one.run_id, one.reserved, "" if one.is_executing else _LOST
        cost = f", {money_text(reserved.cost, reserved.currency)}" if reserved.cost is not None else ""
        yield f"reserved: run {run}: {reserved.tokens:,} tokens{cost}{lost}"
        if not one.is_executing:
            yield f"    next: {reyn_command('resume', run)}, or {reyn_command('cancel', run)}"
    if len(reservations) > _MAX_RESERVED:
        yield f"reserved: {len(reservations) - _MAX_RESERVED:,} more runs; --json lists all"


@command(epilog="Example: reyn context order-17; reyn context order-17 --format svg")
@click.argument("run")
@choice_option("--format", ("text", "svg"), "Output format.")
@json_option
def context_command(run: str, format: str) -> Report:
    """Show the tokens of each section of a prompt, for the last prompt of each visit of RUN, and truncated sections.

    RUN is an id or a unique prefix. Tokens are estimates, at four characters a token. For a prompt that was truncated,
    they are the counts of its budget. Cached tokens are those that the provider reported.
    """
    from reyn.cli.charts import prompts_svg, prompts_text, visit_json

    visits = list(open_existing_project().runs.visit_contexts(run))
    text = prompts_svg(clean(run), visits) if format == "svg" else prompts_text(visits)
    return Report(map(visit_json, visits), [Raw(text)], each=True)
