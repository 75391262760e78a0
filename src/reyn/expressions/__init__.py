"""Expressions: a documented subset of CEL over JSON, for what the author of a skill decides.

An expression is checked against the JSON Schemas of the values that it can read, and evaluated without side effects
and in bounded time. Nothing else is reachable: no clock, no randomness, no objects of the program. What the names
mean is decided where expressions are used.
"""

from reyn.expressions.checking import Scope
from reyn.expressions.expression import (
    Expression,
    ExpressionInvalid,
    compile_expression,
    place,
    readings,
)
from reyn.expressions.facts import Facts
from reyn.expressions.templates import DataTemplate, PlacedProblem, compile_template, has_expressions
from reyn.expressions.tree import Problem
from reyn.expressions.values import EvaluationError, SharedWork

__all__ = [
    "DataTemplate",
    "EvaluationError",
    "Expression",
    "ExpressionInvalid",
    "Facts",
    "PlacedProblem",
    "Problem",
    "Scope",
    "SharedWork",
    "compile_expression",
    "compile_template",
    "has_expressions",
    "place",
    "readings",
]
