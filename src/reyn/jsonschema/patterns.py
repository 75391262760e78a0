"""Regular expressions of schemas, for an engine whose time grows with the text and never with what it tried before.

The engine has no look-around and no back-references. A look-ahead at the start of a pattern is a condition of its own,
so `split_lookaheads` keeps it. `units` estimates the size of a compiled pattern: the time for a text grows with both.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

SPLIT = "split from the pattern "
"""The start of the `$comment` of a schema that `split_lookaheads` adds; the pattern follows."""

_CONSTRUCTS = (
    (re.compile(r"\(\?[=!]"), "a look-ahead inside the pattern"),
    (re.compile(r"\(\?<[=!]"), "a look-behind"),
    (re.compile(r"\\[1-9]|\\k<|\(\?P="), "a back-reference"),
)
_ATOM = re.compile(
    r"(?P<count>\{\s*(?P<low>\d*)\s*(?:,\s*(?P<high>\d*)\s*)?\})"
    r"|(?P<verbose>\(\?[a-wyzA-Z]*x)"
    r"|(?P<class>\\[pP](?:\{[^}]*\}|.))"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|\\.|.",
    re.DOTALL,
)
_LARGE_SET = 20
"""A set of a Unicode property has many ranges."""
_RANGES = 8
"""Characters of a set that count as one state."""
_MAX_UNITS = 10**9
_DATA = ("const", "default", "enum", "examples")
"""Keywords whose value is no schema."""


class VerbosePattern(ValueError):
    """The pattern has the flag `x`, with which blanks and comments have no meaning."""


def units(pattern: str) -> int:
    """Return about the number of states of a compiled pattern.

    A count repeats all of the group, set, character or other count before it.

    Raises:
        VerbosePattern: The pattern has the flag `x`.
    """
    groups, repeated = [0], 0
    for atom in _ATOM.finditer(pattern):
        text = atom.group()
        if atom["verbose"]:
            raise VerbosePattern(pattern)
        if atom["count"]:
            numbers = ((atom[name] or "").lstrip("0")[:7] for name in ("low", "high"))
            count = max(1, *(int(number or 0) for number in numbers))
            groups[-1] = min(groups[-1] + repeated * (count - 1), _MAX_UNITS)
            repeated = min(repeated * count, _MAX_UNITS)
            continue
        if text == "(":
            groups.append(0)
        elif text in ("*", "+", "?"):  # what it follows can be repeated again
            groups[-1] += 1
            continue
        repeated = _states(atom)
        if text == ")" and len(groups) > 1:
            repeated += groups.pop()
        groups[-1] += repeated
    return sum(groups)


def _states(atom: re.Match[str]) -> int:
    if atom["set"]:
        text = atom["set"]
        return 1 + len(text) // _RANGES + _LARGE_SET * (text.count("\\p") + text.count("\\P"))
    return _LARGE_SET if atom["class"] else 1


def pattern_units(schema: dict[str, Any]) -> int:
    """Return the units of the patterns of a schema, without those of its subschemas."""
    pattern, names = schema.get("pattern"), schema.get("patternProperties")
    patterns = [pattern] if isinstance(pattern, str) else []
    return sum(map(units, [*patterns, *(names if isinstance(names, dict) else ())]))


def unsupported(pattern: str) -> str:
    """Name the construct that needs an engine with backtracking; empty if there is none."""
    return next((name for construct, name in _CONSTRUCTS if construct.search(pattern)), "")


class _Condition(NamedTuple):
    pattern: str
    is_negated: bool

    def schema(self, origin: str) -> dict[str, Any]:
        comment = {"$comment": SPLIT + origin}
        found = {"pattern": f"^(?:{self.pattern})"}
        return comment | ({"not": {"type": "string"} | found} if self.is_negated else found)


def split_lookaheads(value: Any) -> Any:
    """Return a schema in which look-aheads after the `^` of a pattern are schemas of their own, in `allOf`.

    `^(?!a)(?=b)c` matches a text that `^c` and `^(?:b)` match and `^(?:a)` does not.
    """
    if isinstance(value, list):
        return [split_lookaheads(one) for one in value]
    if not isinstance(value, dict):
        return value
    schema = {key: one if key in _DATA else split_lookaheads(one) for key, one in value.items()}
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and (found := _split(pattern)) is not None:
        conditions, rest = found
        before = schema.get("allOf")
        added = [condition.schema(pattern) for condition in (*conditions, _Condition(rest, is_negated=False))]
        schema = {key: one for key, one in schema.items() if key != "pattern"}
        schema["allOf"] = [*(before if isinstance(before, list) else ()), *added]
    return schema


def _split(pattern: str) -> tuple[list[_Condition], str] | None:
    """Return the look-aheads at the start of a pattern and its rest; `None` if there are none, or they do not apply to
    all of the rest."""
    conditions, start = [], 1
    while pattern.startswith("^") and pattern.startswith(("(?=", "(?!"), start):
        end = _end(pattern, start + 3)
        if pattern[end : end + 1] != ")" or pattern[end + 1 : end + 2] in ("*", "+", "?", "{"):
            return None
        conditions.append(_Condition(pattern[start + 3 : end], pattern[start + 2] == "!"))
        start = end + 1
    rest = pattern[start:]
    return (conditions, rest) if conditions and _end(rest, 0, "|") == len(rest) else None


def _end(pattern: str, start: int, ends: str = "") -> int:
    """Return the position of the `)` that ends a group, or of one of the `ends` outside of inner groups and sets."""
    depth, position, is_set = 0, start, False
    while position < len(pattern):
        sign = pattern[position]
        if sign == "\\":
            position += 1
        elif is_set:
            is_set = sign != "]"
        elif sign == "[":
            is_set = True
        elif depth == 0 and (sign == ")" or sign in ends):
            return position
        else:
            depth += (sign == "(") - (sign == ")")
        position += 1
    return len(pattern)
