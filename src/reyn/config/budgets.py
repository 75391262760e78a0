"""Budgets and prices: the keys of `reyn.yaml`, and the caps that follow from them in exact integers.

A number in YAML is converted by its decimal text, so `0.1` is a tenth. Money is counted in billionths of the currency.
"""

from __future__ import annotations

import unicodedata
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Annotated, Literal

import msgspec

NANO = 1_000_000_000
"""Units of money in one unit of the currency."""
MAX_AMOUNT = 9_000_000
"""The largest amount of money; its billionths are exact in any JSON reader."""

Amount = Annotated[float, msgspec.Meta(ge=0, le=MAX_AMOUNT)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]
Positive = Annotated[int, msgspec.Meta(gt=0, le=2**53)]
Currency = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Z]{3}\Z", description="the three letters of a currency, such as `USD`")
]
Timezone = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}\Z",
        description="the name of a time zone, such as `UTC` or `Europe/Berlin`",
    ),
]


class PriceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The price of a model, for a million tokens."""

    input: Amount
    output: Amount
    cached_input: Amount | None = None
    cache_write: Amount | None = None
    currency: Currency | None = None


class BudgetSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The caps of one budget."""

    tokens: Positive | None = None
    cost: Amount | None = None


class SkillBudgetSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The budgets of one skill: of each of its runs, and of all of them on one day."""

    run: BudgetSettings = BudgetSettings()
    day: BudgetSettings = BudgetSettings()


class BudgetsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The budgets of a project."""

    run: BudgetSettings = BudgetSettings()
    day: BudgetSettings = BudgetSettings()
    skill: dict[str, SkillBudgetSettings] = {}
    currency: Currency = "USD"
    currencies: dict[Currency, Rate] = {}
    timezone: Timezone = "UTC"


class Caps(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The caps of a budget: tokens, and billionths of the currency. `None` is no cap."""

    tokens: int | None = None
    cost: int | None = None

    @classmethod
    def of(cls, settings: BudgetSettings) -> Caps:
        """Return the caps of a budget as it is configured."""
        return cls(settings.tokens, None if settings.cost is None else to_nano(settings.cost))

    def __bool__(self) -> bool:
        return self.tokens is not None or self.cost is not None


def skill_caps(settings: BudgetsSettings, scope: Literal["run", "day"]) -> dict[str, Caps]:
    """Return the caps of skills that have any, by their names in Unicode normalization form C, like those of skills."""
    caps_of: dict[str, Caps] = {}
    for name, one in sorted(settings.skill.items()):
        if caps := Caps.of(one.run if scope == "run" else one.day):
            caps_of[unicodedata.normalize("NFC", name)] = caps
    return caps_of


def to_nano(amount: float, *, rounds_up: bool = False) -> int:
    """Return an amount of money in billionths, exactly as it is written in decimals."""
    rounding = ROUND_CEILING if rounds_up else ROUND_FLOOR
    return int((Decimal(repr(amount)) * NANO).to_integral_value(rounding))


def money_text(nano: int, currency: str) -> str:
    """Format billionths of a currency: `0.0125 USD`. Cents are always shown, further decimals if there are any."""
    whole, rest = divmod(abs(nano), NANO)
    decimals = f"{rest:09}".rstrip("0").ljust(2, "0")
    return f"{'-' if nano < 0 else ''}{whole:,}.{decimals} {currency}".rstrip()


def amount_text(nano: int) -> str:
    """Return billionths as a plain decimal number: `0.0125`. It is exact, whatever reads it."""
    whole, rest = divmod(nano, NANO)
    return f"{whole}.{rest:09}".rstrip("0") if rest else str(whole)
