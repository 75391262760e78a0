"""Prices of models, and the most tokens that a call can use, for the reservation of a budget.

A price is declared in the configuration, or comes from the table of the package `genai-prices` (extra `prices`).

Costs are exact integers in billionths of the project's currency, rounded up once per call. The table is part of the
package, so looking up a price needs no network. A run records the price of each call; replay does not look it up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config.budgets import NANO, PriceSettings
from reyn.errors import CurrencyUnknown, PriceInvalid
from reyn.journal import canonical
from reyn.journal.kinds import Price, PriceTier, Usage
from reyn.models.protocol import BoundsUsage, DeclaresPrice, DeclaresSettings, Model, ModelRequest

if TYPE_CHECKING:
    from reyn.config import ModelSettings
    from reyn.models.messages import Message

FREE_ADAPTERS = ("local", "scripted", "recorded")
"""Adapters without a provider: their calls cost nothing."""
_PROVIDERS = {"openai": "openai", "anthropic": "anthropic", "gemini": "google", "litellm": "litellm"}
"""The provider of an adapter in the price table, if the model has no `base_url`."""
_MILLION = 1_000_000
_TABLE_CURRENCY = "USD"


class Prices:
    """The prices of a project, in its own currency.

    Args:
        currency: The project's currency.
        rates: The value of one unit of other currencies in it.
    """

    def __init__(self, currency: str = "USD", rates: Mapping[str, float] | None = None) -> None:
        self.currency = currency
        self._rates = rates or {}
        self._declared: dict[tuple[PriceSettings, str], Price] = {}
        self._listed: dict[tuple[str, str | None], Any] = {}
        self._converted: dict[int, tuple[Any, Price | None]] = {}

    def of(
        self, settings: ModelSettings | None, model: Model | None, now: int, *, is_override: bool = True
    ) -> Price | None:
        """Return the price of a model at a time; `None` if it is unknown.

        A model that the caller passed as an object knows its price best. For one that the configuration names, a price
        in the configuration comes before the one that its class declares.

        Args:
            settings: The settings of the model.
            model: The model, which may declare its price; `None` if it is not opened.
            now: Microseconds since 1970.
            is_override: Whether the caller passed the model as an object.

        Raises:
            CurrencyUnknown: The price is in a currency without a rate.
        """
        if is_override and model is not None:
            if isinstance(model, DeclaresPrice):
                return self._from_settings(model.price, "the model")
            if settings is None and isinstance(model, DeclaresSettings):
                settings = model.settings
        if settings is None:
            return None
        if settings.price is not None:
            return self._from_settings(settings.price, "reyn.yaml")
        own = getattr(model, "price", None)  # asking the protocol takes longer than the lookup
        if isinstance(own, PriceSettings):
            return self._from_settings(own, "the model")
        if (model is None or not is_override) and settings.model.partition(":")[0] in FREE_ADAPTERS:
            return self._from_settings(_FREE, "no provider")
        return self._from_table(settings, now)

    def _from_settings(self, price: PriceSettings, source: str) -> Price:
        if not isinstance(price, PriceSettings):
            raise PriceInvalid(f"the price that the model declares is no `PriceSettings`: {price!r:.100}")
        key = (price, source)
        if key not in self._declared:
            _check(price)
            currency = price.currency or self.currency
            rate, note = self._rate(currency)
            self._declared[key] = Price(
                self.currency,
                _per_million(price.input, rate),
                _per_million(price.output, rate),
                None if price.cached_input is None else _per_million(price.cached_input, rate),
                None if price.cache_write is None else _per_million(price.cache_write, rate),
                source + note,
            )
        return self._declared[key]

    def _rate(self, currency: str) -> tuple[Decimal, str]:
        """Return the value of a currency in the project's own, and a note for the source of the price."""
        if currency == self.currency:
            return Decimal(1), ""
        if currency not in self._rates:
            raise CurrencyUnknown(f"a price is in {currency}, and the budgets are in {self.currency}")
        rate = self._rates[currency]
        return Decimal(repr(rate)), f", {currency} at {rate!r}"

    def _from_table(self, settings: ModelSettings, now: int) -> Price | None:
        key = (settings.model, settings.base_url)
        if key not in self._listed:
            self._listed[key] = _find(settings.model, settings.base_url)
        listed = self._listed[key]
        if listed is None:
            return None
        prices = listed.get_prices(datetime.fromtimestamp(now / 1_000_000, UTC))
        known = self._converted.get(id(prices))
        if known is None or known[0] is not prices:
            known = self._converted[id(prices)] = (prices, self._convert(prices))
        return known[1]

    def _convert(self, found: Any) -> Price | None:
        """Return a price of the table as a value; `None` if it has none for input or output tokens."""
        rate, note = self._rate(_TABLE_CURRENCY)
        names = {"input": "input_mtok", "output": "output_mtok", "cached_input": "cache_read_mtok"}
        # A provider that charges for cached prompts by their lifetime is taken at the highest price.
        listed = {key: getattr(found, name, None) for key, name in names.items()}
        writes = [getattr(found, name, None) for name in ("cache_write_mtok", "cache_1h_write_mtok")]
        listed["cache_write"] = max(filter(None, writes), key=_base, default=None)
        if listed["input"] is None or listed["output"] is None:
            return None
        starts = sorted({tier.start for one in listed.values() for tier in getattr(one, "tiers", ())})
        tiers = tuple(
            PriceTier(start, **{key: _at(one, start + 1, rate) for key, one in listed.items()}) for start in starts
        )
        base = {key: _at(one, 0, rate) for key, one in listed.items()}
        return Price(self.currency, **base, source=f"genai-prices {_table_version()}{note}", tiers=tiers)


