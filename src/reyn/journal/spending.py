"""Spending across runs: the balances of budget accounts, and what each run was charged by day and model.

Both follow from the `budget_reserved` and `budget_settled` events of all runs. A journal updates them in the
transaction that stores the events, and rejects a reservation that exceeds a cap, so that processes which share a
journal cannot exceed it together. Spending outlives its run: deleting a run does not refund it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from reyn.errors import BudgetExceeded, EventInvalid
from reyn.journal.kinds import BudgetReserved, BudgetSettled, Draw, Usage

if TYPE_CHECKING:
    from reyn.journal.registry import Body


class Balance(msgspec.Struct, frozen=True):
    """An account: tokens and money that were charged, and what calls in progress have reserved."""

    tokens: int = 0
    cost: int = 0
    reserved_tokens: int = 0
    reserved_cost: int = 0


class SpendRow(msgspec.Struct, frozen=True, array_like=True):
    """The charges of one run on one day for one model.

    Attributes:
        day: The day.
        run_id: The run; it may have been deleted since.
        model: The model.
        currency: The currency of `cost`; empty if the price of the model is unknown.
        skill: The skill of the run.
        calls: The number of attempts, those that the provider rejected included.
        input_tokens: Tokens of prompts.
        output_tokens: Tokens of answers.
        cached_tokens: The part of the input that a prompt cache served.
        thinking_tokens: The part of the output that models thought before their answers, as far as it was reported.
        cost: Money, in billionths of the currency.
        assumed: The calls that were charged in full, because the model reported no usage or their outcome is unknown.
    """

    day: str
    run_id: str
    model: str
    currency: str
    skill: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    thinking_tokens: int = 0
    cost: int = 0
    assumed: int = 0

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.day, self.run_id, self.model, self.currency

    def plus(self, other: SpendRow) -> SpendRow:
        return replace(
            self,
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            thinking_tokens=self.thinking_tokens + other.thinking_tokens,
            cost=self.cost + other.cost,
            assumed=self.assumed + other.assumed,
        )


class Posting:
    """The effect of a batch on one account. `draw` has the caps to check, and `needed` what was reserved last."""

    __slots__ = ("cost", "draw", "needed", "reserved_cost", "reserved_tokens", "tokens")

    def __init__(self) -> None:
        self.tokens = self.cost = self.reserved_tokens = self.reserved_cost = 0
        self.draw: Draw | None = None
        self.needed = (0, 0)

    def added_to(self, balance: Balance) -> Balance:
        """Return the balance after the batch."""
        return Balance(
            balance.tokens + self.tokens,
            balance.cost + self.cost,
            balance.reserved_tokens + self.reserved_tokens,
            balance.reserved_cost + self.reserved_cost,
        )


SPENDING = frozenset((BudgetReserved, BudgetSettled))


class Postings(NamedTuple):
    """The effects of a batch on accounts, and its charges."""

    accounts: dict[str, Posting]
    rows: list[SpendRow]


def postings(run_id: str, skill: str, reserved: BudgetReserved | None, bodies: Sequence[Body]) -> Postings | None:
    """Return the effects of a run's events on spending; `None` if they have none.

    Args:
        run_id: The run.
        skill: Its skill.
        reserved: The open reservation before the events.
        bodies: The data of the events.

    Raises:
        EventInvalid: A settlement without its reservation, or a second reservation.
    """
    bodies = [body for body in bodies if type(body) in SPENDING]
    if not bodies:
        return None
    accounts: dict[str, Posting] = {}
    rows: list[SpendRow] = []
    for body in bodies:
        if type(body) is BudgetReserved:
            if reserved is not None:
                raise EventInvalid(f"run `{run_id}` reserves a budget for `{body.call}` before `{reserved.call}` ends")
            reserved = body
            _reserve(accounts, body)
        elif type(body) is BudgetSettled:
            if reserved is None or (reserved.call, reserved.attempt) != (body.call, body.attempt):
                raise EventInvalid(f"run `{run_id}` settles call `{body.call}`, for which nothing is reserved")
            _settle(accounts, reserved, body)
            rows.append(_row(run_id, skill, reserved, body))
            reserved = None
    return Postings(accounts, rows)


def _reserve(accounts: dict[str, Posting], reserved: BudgetReserved) -> None:
    tokens, cost = reserved.tokens, reserved.cost or 0
    for draw in reserved.draws:
        posting = accounts.get(draw.account) or accounts.setdefault(draw.account, Posting())
        posting.reserved_tokens += tokens
        posting.reserved_cost += cost
        if draw.tokens is not None or draw.cost is not None:
            posting.draw, posting.needed = draw, (tokens, cost)


def _settle(accounts: dict[str, Posting], reserved: BudgetReserved, settled: BudgetSettled) -> None:
    tokens, cost, usage, charged = reserved.tokens, reserved.cost or 0, settled.usage.total, settled.cost or 0
    for draw in reserved.draws:
        posting = accounts.get(draw.account) or accounts.setdefault(draw.account, Posting())
        posting.tokens += usage
        posting.cost += charged
        posting.reserved_tokens -= tokens
        posting.reserved_cost -= cost


def _row(run_id: str, skill: str, reserved: BudgetReserved, settled: BudgetSettled) -> SpendRow:
    usage = settled.usage
    return SpendRow(
        reserved.day,
        run_id,
        reserved.model,
        reserved.currency,
        skill,
        1,
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.thinking_tokens,
        settled.cost or 0,
        int(settled.is_assumed),
    )


def in_full(reserved: BudgetReserved, basis: Literal["no_usage", "unknown"] = "unknown") -> BudgetSettled:
    """Return the settlement of a call whose usage or outcome is unknown: the provider may have charged all of it."""
    usage = Usage(reserved.input_tokens, reserved.output_tokens)
    return BudgetSettled(reserved.call, reserved.attempt, usage, basis, reserved.cost)


def not_billed(reserved: BudgetReserved) -> BudgetSettled:
    """Return the settlement of a call that was not sent, or that the provider rejected."""
    cost = None if reserved.cost is None else 0
    return BudgetSettled(reserved.call, reserved.attempt, Usage(), "not_billed", cost)


def check_cap(posting: Posting, after: Balance) -> None:
    """Check the caps of an account after a reservation. Raises `BudgetExceeded`."""
    draw = posting.draw
    if draw is None:
        return
    tokens, cost = posting.needed
    if draw.tokens is not None and after.tokens + after.reserved_tokens > draw.tokens:
        others = after.reserved_tokens - tokens
        raise BudgetExceeded(draw.account, f"{draw.scope}_tokens", draw.tokens, after.tokens, others, tokens)
    if draw.cost is not None and after.cost + after.reserved_cost > draw.cost:
        others = after.reserved_cost - cost
        raise BudgetExceeded(draw.account, f"{draw.scope}_cost", draw.cost, after.cost, others, cost)


def run_accounts(run_id: str) -> tuple[str, str]:
    """Return the accounts of a run: of its budget, and of its skill's budget for a run."""
    return f"run:{run_id}", f"skill:{run_id}"
