"""Schemas that take for ever to check. The attacker is an MCP server, a cloned skill or a model that designs a schema.

Checking a value blocks the process, so its time is bounded by the sizes of schema and value: patterns are matched
without backtracking, large ones are refused, and errors are not explained along every path of a recursive schema. The
oracle for patterns with look-aheads is Python's `re`, for the size of a pattern the engine that compiles it, and for
time and memory a process with limits.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reyn.jsonschema import PatternUnsupported, SchemaInvalid, compile_schema
from reyn.jsonschema.patterns import units
from reyn.jsonschema.validation import MAX_EXPLAINED, MAX_PATTERN_WORK, MAX_UNITS
from reyn.ops.mcp.tool import _MAX_SCHEMA_BYTES, _check_schema
from tests.attacks.support import with_limits
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


COUNTS = ["{3}", "{ 4 }", "{2,5}", "{0,6}", "{7,}", "{002}", "{ 2 , 3 }", "{3}?", "{2}{3}", "*", "+", "?"]
ATOMS = [
    "a", "é", "😀", "[ab]", ".", r"\d", r"\w", r"\W", r"\S", r"\p{L}", r"\PN", "[^a-z]", "[]a]", "[^]b]",
    r"[\]{9}]", "[({9}]", "[[]", r"\(", r"\{", r"\x41", r"\x{61}", "(?:)", r"[\p{L}\p{N}_]", "^", r"\b", "[漢字仮名]",
]  # fmt: skip
OPENINGS = ["(", "(?:", "(?i:", "(?s:", "(?i-s:", "(?-x:"]
patterns = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        st.builds("{}{}".format, inner, st.sampled_from(COUNTS))
        | st.builds("{}{})".format, st.sampled_from(OPENINGS), inner)
        | st.builds("{}|{}".format, inner, inner)
        | st.builds("{}{}".format, inner, inner)
    ),
    max_leaves=6,
)


def engine_accepts(pattern: str, size: int) -> bool:
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions(size_limit=size))
    except jsonschema_rs.ValidationError:
        return False
    return True


@given(patterns)
@example("[ab]{30}{30}")
@example("([ab]{30}){ 30 }")
@example("((a{0009}){9}?){9}")
@example(r"(\){9}[)]{9}){9}")
def test_the_engine_needs_no_more_states_than_are_counted(pattern: str):
    counted = units(pattern)
    if counted <= MAX_UNITS // 10 and engine_accepts(pattern, 10_000_000):
        assert engine_accepts(pattern, 4_000 * (1 + counted))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("pattern", ["(?x)a(([ab][ab]) {30}) {30}", "a(?ix: b {9} #)\n)", "(?sx-i)a"])
def test_blanks_and_comments_in_a_pattern_are_refused(place: str, pattern: str):
    with pytest.raises(PatternUnsupported, match="flag `x`"):
        compile_schema(PLACES[place](pattern))
    assert compile_schema({"pattern": r"^[(?x]\(\?x(?i-x:a)$"}).is_valid("?(?xA")


@pytest.mark.parametrize("name", ["$defs", "definitions"])
def test_a_property_with_the_name_of_definitions_counts(name: str):
    hidden = {"type": "object", "properties": {name: {"pattern": "[ab]*a[ab]{900}c"}}}
    assert not compile_schema(hidden).is_valid({name: "ab" * (MAX_PATTERN_WORK // 1_000)})
    doubling = {f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(26)}
    with pytest.raises(SchemaInvalid, match="expand"):
        compile_schema({"properties": {name: {"$ref": "#/$defs/d0"}}, "$defs": doubling | {"d26": {}}})


SLOW_PATTERNS = [
    "a[ab]{900}c", "a[ab]{30}{30}c", "a(([ab][ab]){30}){30}c", "a([ab]{ 30 }?){030}c", "a((([ab]{9}){9}){9})c",
    "a.{300}c", "(?s)a.{30}{30}c", r"a\w{900}c", r"a(.|a){100}(.|b){100}c", "(.*a){100}c", "((a?b?){30}){30}c",
    r"a\p{L}{50}c", "(?i)a[a-zé]{200}c", r"(\ba\b|.){200}c", "([ab]|[bc]|[ca]){600}c", "(a{0,30}){30}c",
]  # fmt: skip


def test_the_time_for_patterns_is_bounded_in_every_spelling():
    program = f"""
import random
from reyn.jsonschema import compile_schema
from reyn.jsonschema.patterns import units
for pattern in {SLOW_PATTERNS!r}:
    length = {MAX_PATTERN_WORK} // units(pattern) // 100
    text = "".join(random.Random(1).choices("ab", k=length)) + "c"
    compile_schema({{"pattern": pattern, "not": {{"const": text}}}}).is_valid(text)