_FREE = PriceSettings(0.0, 0.0)


def _check(price: PriceSettings) -> None:
    """Check the amounts of a price, which a class of Python code may have declared. Raises `PriceInvalid`."""
    try:
        msgspec.convert(msgspec.structs.asdict(price), PriceSettings)
        amounts = (price.input, price.output, price.cached_input, price.cache_write)
        is_finite = all(math.isfinite(amount) for amount in amounts if amount is not None)
    except (msgspec.ValidationError, TypeError) as error:
        raise PriceInvalid(f"the price that the model declares is invalid: {error}") from error
    if not is_finite:
        raise PriceInvalid(f"the price that the model declares is invalid: {price}")


def _base(listed: Any) -> Decimal:
    base: Decimal = getattr(listed, "base", listed)
    return base


def _at(listed: Any, tokens: int, rate: Decimal) -> Any:
    """Return a listed price for a prompt of this length, in billionths; `None` if there is none."""
    if listed is None:
        return None
    amount = _base(listed)
    for tier in getattr(listed, "tiers", ()):
        if tokens > tier.start:
            amount = tier.price
    return _round_up(amount * rate * NANO)


def _per_million(amount: float, rate: Decimal) -> int:
    return _round_up(Decimal(repr(amount)) * rate * NANO)


def _round_up(amount: Decimal) -> int:
    return int(amount.to_integral_value(ROUND_CEILING))


def is_table_installed() -> bool:
    """Return whether the price table is installed."""
    from importlib.util import find_spec

    return find_spec("genai_prices") is not None


@cache
def _table_version() -> str:
    from importlib.metadata import version

    return version("genai-prices")


def _find(model: str, base_url: str | None) -> Any:
    """Return the entry of a model in the price table; `None` if there is none."""
    adapter, _, name = model.partition(":")
    provider = None if base_url else _PROVIDERS.get(adapter)
    if (provider is None and base_url is None) or not is_table_installed():
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(name, None, provider, base_url)[1]
    except LookupError:
        return None


