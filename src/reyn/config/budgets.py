"""Budgets and prices: the keys of `reyn.yaml`, and the caps that follow from them in exact integers.

A number in YAML is converted by its decimal text, so `0.1` is a tenth. Money is counted in billionths of the currency.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from decimal import ROUND_FLOOR, Decimal
from typing import Annotated, ClassVar, Literal

import msgspec

from reyn.documents.trust_classes import TrustClasses, trust_classes
from reyn.documents.unicode_forms import to_normal_form

DAY_LIMITS = ("day_tokens", "day_cost", "skill_day_tokens", "skill_day_cost")
BUDGET_LIMITS = ("run_tokens", "run_cost", "skill_tokens", "skill_cost", *DAY_LIMITS)
"""The limits that a budget sets. A call that could exceed one is not made."""
MESSAGE_LIMITS = ("message_runs", "message_depth", "message_tokens", "sub_runs", "model_calls")
"""The limits on what one message of a person, or the start of a run, may lead to."""
NANO = 1_000_000_000
"""Units of money in one unit of the currency."""
MAX_AMOUNT = 9_000_000
"""The largest amount of money; its billionths are exact in any JSON reader."""

Amount = Annotated[float, msgspec.Meta(ge=0, le=MAX_AMOUNT)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]
TokenCap = Annotated[int, msgspec.Meta(gt=0, le=2**53)]
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

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="input output cached_input cache_write currency")

    input: Amount
    output: Amount
    cached_input: Amount | None = None
    cache_write: Amount | None = None
    currency: Currency | None = None


class BudgetSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The caps of one budget."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="tokens cost")

    tokens: TokenCap | None = None
    cost: Amount | None = None


class SkillBudgetSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The budgets of one skill: of each of its runs, and of all of them on one day."""

    TRUST: ClassVar[TrustClasses] = trust_classes(section="run day")

    run: BudgetSettings = BudgetSettings()
    day: BudgetSettings = BudgetSettings()


class BudgetsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The budgets of a project."""

    TRUST: ClassVar[TrustClasses] = trust_classes(section="run day skill", plain="currency currencies timezone")

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


NO_CAPS = Caps()


def skill_caps(settings: BudgetsSettings, scope: Literal["run", "day"]) -> dict[str, Caps]:
    """Return the caps of skills that have any, by their names in Unicode normalization form C, like those of skills."""
    caps_of: dict[str, Caps] = {}
    for name, one in sorted(settings.skill.items()):
        if caps := Caps.of(one.run if scope == "run" else one.day):
            caps_of[to_normal_form("NFC", name)] = caps
    return caps_of


class DayBudgets:
    """The budgets of a day, of all runs and of the runs of a skill, and the accounts that they are counted in.

    Attributes:
        currency: The currency of all costs.
    """

    def __init__(self, settings: BudgetsSettings) -> None:
        self.currency: str = settings.currency
        self._zone = _zone(settings.timezone)
        self._day = Caps.of(settings.day)
        self._skill_days = skill_caps(settings, "day")
        self.has_caps = bool(self._day or self._skill_days)
        """Whether the tokens or the cost of a day are capped."""
        # Amounts of two currencies do not add up: each currency has its own accounts.
        self._suffix = "" if settings.currency == "USD" else f":{settings.currency}"

    def day(self, ts: int) -> str:
        """Return the day of a time, as `2026-11-16`."""
        return datetime.fromtimestamp(ts / 1_000_000, self._zone).date().isoformat()

    def account_of(self, day: str, skill: str = "") -> str:
        """Return the account of a day, or of a skill on that day."""
        return f"day:{day}:{skill}{self._suffix}" if skill else f"day:{day}{self._suffix}"

    @property
    def skills(self) -> tuple[str, ...]:
        """The skills that have a budget of a day."""
        return tuple(self._skill_days)

    def day_caps(self, skill: str = "") -> Caps:
        """Return the caps of a day, or of a skill on a day."""
        return self._skill_days.get(skill, NO_CAPS) if skill else self._day


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def to_nano(amount: float) -> int:
    """Return an amount of money in billionths, exactly as it is written in decimals."""
    return int((Decimal(repr(amount)) * NANO).to_integral_value(ROUND_FLOOR))


def limit_text(limit: str, value: int) -> str:
    """Format the value of a limit as `--raise` takes it: money in units of its currency."""
    return amount_text(value) if limit.endswith("_cost") else str(value)


def money_text(nano: int, currency: str) -> str:
    """Format billionths of a currency: `0.0125 USD`. Cents are always shown, further decimals if there are any."""
    whole, rest = divmod(abs(nano), NANO)
    decimals = f"{rest:09}".rstrip("0").ljust(2, "0")
    return f"{'-' if nano < 0 else ''}{whole:,}.{decimals} {currency}".rstrip()


def amount_text(nano: int) -> str:
    """Return billionths as a plain decimal number: `0.0125`. It is exact, whatever reads it."""
    whole, rest = divmod(nano, NANO)
    return f"{whole}.{rest:09}".rstrip("0") if rest else str(whole)
