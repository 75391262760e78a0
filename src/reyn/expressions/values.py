"""Operations on JSON values, as CEL defines them: total, and bounded by the work that an evaluation may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, NamedTuple

from reyn.expressions.tree import MAX_INT, MIN_INT, Path
from reyn.expressions.types import kind_name
from reyn.texts import counted, truncated

MAX_UNITS_OF_WORK = 1_000_000
"""Nodes that one evaluation may visit; long texts and lists count as several."""
UNITS_TOGETHER = 5 * MAX_UNITS_OF_WORK
"""The same of all expressions of a node's rules, of a phase's edges, or of a list of steps: nothing interrupts them."""
TEXT_CHARS = 1_000_000
LIST_ITEMS = 100_000
CHARS_PER_UNIT = 64
UNITS_OF_A_RESULT = 250_000
"""Values that expressions may make for one artifact, or one step; 64 characters count as one more."""
_TOO_LONG = "the expression takes too long for these values"
_TOO_LONG_TOGETHER = "the expressions beside it and this one take too long together for these values"
_MAX_SHOWN = 40
_EXACT = 1e15
"""Integral numbers below are written without a fraction."""


class ShownValue(NamedTuple):
    """A value in the message of an error."""

    value: Any


class EvaluationError(Exception):
    """An expression has no value: a field is missing, a value has another type, or there is too much work.

    Attributes:
        at: The position in the text.
        text: The text in a JSON value that has the expression; empty for an expression that stands alone.
        path: The path of that text.
    """

    def __init__(self, at: int, *parts: str | ShownValue) -> None:
        super().__init__(at, *parts)
        self.at = at
        self.text, self.path = "", tuple[str | int, ...]()
        self._parts = parts

    @property
    def message(self) -> str:
        """What is wrong, with the values."""
        return "".join(part if isinstance(part, str) else describe_value(part.value) for part in self._parts)

    @property
    def outline(self) -> str:
        """The same with the kinds of the values in their place."""
        return "".join(part if isinstance(part, str) else _OUTLINES[kind_name(part.value)] for part in self._parts)

    def __str__(self) -> str:
        return self.message


class Meter:
    """The units that are left, of work or of a result. It is shared by everything that they are for."""

    __slots__ = ("_left", "_message")

    def __init__(self, units: int, message: str) -> None:
        self._left = units
        self._message = message

    @property
    def left(self) -> int:
        """The units that are left."""
        return max(0, self._left)

    def charge(self, units: int, at: int) -> None:
        self._left -= units
        if self._left < 0:
            raise EvaluationError(at, self._message)

    def charge_value(self, value: Any) -> None:
        """Charge a value as it will be written: a part that is in it a thousand times counts a thousand times."""
        self.charge(1 + (len(value) // CHARS_PER_UNIT if isinstance(value, str) else 0), 0)
        if isinstance(value, dict):
            for name, one in value.items():
                self.charge(len(name) // CHARS_PER_UNIT, 0)
                self.charge_value(one)
        elif isinstance(value, list):
            for one in value:
                self.charge_value(one)


def result_meter() -> Meter:
    """Return the meter of a value that expressions make."""
    return Meter(UNITS_OF_A_RESULT, f"the result is too large: more than {UNITS_OF_A_RESULT:,} values")


class Frame:
    """The values of the names, and the work that is left: one count for a whole evaluation, whatever it catches."""

    __slots__ = ("charge", "meter", "values")

    def __init__(self, values: dict[str, Any], meter: Meter | None = None) -> None:
        self.values = values
        self.meter = meter or Meter(MAX_UNITS_OF_WORK, _TOO_LONG)
        self.charge = self.meter.charge


class SharedWork:
    """The work that several evaluations may do together."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = UNITS_TOGETHER

    def evaluate(self, run: Callable[[Frame], Any], values: dict[str, Any]) -> Any:
        """Return the value of an expression; its work counts for those after it.

        Raises:
            EvaluationError: It has none.
        """
        units = min(MAX_UNITS_OF_WORK, self._left)
        meter = Meter(units, _TOO_LONG if units == MAX_UNITS_OF_WORK else _TOO_LONG_TOGETHER)
        try:
            return run(Frame(values, meter))
        finally:
            self._left -= units - meter.left

    def spend(self, share: float) -> None:
        """Count something else that nothing interrupts, as a part of what one evaluation may take.

        Raises:
            EvaluationError: It takes too long.
        """
        self._left -= int(share * MAX_UNITS_OF_WORK)
        if self._left < 0:
            raise EvaluationError(0, "the checks take too long together for this value")


# -- operators ----------------------------------------------------------------------------------------


