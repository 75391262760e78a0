"""Events of budgets: what a model call may use at most, what it was charged, and why a call was refused.

Money is counted in billionths of the project's currency, so that every sum is an exact integer.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from reyn.journal.kinds.shapes import Count, Usage
from reyn.journal.registry import Body, event

BudgetScope = Literal["run", "skill", "day", "skill_day"]
"""What a budget limits: one run with its sub-runs, a run of one skill, all runs of a day, those of one skill."""


class PriceTier(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The prices of a call whose prompt has more than `above` tokens. They apply to all of its tokens."""

    above: Count
    input: Count
    output: Count
    cached_input: Count | None = None
    cache_write: Count | None = None


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The price of a million tokens, in billionths of `currency`.

    Without `cached_input` and `cache_write`, input tokens that a prompt cache served or stored cost as much as others.
    `source` names the table with its version, or the configuration.
    """

    currency: str
    input: Count
    output: Count
    cached_input: Count | None = None
    cache_write: Count | None = None
    source: str = ""
    tiers: tuple[PriceTier, ...] = ()


class Draw(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An account that a call draws on, and its caps; null if the account only counts."""

    account: str
    scope: BudgetScope
    tokens: Count | None = None
    cost: Count | None = None


@event("budget_reserved", v=1, origin="outside")
class BudgetReserved(Body, frozen=True):
    """The most that the next attempt of a model call can use was reserved, in the commit of its `llm_requested`.

    `attempt` counts the attempts of the call, with retries and fallbacks. `input_tokens` is an upper bound of the
    prompt, `output_tokens` the most that the model may answer. `cost` is their price; null if the price is unknown.
    `day` is the day that is charged, whenever the call ends. `draws` are the accounts with their caps. `waited_ms` is
    how long the call waited until other calls released what they had reserved.
    """

    call: str
    attempt: Count
    model: str
    day: str
    input_tokens: Count
    output_tokens: Count
    cost: Count | None = None
    price: Price | None = None
    draws: tuple[Draw, ...] = ()
    waited_ms: Count = 0

    @property
    def currency(self) -> str:
        """The currency of the price; empty if the price is unknown."""
        return self.price.currency if self.price is not None else ""

    @property
    def tokens(self) -> int:
        """The tokens reserved."""
        return self.input_tokens + self.output_tokens

    @property
    def is_capped(self) -> bool:
        """Whether one of the accounts has a cap."""
        return self.caps_tokens or any(draw.cost is not None for draw in self.draws)

    @property
    def caps_tokens(self) -> bool:
        """Whether one of the accounts has a cap on tokens."""
        return any(draw.tokens is not None for draw in self.draws)


@event("budget_settled", v=1, origin="outside")
class BudgetSettled(Body, frozen=True):
    """An attempt of a model call was charged to the accounts of its reservation, and the rest was released.

    `usage` is what was charged, `cost` its price; null if the price is unknown. `basis` is `usage` if the model
    reported it, `no_usage` if it reported none or an invalid one, `unknown` if the outcome of the call is not known;
    both are charged in full. `not_billed` is an attempt that the provider rejected. `over` is by how many tokens the
    model exceeded its reservation.
    """

    call: str
    attempt: Count
    usage: Usage
    basis: Literal["usage", "no_usage", "unknown", "not_billed"]
    cost: Count | None = None
    over: Count = 0

    @property
    def is_assumed(self) -> bool:
        """Whether the call was charged in full, because its usage or its outcome is unknown."""
        return self.basis in ("no_usage", "unknown")


class Holder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A run that has reserved a part of an account. `interrupted` if no process executed it any more."""

    run: str
    amount: Count
    interrupted: bool = False


@event("budget_refused", v=1, origin="outcome")
class BudgetRefused(Body, frozen=True):
    """A model call was not made, because a budget does not cover the most that it can use.

    `limit` is the limit to raise and `cap` its value. `used` is what was charged to `account` so far, `reserved` what
    other calls in progress may still use, and `needed` what this call could use: tokens, or billionths of the currency.
    `holders` are the runs with the largest parts of `reserved`, first those that were interrupted during a call.
    """

    call: str
    attempt: Count
    model: str
    limit: str
    account: str
    cap: Count
    used: Count
    reserved: Count
    needed: Count
    currency: Annotated[str, msgspec.Meta(max_length=3)] = ""
    holders: tuple[Holder, ...] = ()