def cost_of(price: Price, usage: Usage) -> int:
    """Return the cost of a call, in billionths of the currency."""
    level: Price | PriceTier = price
    for tier in price.tiers:
        if usage.input_tokens > tier.above:
            level = tier
    cached = min(usage.cached_tokens, usage.input_tokens)
    written = min(usage.cache_write_tokens, usage.input_tokens - cached)
    amount = (
        (usage.input_tokens - cached - written) * level.input
        + cached * (level.input if level.cached_input is None else level.cached_input)
        + written * (level.input if level.cache_write is None else level.cache_write)
        + usage.output_tokens * level.output
    )
    return -(-amount // _MILLION)


def highest_cost(price: Price, input_tokens: int, output_tokens: int) -> int:
    """Return the most that a call with at most so many tokens can cost."""
    most = _highest(price, input_tokens, output_tokens)
    for tier in price.tiers:
        if input_tokens > tier.above:
            most = max(most, _highest(tier, input_tokens, output_tokens))
    return -(-most // _MILLION)


def _highest(level: Price | PriceTier, input_tokens: int, output_tokens: int) -> int:
    highest = max(level.input, level.cached_input or 0, level.cache_write or 0)
    return input_tokens * highest + output_tokens * level.output


# -- the most that a call can use ---------------------------------------------------------------------
# No byte-level tokenizer produces more tokens than a text has bytes. A bound that counts bytes holds for every model
# and needs no tokenizer; it is about four times the usage of an English prompt, until the call is settled.

_REQUEST_TOKENS = 64
"""Tokens that a chat template adds to a request."""
_MESSAGE_TOKENS = 16
"""Tokens that a chat template adds to a message: its role and its delimiters."""
_IMAGE_TOKENS = 50_000
"""More than any provider counts for an image of the largest size that it accepts."""
_SCHEMA_FACTOR = 2
"""An adapter may expand the references of a schema, or describe tools in words."""
_CACHED_SCHEMAS = 256
_sizes: dict[int, tuple[Any, int]] = {}
"""The sizes of recent schemas, with the schemas themselves, so that no id is used twice."""


def usage_bound(model: Model, request: ModelRequest, window: int | None) -> Usage:
    """Return the most input and output tokens that a call can use.

    Args:
        model: The model.
        request: The call.
        window: The context window of the model, if it is known: no prompt is longer.
    """
    if _bounds_usage(type(model)):
        assert isinstance(model, BoundsUsage)
        return model.usage_bound(request)
    tokens = prompt_bound(request.messages) + _schema_size(request.contract)
    if request.tools:
        tokens += sum(_schema_size(tool.parameters) + len(tool.description.encode()) for tool in request.tools)
    return Usage(tokens if window is None else min(tokens, window), request.max_tokens)


@cache
def _bounds_usage(model: type[Model]) -> bool:
    """Return whether models of a class bound their usage; asking a protocol takes longer than the bound itself."""
    return issubclass(model, BoundsUsage)


def prompt_bound(messages: Iterable[Message]) -> int:
    """Return the most tokens that messages can have."""
    tokens = _REQUEST_TOKENS
    for message in messages:
        text = message.text
        tokens += _MESSAGE_TOKENS + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))
        if message.images:
            tokens += _IMAGE_TOKENS * len(message.images)
        if message.thoughts is not None:
            tokens += len(canonical(message.thoughts))
        for call in message.tool_calls:
            tokens += _MESSAGE_TOKENS + len(call.name.encode()) + len(call.arguments.encode("utf-8", "surrogatepass"))
    return tokens


def _schema_size(schema: Any) -> int:
    known = _sizes.get(id(schema))
    if known is None or known[0] is not schema:
        while len(_sizes) >= _CACHED_SCHEMAS:
            _sizes.pop(next(iter(_sizes)), None)
        known = _sizes[id(schema)] = (schema, _SCHEMA_FACTOR * len(msgspec.json.encode(schema)))
    return known[1]