"""
    with_limits(program, seconds=8, megabytes=1_000)  # a hundredth of the largest value for each, about a second


SHAPES = {
    "alternatives": "{'anyOf': [{'items': {'const': -i}} for i in range(N)]}, ['a line of text'] * N",
    "exactly one": "{'items': {'oneOf': [{'const': i} for i in range(N)]}}, [N - 1] * N",
    "negations": "{'items': {'allOf': [{'not': {'const': i}} for i in range(N)]}}, [-1] * N",
    "objects": "{'items': {'enum': [{'a': i} for i in range(N)]}}, [{'a': N - 1}] * N",
    "long objects": "{'items': {'const': [0] * N + [1]}}, [[0] * N] * 900",
    "fields": "{'anyOf': [{'additionalProperties': {'const': -i}} for i in range(N)]}, {str(i): 1 for i in range(N)}",
    "parts": "{'allOf': [{'contains': {'const': i}} for i in range(N)]}, list(range(N))",
    "references": "{'items': {'anyOf': [{'$ref': '#/$defs/a'}] * N}, '$defs': {'a': {'const': [1]}}}, [2] * N",
    "a long text": "{'anyOf': [{'const': i} for i in range(N)]}, 'a' * 1000000",
    "a deep text": "{'maxItems': 0, 'items': {'$ref': '#'}}, deep('a' * 1000000)",
    "a negated schema": "{'items': {'not': {'properties': {str(i): {'type': 'null'} for i in range(N)}}}}, [1] * N",
    "many values": "{'items': {'const': 0}}, [1] * 300000",
    "missing names": "{'items': {'required': [str(i) for i in range(N)]}}, [{}] * N",
    "equal numbers": "{'uniqueItems': True}, [10**20 + i for i in range(N)]",
    "equal numbers in lists": "{'$ref': '#/$defs/a', '$defs': {'a': UNIQUE}}, [[-(10**40) - i] for i in range(N)]",
    "numbers of 64 bits": "{'uniqueItems': True}, {'a': [2**63 + i for i in range(20_000)]}['a']",
    "infinite numbers": "{'items': {'uniqueItems': True}}, [[10**400 + i for i in range(N)]]",
    "exact divisions": "{'items': {'multipleOf': 5e-324}}, [1.7e308] * 160_000",
    "several divisions": "{'items': {'allOf': [{'multipleOf': 2.0**-i} for i in range(16)]}}, [1.7e308] * N * 5",
    "recursive divisions": "{'multipleOf': 1e-300, 'items': {'$ref': '#'}}, [1e300] * 90_000",
    "no Unicode": "{'items': {'anyOf': [{'const': i} for i in range(N)]}}, [chr(0xd800)] * N",
    "long numbers": "{'items': {'allOf': [{'multipleOf': 3 + i} for i in range(200)]}}, [10**4000] * 250",
}


@pytest.mark.parametrize(
    "shapes", [list(SHAPES)[:7], list(SHAPES)[7:14], list(SHAPES)[14:]], ids=["first", "second", "third"]
)
def test_time_and_memory_for_alternatives_and_values_are_bounded(shapes: list[str]):
    program = f"""
from reyn.jsonschema import compile_schema
N, UNIQUE = 4_000, {{"uniqueItems": True}}
def deep(value):
    for _ in range(200):
        value = [value]
    return value
for schema, value in ({", ".join(f"({SHAPES[name]})" for name in shapes)}):
    validator = compile_schema(schema)
    error = validator.first_error(value)
    assert error is not None and "too" in error.message, error
    print(error.message)