def equals(one: Any, other: Any, frame: Frame, at: int) -> bool:
    """Return whether two values are equal: numbers by their value, lists and objects by their content."""
    kind, with_kind = type(one), type(other)
    if kind is not with_kind:
        return kind in (int, float) and with_kind in (int, float) and bool(one == other)
    if kind is str:
        if len(one) != len(other):
            return False
        frame.charge(1 + len(one) // CHARS_PER_UNIT, at)
        return bool(one == other)
    if kind is list:
        frame.charge(1, at)
        return len(one) == len(other) and all(equals(a, b, frame, at) for a, b in zip(one, other, strict=True))
    if kind is dict:
        frame.charge(1 + min(len(one), len(other)), at)
        return one.keys() == other.keys() and all(equals(one[key], other[key], frame, at) for key in one)
    frame.charge(1, at)
    return bool(one == other)


def contains(item: Any, found: Any, frame: Frame, at: int) -> bool:
    if type(found) is dict:
        return type(item) is str and item in found
    if type(found) is not list:
        raise EvaluationError(at, "`in` needs a list or an object, not ", ShownValue(found))
    frame.charge(len(found), at)
    return any(equals(item, one, frame, at) for one in found)


def arithmetic(operator: str, one: Any, other: Any, frame: Frame, at: int) -> Any:
    kind = type(one)
    if kind is type(other):
        if kind is int:
            return integers(operator, one, other, at)
        if kind is float and operator != "%":
            return _doubles(operator, one, other, at)
        if kind in (str, list) and operator == "+":
            size, most = len(one) + len(other), TEXT_CHARS if kind is str else LIST_ITEMS
            if size > most:
                raise EvaluationError(at, f"the result of `+` is too large: more than {most:,} {_UNITS[kind]}")
            frame.charge(size // CHARS_PER_UNIT if kind is str else size, at)
            return one + other
    raise EvaluationError(at, f"`{operator}` cannot combine ", ShownValue(one), " with ", ShownValue(other))


_UNITS = {str: "characters", list: "items"}


def integers(operator: str, one: int, other: int, at: int) -> int:
    if operator in ("/", "%"):
        if other == 0:
            raise EvaluationError(at, "division by zero")
        quotient = abs(one) // abs(other)
        quotient = quotient if (one < 0) is (other < 0) else -quotient
        # The remainder of the smallest integer and -1 is an error in CEL, as the quotient is.
        is_remainder = operator == "%" and quotient <= MAX_INT
        result = one - quotient * other if is_remainder else quotient
    else:
        result = one + other if operator == "+" else one - other if operator == "-" else one * other
    if MIN_INT <= result <= MAX_INT:
        return result
    raise EvaluationError(at, f"the result of `{operator}` has more than 64 bits")


def _doubles(operator: str, one: float, other: float, at: int) -> float:
    if operator == "/" and other == 0:
        raise EvaluationError(at, "division by zero")
    result = {"+": one + other, "-": one - other, "*": one * other}.get(operator)
    result = one / other if result is None else result
    if isfinite(result):
        return result
    raise EvaluationError(at, f"the result of `{operator}` is too large")


# -- conversions --------------------------------------------------------------------------------------


def as_double(value: int, at: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise EvaluationError(at, ShownValue(value), " is too large") from None


def size_of_value(value: Any, at: int) -> int:
    if type(value) in (str, list, dict):
        return len(value)
    raise EvaluationError(at, "`size` takes a text, a list or an object, not ", ShownValue(value))


def to_int(value: Any, at: int) -> int:
    kind, result = type(value), None
    if kind is int:
        return int(value)
    if kind is float:
        result = int(value) if value > MIN_INT else None
    elif kind is str and len(value) <= 40 and value.isascii() and "_" not in value:
        try:
            result = int(value)
        except ValueError:
            result = None
    if result is None or not MIN_INT <= result <= MAX_INT:
        raise EvaluationError(at, ShownValue(value), " is not an integer of 64 bits")
    return result


def to_double(value: Any, at: int) -> float:
    if type(value) in (int, float):
        return as_double(value, at)
    try:
        if type(value) is str and len(value) <= 400 and value.isascii() and "_" not in value and isfinite(float(value)):
            return float(value)
    except ValueError:
        pass
    raise EvaluationError(at, ShownValue(value), " is not a number")


def to_string(value: Any, at: int) -> str:
    if type(value) in (str, int, float, bool):
        return write_value(value)
    raise EvaluationError(at, "`string` does not take ", ShownValue(value))


def write_value(value: str | float | bool) -> str:
    """Return a scalar as text: as JSON writes it, but integral numbers without a fraction."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT else repr(value)
    return str(value)


# -- values -------------------------------------------------------------------------------------------


_OUTLINES = {"bool": "a boolean", "int": "an integer", "double": "a number", "string": "a text"}
_OUTLINES |= {"list": "a list", "map": "an object", "null": "null"}


def describe_value(value: Any) -> str:
    """Say what a value is, in a few words."""
    if value is None:
        return "null"
    if isinstance(value, list | dict):
        name, unit = ("a list", "item") if isinstance(value, list) else ("an object", "field")
        return f"{name} with {counted(len(value), unit)}"
    if isinstance(value, str):
        return f"the text {truncated(value, _MAX_SHOWN)!r}"
    name = {"bool": "boolean", "int": "integer", "double": "number"}[kind_name(value)]
    return f"the {name} {write_value(value)}"


def value_of_path(path: Path, values: Mapping[str, Any]) -> tuple[Any] | None:
    """Return the value at a path, in a tuple; `None` if there is none."""
    found: Any = values
    for step in path:
        if isinstance(step, int):
            if not isinstance(found, list) or not 0 <= step < len(found):
                return None
        elif not isinstance(found, Mapping) or step not in found:
            return None
        found = found[step]
    return (found,)


def no_field(value: Any, field: str, label: str, at: int) -> EvaluationError:
    if isinstance(value, dict):
        return EvaluationError(at, f"{label} has no field `{field}`")
    return EvaluationError(at, f"{label} is ", ShownValue(value), f", which has no field `{field}`")
