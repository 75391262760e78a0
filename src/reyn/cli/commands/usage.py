"""`reyn usage`."""

from __future__ import annotations

from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, cast

import click
from msgspec.structs import replace

from reyn.cli.ages import Age
from reyn.cli.output import budget_text, clean, is_terminal, json_option, print_json, print_table, reyn_command
from reyn.cli.project import open_existing_project
from reyn.cli.usage_plot import cost_text, to_svg, to_text
from reyn.config.budgets import amount_text, money_text
from reyn.runs.usage import GROUPINGS

if TYPE_CHECKING:
    from reyn.runs.usage import BudgetStatus, Grouping, ReservedRow, UsageRow

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
def command(by: str, since: int | None, form: str, limit: int | None, as_json: bool) -> None:
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
        click.echo(to_svg(report), nl=False)
        return
    if not report.rows:
        click.echo(
            "no usage recorded; calls of scripted models are counted only under a budget"
            if since is None
            else "no usage recorded since then"
        )
    elif form == "plot":
        click.echo(to_text(report, _columns()), nl=False)
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


def _reserved_json(row: ReservedRow) -> dict[str, Any]:
    return {
        "run": row.run,
        "skill": row.skill,
        "model": row.model,
        "day": row.day,
        "tokens": row.tokens,
        "cost": None if row.cost is None else amount_text(row.cost),
        "currency": row.currency or None,
        "is_executing": row.is_executing,
    }


def _print_reserved(rows: tuple[ReservedRow, ...]) -> None:
    for row in rows[:_MAX_RESERVED]:
        cost = f", {money_text(row.cost, row.currency)}" if row.cost is not None else ""
        click.echo(f"reserved: run {clean(row.run)}: {row.tokens:,} tokens{cost}{'' if row.is_executing else _LOST}")
        if not row.is_executing:
            resume, cancel = reyn_command("resume", row.run), reyn_command("cancel", row.run)
            click.echo(f"    next: {resume}, or {cancel}")
    if len(rows) > _MAX_RESERVED:
        click.echo(f"reserved: {len(rows) - _MAX_RESERVED:,} more runs; --json lists all")