"""
    printed = with_limits(program, seconds=10, megabytes=600)
    assert len(printed.splitlines()) == len(shapes)


@pytest.mark.parametrize(
    "schema", [{"required": ["x" * 9_000] * 9}, {"required": ["a"], "properties": {"a": {"const": "x" * 9_000}}},
               {"additionalProperties": False}, {"dependentRequired": {"a": ["x" * 9_000]}}]
)  # fmt: skip
def test_an_error_quotes_the_beginning_of_a_schema_and_a_value(schema: dict[str, Any]):
    schema |= {"required": list(dict.fromkeys(f"{name}{at}" for at, name in enumerate(schema.get("required", ()))))}
    for value in ({"a": 1}, {"a0": 1, "a": 2}, {"y" * 9_000: 1}):
        for error in compile_schema(schema).errors(value, 5):
            assert len(error.message) < 1_500


def test_an_invalid_schema_is_an_error_that_names_the_place():
    for key in ("dependentRequired", "required", "multipleOf", "uniqueItems", "dependentSchemas", "properties"):
        for value in (5, [5], "x", {"a": 5}, None, -1):
            if (key, value) not in [("multipleOf", 5), ("dependentRequired", {"a": []})]:
                with pytest.raises(SchemaInvalid):
                    compile_schema({key: value})


_VALUES = st.recursive(
    st.sampled_from([None, True, 0, 2.5, 10**20, "", "a", "é\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "x", "$ref"]), inner),
    max_leaves=5,
)
_WITH_SCHEMA = [
    "additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else", "unevaluatedProperties",
    "unevaluatedItems",
]  # fmt: skip


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(st.sampled_from(["a", "x"]), inner, max_size=2)
    keys: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(_WITH_SCHEMA, inner)
    keys |= dict.fromkeys(["properties", "patternProperties", "dependentSchemas"], named)
    keys |= dict.fromkeys(["anyOf", "oneOf", "allOf", "prefixItems"], st.lists(inner, min_size=1, max_size=2))
    keys |= {"type": st.sampled_from(["object", "array", "string"]), "required": st.just(["a", "b"])}
    keys |= {"const": _VALUES, "uniqueItems": st.just(True), "$ref": st.just("#"), "multipleOf": st.just(2)}
    keys |= {"dependentRequired": st.just({"a": ["b"]}), "pattern": st.just("^a"), "minItems": st.just(2)}
    return st.fixed_dictionaries({}, optional=keys)


@given(_schemas(st.recursive(st.booleans(), _schemas, max_leaves=3)), _VALUES)
@example({"type": "object", "additionalProperties": False}, {"a": 1})
@example({"additionalProperties": False}, {"a": {"b": 1}})
def test_each_invalid_value_has_an_error(schema: dict[str, Any], value: Any):
    validator = compile_schema(schema)
    errors = validator.errors(value, 5)
    assert validator.is_valid(value) is not bool(errors)
    if schema == {"additionalProperties": False} and isinstance(value, dict) and value:
        assert f"{next(iter(value))!r}" in errors[0].message


def test_errors_within_the_bounds_take_little_memory():
    program = f"""
from reyn.jsonschema import compile_schema
bad = {{"type": "string", "minimum": 9, "maximum": 0, "multipleOf": 7, "const": 4}}
schema = {{"anyOf": [{{"items": bad | {{"minimum": 10 + i}}}} for i in range(100)]}}
error = compile_schema(schema).first_error([5] * ({MAX_EXPLAINED} // 101 - 10))
assert error is not None and error.message == "does not fit the alternatives of `anyOf`", error
"""
    with_limits(program, seconds=20, megabytes=900)


EXAMPLES = """
{'type': 'string', 'minLength': 2_000_000_000},
{'type': 'string', 'minLength': 2e9},
{'type': 'array', 'minItems': 10**12},
{'type': 'array', 'minItems': 1000, 'items': {'type': 'array', 'minItems': 1000, 'items': {'type': 'array'}}},
{'type': 'object', 'required': ['a'], 'properties': {'a': {'minLength': 10**9}}},
{'type': 'object', 'required': [str(number) for number in range(100_000)]},
{'type': 'array', 'prefixItems': [{'minLength': 10**9}] * 1_000, 'minItems': 1_000},
{'type': 'array', 'minItems': 200, 'items': {'$ref': '#/$defs/a'}, '$defs': {'a': {'minLength': 10**6}}},
{'enum': ['a' * 500_000]},
"""


def test_the_example_of_a_reply_is_bounded():
    program = f"""
from reyn.jsonschema.words import example_of
for schema in ({EXAMPLES}):
    assert example_of(schema) is None
assert example_of({{'type': 'array', 'minItems': 3.0, 'items': {{'minLength': 6}}}}, 'name') == ['name..'] * 3
"""
    with_limits(program, seconds=10, megabytes=500)


def test_large_honest_schemas_and_values_are_checked_and_explained():
    countries = [f"country {number}" for number in range(2_000)]
    visits = compile_schema({"type": "array", "items": {"enum": countries}})
    assert visits.is_valid(countries * 10)
    error = visits.first_error([*countries[:199], "nowhere"])
    assert error is not None
    assert error.path() == "$[199]"
    numbers = compile_schema({"type": "array", "uniqueItems": True, "items": {"type": "integer"}})
    microseconds = [1_700_000_000_000_000 + number for number in range(50_000)]
    nanoseconds = [1_700_000_000_000_000_000 + 997 * number for number in range(20_000)]
    assert numbers.is_valid(microseconds)
    assert numbers.is_valid(nanoseconds)
    assert not numbers.is_valid([*nanoseconds, nanoseconds[-1]])
    assert compile_schema({"items": {"multipleOf": 0.01}}).is_valid([0.25, 199.99] * 30_000)
    optional = {f"field{number}": {"anyOf": [{"type": "string"}, {"type": "null"}]} for number in range(40)}
    row = {"type": "object", "properties": optional, "required": list(optional)}
    table = compile_schema({"type": "array", "items": {"$ref": "#/$defs/row"}, "$defs": {"row": row}})
    values = [dict.fromkeys(optional, "text") for _ in range(100)]
    assert table.is_valid(values * 50)
    error = table.first_error([*values[:99], values[0] | {"field7": 7}])
    assert error is not None
    assert error.path() == "$[99].field7"


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
