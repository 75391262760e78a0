"""Evaluations agree with another implementation of CEL, and with what the check says about them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings

from reyn.expressions import EvaluationError, Expression, ExpressionInvalid, compile_expression
from reyn.expressions.types import kind_name, kind_names
from tests.expressions import oracle
from tests.expressions.generating import SCOPE, Generator, data

CHUNKS = 4


def _count(most: int) -> int:
    return most // 10 if settings.get_current_profile_name() == "quick" else most


@pytest.mark.parametrize("seed", range(CHUNKS))
def test_evaluations_agree_with_cel(seed: int) -> None:
    counts: Counter[str] = Counter()
    found = list(oracle.differences(_count(2_000) // CHUNKS, seed, counts))
    assert not found
    assert counts["value"] > counts["error"] > 0 < counts["checked"]


def test_what_the_check_says_holds_for_every_value() -> None:
    rng, evaluated, count = random.Random(7), 0, _count(3_000)
    for _ in range(count):
        text = Generator(rng, wrong=0.01).condition()
        try:
            expression = compile_expression(text, SCOPE)
        except ExpressionInvalid:
            continue
        if expression.problems:
            continue
        for values in (data(rng), data(rng), data(rng)):
            evaluated += _is_as_checked(expression, values)
    assert evaluated > count


def _is_as_checked(expression: Expression, values: dict[str, Any]) -> bool:
    """Return whether an expression has a value, which is one that the check expects."""
    message, result = "", None
    try:
        result = expression.evaluate({"data": values})
    except EvaluationError as error:
        message = error.message
    if message:
        assert not any(word in message for word in TYPE_ERRORS) or "open" in expression.text, (expression.text, message)
        return False
    names, kind = kind_names(expression.type), kind_name(result)
    assert names & {"any", kind}, (expression.text, result)
    possible = [value for one in expression.type if one.name == kind for value in one.possible() or (result,)]
    assert result in possible or "any" in names, (expression.text, result, values)
    holds = expression.checked.if_true if result else expression.checked.if_false
    assert holds is not None or kind != "bool", (expression.text, result, values)
    return True


TYPE_ERRORS = ("has no field", "cannot compare", "cannot combine", "is not a condition", "takes a text", "has no value")
"""Messages about what only an open schema leaves open."""
