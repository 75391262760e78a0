"""Prices are exact integers, declared or from the table, and a bound of the usage holds for every tokenizer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.config import ModelSettings
from reyn.config.budgets import BudgetSettings, Caps, PriceSettings, to_nano
from reyn.errors import CurrencyUnknown
from reyn.journal.kinds import Price, PriceTier, Usage
from reyn.models import Message, ModelRequest
from reyn.models.prices import Prices, cost_of, highest_cost, prompt_bound, usage_bound
from reyn.testing import ScriptedModel

NOON = 1_794_830_400_000_000
"""2026-11-16 12:00 UTC."""
DECLARED = ModelSettings("openai:any", price=PriceSettings(2.5, 10.0, 1.25))


def price_of(model: str, **settings) -> Price | None:
    return Prices().of(ModelSettings(model, **settings), None, NOON)


def test_a_declared_price_is_exact_and_names_its_source():
    price = Prices().of(DECLARED, None, NOON)
    assert price == Price("USD", 2_500_000_000, 10_000_000_000, 1_250_000_000, source="reyn.yaml")
    assert cost_of(price, Usage(1_000_000, 0)) == 2_500_000_000
    assert cost_of(price, Usage(1000, 100, 400)) == 600 * 2500 + 400 * 1250 + 100 * 10_000


@pytest.mark.parametrize(
    ("amount", "nano"), [(0.1, 100_000_000), (0.3, 300_000_000), (1e-9, 1), (1e-10, 0), (7, 7_000_000_000)]
)
def test_amounts_are_read_by_their_decimal_text(amount: float, nano: int):
    assert to_nano(amount) == nano
    assert Caps.of(BudgetSettings(cost=amount)).cost == nano


def test_a_cost_below_a_billionth_is_rounded_up():
    assert cost_of(Price("USD", 1, 1), Usage(1, 0)) == 1
    assert cost_of(Price("USD", 0, 0), Usage(1, 1)) == 0


def test_cached_and_written_tokens_are_priced_apart():
    price = Price("USD", 3_000_000, 15_000_000, 300_000, 3_750_000)
    assert cost_of(price, Usage(100, 10, 60, 30)) == 311, "30 + 18 + 112.5 + 150"
    assert cost_of(price, Usage(100, 0, 10**9)) == 30, "more cached tokens than input tokens"


def test_a_model_without_a_provider_is_free_and_others_are_never_free_by_default():
    for model in ("local", "scripted:x", "recorded:x"):
        price = price_of(model)
        assert price is not None
        assert (price.input, price.output, price.source) == (0, 0, "no provider")
    assert price_of("openai:a-model-nobody-knows") is None
    assert price_of("openai:gpt-4o", base_url="http://127.0.0.1:8000/v1") is None, "another server than OpenAI's"


def test_the_table_has_prices_with_its_version_and_needs_no_network():
    pytest.importorskip("genai_prices")
    price = price_of("openai:gpt-4o")
    assert price is not None
    assert price.source.startswith("genai-prices ")
    assert 0 < price.input < price.output
    assert price.cached_input is not None
    assert price.cached_input < price.input


def test_a_long_prompt_has_the_price_of_its_tier():
    pytest.importorskip("genai_prices")
    price = price_of("gemini:gemini-2.5-pro")
    assert price is not None
    [tier] = price.tiers
    below, above = cost_of(price, Usage(tier.above, 0)), cost_of(price, Usage(tier.above + 1, 0))
    assert above > 1.9 * below


def test_a_currency_is_converted_at_its_declared_value_or_refused():
    euros = PriceSettings(2.0, 8.0, currency="EUR")
    price = Prices("USD", {"EUR": 1.1}).of(ModelSettings("openai:x", price=euros), None, NOON)
    assert price == Price("USD", 2_200_000_000, 8_800_000_000, source="reyn.yaml, EUR at 1.1")
    with pytest.raises(CurrencyUnknown):
        Prices("USD").of(ModelSettings("openai:x", price=euros), None, NOON)


def test_a_python_model_can_declare_its_price():
    class Priced(ScriptedModel):
        price = PriceSettings(1.0, 2.0)

    price = Prices().of(None, Priced([]), NOON)
    assert price == Price("USD", 1_000_000_000, 2_000_000_000, source="the model")
    assert Prices().of(None, ScriptedModel([]), NOON) is None


def test_a_model_that_the_configuration_names_can_declare_its_price_unless_the_configuration_does():
    class Priced(ScriptedModel):
        price = PriceSettings(1.0, 2.0)

    named, configured = ModelSettings("acme.models:Priced"), PriceSettings(3.0, 4.0)
    price = Prices().of(named, Priced([]), NOON, is_override=False)
    assert price == Price("USD", 1_000_000_000, 2_000_000_000, source="the model")
    price = Prices().of(ModelSettings("acme:x", price=configured), Priced([]), NOON, is_override=False)
    assert price == Price("USD", 3_000_000_000, 4_000_000_000, source="reyn.yaml")
    assert Prices().of(named, ScriptedModel([]), NOON, is_override=False) is None


PRICES = st.builds(
    Price,
    st.just("USD"),
    st.integers(0, 10**11),
    st.integers(0, 10**11),
    st.none() | st.integers(0, 10**11),
    st.none() | st.integers(0, 10**11),
    tiers=st.lists(
        st.builds(PriceTier, st.integers(0, 10_000), st.integers(0, 10**11), st.integers(0, 10**11)), max_size=2
    ).map(lambda tiers: tuple(sorted(tiers, key=lambda tier: tier.above))),
)


@given(PRICES, st.integers(0, 20_000), st.integers(0, 5_000), st.data())
def test_no_usage_within_a_bound_costs_more_than_the_bound(price: Price, most_in: int, most_out: int, data):
    tokens = data.draw(st.integers(0, most_in))
    usage = Usage(
        tokens,
        data.draw(st.integers(0, most_out)),
        data.draw(st.integers(0, tokens)),
        data.draw(st.integers(0, tokens)),
    )
    assert cost_of(price, usage) <= highest_cost(price, most_in, most_out)


@given(st.text(max_size=400))
def test_a_prompt_has_at_most_as_many_tokens_as_its_bound(text: str):
    rs_bpe = pytest.importorskip("rs_bpe")
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert rs_bpe.bpe.openai.o200k_base().count(text) <= prompt_bound([Message("user", text)])


def test_the_bound_counts_the_contract_and_is_limited_by_the_window():
    small = ModelRequest([Message("user", "hi")], {}, "r", "1.1", "h", max_tokens=50)
    large = ModelRequest([Message("user", "hi")], {"enum": ["x" * 1000]}, "r", "1.1", "h", max_tokens=50)
    model = ScriptedModel([])
    assert usage_bound(model, large, None).input_tokens > usage_bound(model, small, None).input_tokens + 1000
    assert usage_bound(model, large, 300) == Usage(300, 50)


def test_a_python_model_that_declares_its_settings_has_the_price_of_the_table():
    pytest.importorskip("genai_prices")

    class Declared(ScriptedModel):
        settings = ModelSettings("openai:gpt-4o")

    class Local(ScriptedModel):
        settings = ModelSettings("local")

    assert Prices().of(None, Declared([]), NOON) == price_of("openai:gpt-4o")
    assert Prices().of(None, Local([]), NOON) is None, "whatever it does, Reyn does not know that it is free"
