"""Texts are compared by the words with which a model names their topic."""

from __future__ import annotations

import math

import pytest

from reyn.models.two_step import similarity, topic, weighed

INVOICE = topic({"invoice": math.log(0.5), "money": math.log(0.3), "rest": math.log(0.001)})
ROUTER = topic({"router": math.log(0.6), "internet": math.log(0.2), "rest": math.log(0.001)})


def test_texts_with_the_same_likely_words_are_similar():
    payment = topic({"money": math.log(0.4), "invoice": math.log(0.2), "rest": math.log(0.002)})
    assert similarity(INVOICE, INVOICE) == pytest.approx(1)
    assert similarity(INVOICE, payment) > 0.9
    assert similarity(INVOICE, ROUTER) == 0


def test_a_text_without_words_is_similar_to_none():
    assert similarity(topic({}), INVOICE) == 0
    assert similarity(topic({"only": -1.0}), INVOICE) == 0


def test_similarities_weigh_probabilities():
    assert weighed([0.5, 0.5], [0.6, 0.5])[0] > 0.9
    assert weighed([0.7, 0.3], [0.4, 0.4]) == pytest.approx([0.7, 0.3])


def test_a_choice_without_a_text_keeps_its_probability_where_topics_say_nothing():
    assert weighed([0.6, 0.3, 0.1], [0.2, 0.2]) == pytest.approx([0.6, 0.3, 0.1])
    assert weighed([0.4, 0.4, 0.2], [0.9, 0.1])[2] < 0.01
