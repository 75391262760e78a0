"""The probability of a choice among the labels, from token probabilities."""

from __future__ import annotations

import math

import pytest

from reyn.models.two_step import Token, choice_probability, label_probabilities

LABELS = ("billing_desk", "billing_info", "shipping", "abort")


def token(text: str, **others: float) -> Token:
    """A token with its probability, and those of others; `_` stands for a quote."""
    own = others.pop("p", 1.0)
    return Token(text, {text: math.log(own)} | {name.replace("_", '"'): math.log(p) for name, p in others.items()})


START = [Token('{"reason": "', {}), Token("it", {}), Token('", "choice": "', {})]


def test_only_tokens_that_continue_a_label_count():
    tokens = [*START, token("ship", p=0.3, bill=0.1, Shipping=0.5, x=0.1), token('ping"', p=0.9)]
    assert choice_probability(tokens, LABELS) == pytest.approx(0.75)


def test_a_choice_between_labels_with_a_common_prefix_is_made_later():
    tokens = [
        *START,
        Token("billing", {"billing": math.log(0.5), "ab": math.log(0.5)}),
        Token("_info", {"_info": math.log(0.2), "_desk": math.log(0.6)}),
        Token('"', {'"': 0.0}),
    ]
    assert choice_probability(tokens, LABELS) == pytest.approx(0.125)


def test_what_follows_the_choice_does_not_count():
    tokens = [
        *START,
        token("shipping", p=0.8, abort=0.2),
        token('",', p=0.1),
    ]
    tokens[-1].alternatives['"}'] = math.log(0.9)
    assert choice_probability(tokens, LABELS) == pytest.approx(0.8)


def test_a_token_that_begins_before_the_label():
    tokens = [
        Token('{"choice":', {}),
        Token(' "ship', {' "ship': math.log(0.6), ' "bill': math.log(0.2), "ship": -0.1}),
    ]
    tokens.append(Token('ping", "data": {}}', {'ping", "data": {}}': -0.01}))
    assert choice_probability(tokens, LABELS) == pytest.approx(0.75)


@pytest.mark.parametrize(
    "text",
    ["", '{"reason": "no"}', '{"choice": "elsewhere"}', '{"reason": "\\"choice\\": \\"abort\\""}', '{"choice": "ship'],
)
def test_there_is_no_probability_without_a_choice_that_is_a_label(text: str):
    assert choice_probability([Token(text, {})], LABELS) is None


def test_missing_probabilities_are_not_held_against_the_choice():
    assert choice_probability([Token('{"choice": "abort"}', {})], LABELS) == 1.0


def likely(text: str, **others: float) -> Token:
    return Token(text, {name: math.log(p) for name, p in others.items()})


def test_the_probability_of_every_label_is_read_from_the_tokens_of_one():
    tokens = [likely("bill", bill=0.6, sales=0.2, tech=0.2), likely('ing"', **{'ing"': 1.0})]
    assert label_probabilities(tokens, ("billing", "technical", "sales")) == pytest.approx([0.6, 0.2, 0.2])


def test_labels_that_begin_alike_are_told_apart_where_they_differ():
    tokens = [likely("return", **{"return": 0.9, "other": 0.1}), likely("s", s=0.75, _label=0.25), token('"')]
    found = label_probabilities(tokens, ("returns", "return_label", "other"))
    assert found == pytest.approx([0.675, 0.225, 0.1])


def test_labels_that_differ_from_the_generated_one_in_the_same_token_share_its_probability():
    tokens = [likely("other", **{"return": 0.4, "other": 0.6}), token('"')]
    assert label_probabilities(tokens, ("returns", "return_label", "other")) == pytest.approx([0.2, 0.2, 0.6])


def test_a_label_that_is_not_among_the_likeliest_tokens_is_as_likely_as_the_least_of_them():
    tokens = [likely("go", go=0.9, rest=0.001), token('"')]
    assert label_probabilities(tokens, ("go", "abort"))[1] == pytest.approx(0.001 / 0.901)
