"""Compare evaluations with those of Google's implementation of CEL: `python -m tests.expressions.oracle`.

The oracle reads the same data without types. Reyn is stricter on purpose: infinity and NaN are errors, and what a check
refuses is not evaluated. Everything else has to agree: the value, or that there is none.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from cel_expr_python import cel

from reyn.expressions import EvaluationError, ExpressionInvalid, compile_expression
from reyn.expressions.checking import Scope
from reyn.expressions.types import ANY, kind_name
from tests.expressions.generating import SCOPE, Generator, data

_ENV = cel.NewEnv(variables={"data": cel.Type.DYN})
_OPEN = Scope({"data": ANY})
STRICTER = (
    "is too large",
    "division by zero",
    "is not a number",
    "the boolean false is not",
    "the boolean true is not",
)
"""Errors where CEL has infinity or NaN, or where the implementation converts a boolean, against the definition."""


class Difference(NamedTuple):
    text: str
    data: dict[str, Any]
    problem: str


def ours(text: str, values: dict[str, Any], scope: Scope = _OPEN) -> tuple[str, Any]:
    """Return `value` and the value, `error` and the message, or `refused` and the problem."""
    try:
        expression = compile_expression(text, scope)
    except ExpressionInvalid as error:
        return "refused", str(error)
    if expression.problems and scope is not _OPEN:
        return "refused", expression.problems[0].message
    try:
        return "value", expression.evaluate({"data": values})
    except EvaluationError as error:
        return "error", error.message


def theirs(text: str, values: dict[str, Any]) -> tuple[str, Any]:
    try:
        result = _ENV.compile(text).eval(data={"data": values})
    except RuntimeError as error:
        return "refused", str(error)
    if result.type() == cel.Type.ERROR:
        return "error", str(result)
    return "value", result.value()


def compare(text: str, values: dict[str, Any], counts: Counter[str]) -> str:
    """Return how two evaluations differ; empty if they do not."""
    checked, (kind, value) = ours(text, values, SCOPE), ours(text, values)
    expected = theirs(text, values)
    if expected[0] == "refused":
        counts["refused by CEL"] += 1  # constants of kinds that never fit
        return ""
    counts[kind] += 1
    if kind != expected[0]:
        is_stricter = kind == "error" and any(one in value for one in STRICTER)
        counts["stricter"] += is_stricter
        return "" if is_stricter else f"{kind} {value!r}, but CEL has {expected}"
    if kind == "value" and not same(value, expected[1]):
        return f"{value!r}, but CEL has {expected[1]!r}"
    if checked[0] != "refused":
        counts["checked"] += 1
        if checked[0] != kind or (kind == "value" and not same(value, checked[1])):
            return f"{value!r}, but with types {checked}"
    return ""


def same(one: Any, other: Any) -> bool:
    """Return whether two results agree; the oracle shows little of a list or an object."""
    if isinstance(one, list | dict):
        return kind_name(one) in ("list", "map") and len(one) == len(other)
    return kind_name(one) == kind_name(other) and bool(one == other)


def differences(count: int, seed: int, counts: Counter[str]) -> Iterator[Difference]:
    """Yield the expressions whose evaluations differ, each with its data."""
    rng = random.Random(seed)
    for _ in range(count):
        text, values = Generator(rng).condition(), data(rng)
        if problem := compare(text, values, counts):
            yield Difference(text, values, problem)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    found = 0
    for found, one in enumerate(differences(options.count, options.seed, counts), start=1):
        print(f"{one.text}\n  {one.problem}\n  {one.data}")
        if found == 20:
            break
    results = ", ".join(f"{number} {name}" for name, number in counts.items())
    print(f"seed {options.seed}: {options.count} expressions, {found} differ ({results})")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
