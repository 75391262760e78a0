"""What model calls were charged, grouped by day, skill, model or run, and the budgets of today."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from reyn.cells import ACCENT, MAX_LINES, Html, InNotebook, MimeBundle, aligned, bundle, element, html_table, mimebundle
from reyn.config.budgets import money_text
from reyn.journal.port import OpenReservation, open_reservations
from reyn.journal.spending import run_accounts

if TYPE_CHECKING:
    from reyn.config.budgets import Caps, DayBudgets
    from reyn.journal import Journal, SpendRow, kinds
    from reyn.kernel.world.budgets import BudgetedRun, Budgets

Grouping = Literal["day", "skill", "model", "run"]
GROUPINGS: tuple[Grouping, ...] = ("day", "skill", "model", "run")


class UsageRow(msgspec.Struct, frozen=True):
    """The charges of one group.

    Attributes:
        name: The day, skill, model or run.
        calls: The number of calls, with retries.
        input_tokens: Tokens of prompts.
        output_tokens: Tokens of answers.
        cached_tokens: The part of the input that a prompt cache served.
        thinking_tokens: The part of the output that models thought before their answers, as far as it was reported.
        costs: Billionths of each currency, by currency.
        unpriced: The calls whose price is unknown.
        assumed: The calls that were charged in full, because the model reported no usage or the answer was lost.
    """

    name: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    thinking_tokens: int = 0
    costs: dict[str, int] = {}
    unpriced: int = 0
    assumed: int = 0

    @property
    def tokens(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens

    def plus(self, charge: SpendRow) -> UsageRow:
        """Add a charge."""
        costs = dict(self.costs)
        if charge.currency:
            costs[charge.currency] = costs.get(charge.currency, 0) + charge.cost
        return UsageRow(
            self.name,
            self.calls + charge.calls,
            self.input_tokens + charge.input_tokens,
            self.output_tokens + charge.output_tokens,
            self.cached_tokens + charge.cached_tokens,
            self.thinking_tokens + charge.thinking_tokens,
            costs,
            self.unpriced + (0 if charge.currency else charge.calls),
            self.assumed + charge.assumed,
        )


class BudgetStatus(msgspec.Struct, frozen=True):
    """A budget: the `limit` to raise, its `cap`, and what is `used` and `reserved` of it."""

    limit: str
    skill: str
    cap: int
    used: int
    reserved: int
    currency: str = ""


class UsageReport(InNotebook, msgspec.Struct, frozen=True):
    """The charges by group, their sum, the budgets of today, and what calls in progress have reserved."""

    by: Grouping
    rows: tuple[UsageRow, ...]
    total: UsageRow
    today: str
    budgets: tuple[BudgetStatus, ...] = ()
    reserved: tuple[OpenReservation, ...] = ()


def cost_text(row: UsageRow) -> str:
    """Format the cost of a group: `0.12 USD`, `unknown`, or the sum with the number of calls without a price."""
    known = " + ".join(money_text(rounded(cost), currency) for currency, cost in sorted(row.costs.items()))
    if not known:
        return "unknown"
    return f"{known} + {row.unpriced} unpriced" if row.unpriced else known


def rounded(nano: int) -> int:
    """Round to six decimals, for people."""
    return round(nano / 1000) * 1000


def budget_text(status: BudgetStatus) -> str:
    """Format a budget: what is used of it, and what calls in progress have reserved."""

    def amount(value: int) -> str:
        return money_text(value, status.currency) if status.currency else f"{value:,} tokens"

    skill = f" of skill {status.skill}" if status.skill else ""
    held = f", {amount(status.reserved)} reserved" if status.reserved else ""
    return f"{status.limit}{skill}: {amount(status.used)} of {amount(status.cap)}{held}"


_COLUMNS = {"calls": "calls", "input": "input_tokens", "cached": "cached_tokens", "output": "output_tokens"}
_THOUGHTS = {"thoughts": "thinking_tokens"}


def usage_columns(report: UsageReport) -> tuple[str, ...]:
    """Return the names of the columns of a table; thoughts, a part of the output, have one if there are some."""
    return (*_COLUMNS, *(_THOUGHTS if report.total.thinking_tokens else ()), "cost")


def usage_cells(row: UsageRow, columns: Iterable[str]) -> tuple[str, ...]:
    """Return the cells of a row of the table, without its name."""
    fields = _COLUMNS | _THOUGHTS
    return tuple(f"{getattr(row, fields[name]):,}" if name in fields else cost_text(row) for name in columns)


@mimebundle.register(UsageReport)
def _(report: UsageReport) -> MimeBundle:
    listed = report.rows[-MAX_LINES:] if report.by == "day" else report.rows[:MAX_LINES]
    most = max((row.tokens for row in listed), default=0) or 1
    columns = usage_columns(report)
    rows = [(row, usage_cells(row, columns)) for row in (*listed, report.total)]
    hidden = len(report.rows) - len(listed)
    notes = [] if report.rows else ["no usage recorded"]
    notes += [f"{hidden:,} more"] if hidden else []
    notes += [budget_text(status) for status in report.budgets[:MAX_LINES]]
    text = aligned([(report.by, *columns), *((row.name, *cells) for row, cells in rows)])
    bars = [(row.name, *cells, _bar(row.tokens / most) if row is not report.total else "") for row, cells in rows]
    html = html_table((report.by, *columns, "tokens"), bars)
    return bundle("\n".join((text, *notes)), html, *(element("div", note) for note in notes))


def _bar(part: float) -> Html:
    style = f"display: inline-block; width: {100 * part:.0f}px; height: 10px; background: {ACCENT}"
    return element("span", "", style=style)


def usage_report(journal: Journal, budgets: DayBudgets, by: Grouping, *, since: str, now: int) -> UsageReport:
    """Return what was charged from a day on.

    Args:
        journal: The journal.
        budgets: The budgets of the project.
        by: What to group by. Days are in order; other groups have the highest cost first.
        since: The first day, as `2026-11-16`; empty for all.
        now: The time.
    """
    charges = journal.charges(since)
    rows = list(_grouped(charges, by))
    if by != "day":
        rows.sort(key=lambda row: (-sum(row.costs.values()), -row.tokens, row.name))
    total = UsageRow("total")
    for charge in charges:
        total = total.plus(charge)
    today = budgets.day(now)
    statuses = tuple(_budgets_of(journal, budgets, today))
    return UsageReport(by, tuple(rows), total, today, statuses, tuple(open_reservations(journal)))


def _grouped(charges: Iterable[SpendRow], by: Grouping) -> Iterable[UsageRow]:
    groups: dict[str, UsageRow] = {}
    for charge in charges:
        name = {"day": charge.day, "skill": charge.skill, "model": charge.model, "run": charge.run_id}[by]
        groups[name] = groups.get(name, UsageRow(name)).plus(charge)
    return groups.values()


def run_budgets(
    journal: Journal, budgets: Budgets, own: BudgetedRun, above: tuple[BudgetedRun, ...], now: int
) -> tuple[BudgetStatus, ...]:
    """Return the budgets that the next model call of a run draws on: those of runs, of skills, and of the day."""
    skills = {budgets.account_of(budgets.day(now), run.skill): run.skill for run in (own, *above)}
    skills |= {run_accounts(run.run_id)[1]: run.skill for run in (own, *above)}
    draws = budgets.draws(own, above, now).accounts
    return tuple(
        status
        for draw in draws
        for status in _statuses(journal, budgets, draw.scope, skills.get(draw.account, ""), draw.account, draw)
    )


def _budgets_of(journal: Journal, budgets: DayBudgets, day: str) -> Iterable[BudgetStatus]:
    for skill in ("", *budgets.skills):
        account, scope = budgets.account_of(day, skill), "skill_day" if skill else "day"
        yield from _statuses(journal, budgets, scope, skill, account, budgets.day_caps(skill))


def _statuses(
    journal: Journal, budgets: DayBudgets, scope: str, skill: str, account: str, caps: Caps | kinds.Draw
) -> Iterable[BudgetStatus]:
    """Yield the budgets of one account: of tokens and of money, if it has them."""
    balance = journal.balance(account)
    if caps.tokens is not None:
        yield BudgetStatus(f"{scope}_tokens", skill, caps.tokens, balance.tokens, balance.reserved_tokens)
    if caps.cost is not None:
        used, reserved = balance.cost, balance.reserved_cost
        yield BudgetStatus(f"{scope}_cost", skill, caps.cost, used, reserved, budgets.currency)
