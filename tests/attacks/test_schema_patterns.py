"""Schemas that take for ever to check. The attacker is an MCP server, a cloned skill or a model that designs a schema.

Checking a value blocks the process, so its time is bounded by the sizes of schema and value: patterns are matched
without backtracking, large ones are refused, and errors are not explained along every path of a recursive schema. The
oracle for patterns with look-aheads is Python's `re`; the tests would not end if the bounds did not hold.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reyn.jsonschema import PatternUnsupported, SchemaInvalid, compile_schema
from reyn.jsonschema.validation import MAX_PATTERN_WORK
from reyn.ops.mcp.tool import _MAX_SCHEMA_BYTES, _check_schema
from tests.support import read_skill, write_skill

EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
HOST = r"^(?=.{1,20}\.?$)[a-z0-9](?:[a-z0-9-]{0,6}[a-z0-9])?(?:\.[a-z0-9]+)*$"
SECRET = r"^(?=.*[A-Z])(?=.*[0-9])(?![(|)]).{3,}$"
PLACES = {
    "properties": lambda pattern: {"properties": {"a": {"pattern": pattern}}},
    "any": lambda pattern: {"anyOf": [{"pattern": pattern}, {"minLength": 1}]},
    "negated": lambda pattern: {"not": {"pattern": pattern}},
    "names": lambda pattern: {"propertyNames": {"pattern": pattern}},
    "keys": lambda pattern: {"patternProperties": {pattern: {}}},
    "definition": lambda pattern: {"$ref": "#/$defs/a", "$defs": {"a": {"pattern": pattern}}},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        (r"^(.|.)*(?=\x00)c", "look-ahead"),
        (r"(?!a)b", "look-ahead"),
        (r"^(?=a)b|(c|c)*d", "look-ahead"),
        (r"(?<=a)b", "look-behind"),
        (r"(?<!a)(x+x+)+y", "look-behind"),
        (r"(a*)*\1", "back-reference"),
        (r"^(?=(?!a)b)c", "look-ahead"),
    ],
)
def test_a_pattern_that_needs_backtracking_is_refused_by_name(place: str, pattern: str, construct: str):
    with pytest.raises(PatternUnsupported, match=construct) as refused:
        compile_schema(PLACES[place](pattern))
    assert refused.value.code == "RYN140"


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"pattern": f"^(a|b)*c{number}$"} for number in range(20_000)]},
        {"patternProperties": {f"^(a|b)*c{number}$": {} for number in range(20_000)}},
        {"$defs": {str(number): {"pattern": r"\p{L}{64}"} for number in range(1_000)}},
        {"allOf": [{"$ref": "#/$defs/a"}] * 5_000, "$defs": {"a": {"pattern": "[ab]*a[ab]{900}c"}}},
        {"pattern": "a{99999}"},
        {"pattern": "((a{100}){100}){100}"},
    ],
    ids=["alternatives", "keys", "definitions", "references", "count", "nested counts"],
)
def test_patterns_that_are_too_large_together_are_refused(schema: dict[str, Any]):
    with pytest.raises(PatternUnsupported, match="too large or too many"):
        compile_schema(schema)


@pytest.mark.parametrize("negate", [False, True])
def test_a_value_too_large_for_its_patterns_is_never_valid(negate: bool):
    schema = {"pattern": "[ab]*a[ab]{900}c"}
    validator = compile_schema({"not": schema} if negate else schema)
    value = "ab" * (MAX_PATTERN_WORK // 1_000)
    error = validator.first_error(value)
    assert error is not None
    assert "too large" in error.message
    assert not validator.is_valid(value)
    assert compile_schema({"pattern": "^(ab)*$"}).is_valid(value)


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
@pytest.mark.parametrize("reference", ["$ref", "$dynamicRef"])
def test_errors_of_a_recursive_schema_are_found_in_bounded_time(keyword: str, reference: str):
    inner = {"items": {reference: "#node"}}
    node = {"type": "array", keyword: [inner | {"minItems": 2}, inner], "$dynamicAnchor": "node"}
    validator = compile_schema({"$ref": "#/$defs/node", "$defs": {"node": node}})
    value: Any = "text"
    for _ in range(60):
        value = [value]
    error = validator.first_error(value)
    assert error is not None
    assert "recursive" in error.message
    shallow = validator.first_error([["text"]])
    assert shallow is not None
    assert "recursive" not in shallow.message


def test_a_tree_explains_its_errors_at_any_depth():
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    value: Any = {"other": 1}
    for _ in range(60):
        value = {"next": value}
    error = compile_schema(node).first_error(value)
    assert error is not None
    assert error.place == ("next",) * 60


@pytest.mark.parametrize("pattern", [EMAIL, HOST, SECRET, r"^(?!)$", r"^(?=\()(?!\)\|)[)(|]+$"])
@given(st.text("aA0.@-()|_", max_size=24) | st.just("a.b@c.de") | st.integers())
@example("a..b@c.de")
@example(".a@b.de")
@example("A1b")
def test_look_aheads_at_the_start_of_a_pattern_keep_their_meaning(pattern: str, value: Any):
    validator = compile_schema({"pattern": pattern})
    expected = not isinstance(value, str) or re.search(pattern, value) is not None
    assert validator.is_valid(value) is expected
    assert compile_schema({"not": {"pattern": pattern}}).is_valid(value) is not expected
    error = validator.first_error(value)
    assert error is None if expected else error is not None and error.message.startswith("violates `pattern` ")


@pytest.mark.parametrize("keyword", ["const", "enum", "default", "examples"])
def test_data_of_a_schema_is_not_taken_for_a_pattern(keyword: str):
    data = {"pattern": EMAIL}
    schema = {"properties": {"a": {"pattern": EMAIL}}, keyword: [data] if keyword in ("enum", "examples") else data}
    assert compile_schema(schema).is_valid(data)


def test_a_skill_with_such_a_pattern_has_a_finding(tmp_path: Path):
    field = {"type": "string", "pattern": "(.|.)*(?=x)y"}
    folder = write_skill(
        tmp_path, "s", {"plan": ["end"]}, artifacts={"note": {"type": "object", "properties": {"text": field}}}
    )
    assert "RYN140" in [finding.code for finding in read_skill(folder).findings]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object", "properties": {"a": {"pattern": "(.|.)*(?=x)y"}}}, "look-ahead"),
        ({"type": "object", "description": "x" * _MAX_SCHEMA_BYTES}, "more than"),
    ],
)
def test_the_schema_of_an_mcp_tool_is_bounded(schema: dict[str, Any], message: str):
    with pytest.raises(SchemaInvalid, match=message):
        _check_schema(json.loads(json.dumps(schema)))
