"""Token estimates and truncation, as the handoff contract defines them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.context import ContextBudgetResult, apply_context_budget, estimate_tokens, truncate_to_token_budget
from reyn.context.token_counting import exact_counter
from reyn.context.tokens import (
    ByteCounter,
    CachingCounter,
    CalibratedCounter,
    CharCounter,
    FunctionCounter,
    TokenCounter,
)
from tests.cost import LINEAR, growth

texts = st.text(st.sampled_from("ab. \n\t\u3000漢😀\u0301\ud800é"), max_size=80)
budgets = st.integers(-2, 25)


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("漢字漢字", 1), ("😀" * 5, 2), (" " * 404, 101)]
)
def test_tokens_are_code_points_divided_by_four_rounded_up(text: str, tokens: int):
    assert estimate_tokens(text) == tokens


@pytest.mark.parametrize(
    ("text", "budget", "result"),
    [
        ("It fits.", 2, "It fits."),
        ("One. Two. Three four five.", 4, "One. Two...."),
        ("One.\nTwo three four", 3, "One...."),
        ("12345678. and more", 3, "12345678...."),  # the period is the last character that fits
        ("pi is 3.14159265358979", 4, "pi is..."),  # no blank follows the period
        ("alpha beta gamma", 3, "alpha..."),
        ("alpha bet gamma", 3, "alpha bet..."),  # the window ends just before a blank
        ("alpha     gamma delta", 3, "alpha..."),
        ("alpha\u3000beta gamma", 3, "alpha..."),
        ("x" * 20, 2, "xxxxx..."),
        ("     " + "x" * 20, 2, "     ..."),
        (" " * 20, 1, " ..."),
        ("漢" * 20, 1, "漢..."),
    ],
)
def test_a_text_ends_with_a_sentence_else_a_word_else_anywhere(text: str, budget: int, result: str):
    assert truncate_to_token_budget(text, budget) == result


@given(texts, budgets)
def test_the_invariants_of_the_contract_hold(text: str, budget: int):
    fitted, result = apply_context_budget(text, budget)
    assert fitted == truncate_to_token_budget(text, budget)
    assert result.original_tokens == estimate_tokens(text)
    assert result.budget_tokens == budget
    assert result.truncated_tokens == estimate_tokens(fitted)
    assert result.was_truncated == (fitted != text)
    assert len(fitted) <= len(text)
    if result.was_truncated:
        assert result.truncated_tokens <= budget
        assert fitted.endswith("...")
        assert text.startswith(fitted.removesuffix("..."))
        assert fitted != "..."
    else:
        assert result.truncated_tokens == result.original_tokens


COUNTERS: list[TokenCounter] = [
    CharCounter(),
    ByteCounter(),
    CalibratedCounter(CharCounter(), 2100),
    FunctionCounter("words", lambda text: len(text.split())),
    exact_counter(),
    CachingCounter(CalibratedCounter(exact_counter(), 1300)),
]


@given(texts, budgets, st.sampled_from(COUNTERS))
def test_every_counter_keeps_the_invariants_of_the_contract(text: str, budget: int, counter: TokenCounter):
    fitted, result = apply_context_budget(text, budget, counter)
    assert fitted == truncate_to_token_budget(text, budget, counter)
    assert counter.count("") == 0
    assert (result.original_tokens, result.truncated_tokens) == (counter.count(text), counter.count(fitted))
    assert len(fitted) <= len(text)
    assert result.was_truncated == (fitted != text)
    if result.was_truncated:
        assert result.truncated_tokens <= budget
        assert fitted == "" or (fitted.endswith("...") and text.startswith(fitted.removesuffix("...")))
    assert truncate_to_token_budget(fitted, budget, counter) == fitted


@given(texts)
def test_exact_counts_are_not_below_those_of_a_tokenizer_on_valid_text(text: str):
    valid = text.encode("utf-8", "replace").decode()
    assert exact_counter().count(text) >= (1 if text else 0)
    assert exact_counter().count(valid) <= len(valid.encode())


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("hello world", 2),
        ("漢字😀", 3),
        ("<|endoftext|> plain", 8),
        ("\ud800", 1),
        ("The quick brown fox. " * 100, 501),
    ],
)
def test_exact_counts_are_those_of_the_vocabulary(text: str, tokens: int):
    assert exact_counter().count(text) == tokens


def test_counts_are_cached_by_content_and_bounded():
    counted: list[str] = []
    counter = CachingCounter(FunctionCounter("f", lambda text: counted.append(text) or len(text)), size=2)
    assert [counter.count(text) for text in ("one", "two", "one", "three", "one")] == [3, 3, 3, 5, 3]
    assert counted == ["one", "two", "three", "one"]


@given(texts, st.integers(-5, 0))
def test_a_budget_of_zero_or_less_is_unlimited(text: str, budget: int):
    assert truncate_to_token_budget(text, budget) == text
    assert apply_context_budget(text, budget)[1] == ContextBudgetResult(
        estimate_tokens(text), budget, estimate_tokens(text), was_truncated=False
    )


@given(texts, st.integers(1, 25))
def test_truncation_is_idempotent_and_grows_with_the_budget(text: str, budget: int):
    fitted = truncate_to_token_budget(text, budget)
    assert truncate_to_token_budget(fitted, budget) == fitted
    assert len(fitted) <= len(truncate_to_token_budget(text, budget + 1))


@given(st.text(max_size=80), st.integers(1, 25))
def test_a_valid_text_stays_valid_utf8(text: str, budget: int):
    truncate_to_token_budget(text, budget).encode()


@pytest.mark.slow
@pytest.mark.parametrize("text", ["xx", "  ", "x.", "\u3000x"])
def test_truncation_is_linear(text: str):
    assert growth(lambda count: truncate_to_token_budget(text * count, count // 2 - 1_000), 250_000, 7) < LINEAR
