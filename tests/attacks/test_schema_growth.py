"""Schemas that grow when they are converted for constrained decoding: gigabytes from a few lines.

The attacker is an MCP server, a cloned skill or a model that designs a schema. The oracles are the length of the JSON
of what comes out, and a process with limits.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.jsonschema import compile_schema, growth, lenient
from reyn.models.decoding import ANTHROPIC, GEMINI, Inexpressible, decoding_schema, to_subset
from reyn.models.narrowing import DecodingLimits
from tests.attacks.support import with_limits
from tests.properties import examples

LIMITS = {
    "large model": DecodingLimits(),
    "small model": DecodingLimits(is_small=True),
    "ops of a small model": DecodingLimits(is_small=True, is_op=True),
}

GROWING = """
{'properties': {f'f{n}': TEXT for n in N}, 'anyOf': [{'properties': {f'g{n}': TEXT}} for n in N]}
{'type': 'object', 'required': NAMES, 'anyOf': [{'properties': {f'g{n}': TEXT}} for n in N]}
{'const': 'x' * 20_000, 'oneOf': [{'minLength': n} for n in N]}
{'enum': NAMES, 'oneOf': [{'minLength': n} for n in N]}
{'anyOf': [{'minLength': n} for n in N], 'oneOf': [{'maxLength': n} for n in N]}
{'allOf': [{'anyOf': [{'minLength': n}, {'maxLength': n}]} for n in N]}
{'allOf': [{'oneOf': [{'properties': {f'f{n}{m}': TEXT}} for m in range(3)]} for n in N]}
{'allOf': REFERENCES, '$defs': {f'd{n}': {'anyOf': [{'minLength': n}, {'maxLength': n}]} for n in N}}
{'type': 'object', 'properties': {n: TEXT for n in NAMES}, 'oneOf': [{'required': [n]} for n in NAMES]}
nested(lambda inner: {'type': 'object', 'properties': {}, 'required': NAMES[:30], 'additionalProperties': inner})
{'type': 'object', 'properties': {}, 'required': NAMES, 'patternProperties': {f'^g{n}': TEXT for n in N}}
nested(lambda inner: {'type': 'array', 'prefixItems': [TEXT], 'minItems': 2000, 'items': inner})
{'properties': {n: {'$ref': '#/$defs/a'} for n in NAMES}, '$defs': {'a': {'enum': NAMES}}}
REFERENCES[0] | {'$defs': {f'd{n}': {'properties': {'x': {'$ref': f'#/$defs/d{n + 1}'}}} for n in N} | LAST}
REFERENCES[0] | {'$defs': {f'd{n}': {'allOf': [{'$ref': f'#/$defs/d{n + 1}'}]} for n in N} | LAST}
{'$defs': {f'a{n}': {'$anchor': f'a{n}'} for n in M}, 'properties': {f'p{n}': {'$ref': f'#a{n}'} for n in M}}
{'type': 'array', 'prefixItems': [{'const': n} for n in M], 'items': {}}
""".strip().splitlines()


def test_a_schema_of_a_few_lines_does_not_become_gigabytes():
    """The process has seconds and megabytes; without a bound these take hours or all memory."""
    program = f"""
import json
from reyn.jsonschema import growth, lenient
from reyn.models.decoding import ANTHROPIC, GEMINI, Inexpressible, decoding_schema, to_subset
from reyn.models.narrowing import DecodingLimits
growth._MAX_CHARACTERS = 100_000
N, M, TEXT, LAST = range(300), range(3_000), {{"type": "string"}}, {{"d300": {{"type": "string"}}}}
NAMES, REFERENCES = [f"name{{n}}" for n in N], [{{"$ref": f"#/$defs/d{{n}}"}} for n in N]
def nested(change):
    schema = TEXT
    for _ in range(5):
        schema = change(schema)
    return schema
for schema in ({", ".join(GROWING)}):
    schema["$id"] = "reyn:x"
    fields = {{"choice": {{"const": "a"}}, "artifact": lenient(schema)}}
    contract = {{"anyOf": [{{"type": "object", "properties": fields, "required": ["artifact"]}}]}}
    for is_small, is_op in ((False, False), (True, False), (True, True)):
        size = 0
        try:
            limits = DecodingLimits(is_small=is_small, is_op=is_op)
            found = decoding_schema(contract, limits, is_one_object=not is_small)
            size = len(json.dumps(found))
            to_subset(found, ANTHROPIC), to_subset(found, GEMINI)
        except Inexpressible:
            pass
        print(size)
"""
    sizes = list(map(int, with_limits(program, seconds=60, megabytes=700).split()))
    assert len(sizes) == 3 * len(GROWING)
    assert max(sizes) < 2_000_000


def test_large_honest_schemas_are_converted():
    fields = {f"field{number}": {"anyOf": [{"type": "string"}, {"type": "null"}]} for number in range(500)}
    row = {"type": "object", "properties": fields, "required": list(fields), "description": "A row of the table."}
    table = {"$id": "reyn:t", "type": "array", "items": {"$ref": "#/$defs/row"}, "$defs": {"row": row}}
    countries = {"enum": [f"country {number}" for number in range(5_000)]}
    events = {"oneOf": [{"properties": {"kind": {"const": f"k{n}"}, "text": {"type": "string"}}} for n in range(300)]}
    for schema in (table, countries, {"type": "object", "required": ["kind"], **events}):
        for limits in LIMITS.values():
            assert decoding_schema(contract(schema), limits)["anyOf"]


def contract(schema: Any) -> dict[str, Any]:
    fields = {"choice": {"const": "a"}, "artifact": schema}
    return {"anyOf": [{"type": "object", "properties": fields, "required": list(fields)}]}


NAMES = st.sampled_from(["a", "b", "name", "longer name"])
COUNTS = st.sampled_from([1, 3, 40, 2_000])
LEAVES = st.sampled_from(
    [True, {}, {"type": "string"}, {"$ref": "#/$defs/a"}, {"$ref": "#"}, {"enum": ["one", "two", 3]},
     {"required": ["a"]}, {"const": "x" * 50}, {"type": ["string", "null"], "pattern": "^[a-z]{3}$"},
     {"type": "integer", "minimum": 1}]
)  # fmt: skip


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=4)
    named = st.dictionaries(NAMES, inner, min_size=1, max_size=4)
    keys: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(["anyOf", "oneOf", "allOf", "prefixItems"], several)
    keys |= dict.fromkeys(["properties", "patternProperties", "$defs"], named)
    keys |= dict.fromkeys(["items", "additionalProperties"], inner)
    keys |= {"minItems": COUNTS, "required": st.lists(NAMES, unique=True, max_size=4), "$ref": st.just("#/$defs/a")}
    keys |= {"type": st.sampled_from(["object", "array", "string", ["object", "array"]])}
    return st.fixed_dictionaries({}, optional=keys)


@examples(150)
@given(st.recursive(LEAVES, larger, max_leaves=25), st.sampled_from(list(LIMITS)), st.booleans())
def test_what_comes_out_is_bounded_however_keywords_are_combined(schema: Any, limits: str, is_one_object: bool):
    if not isinstance(schema, dict):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "_MAX_CHARACTERS", 3_000)
        whole = contract(schema | {"$id": "reyn:x"})
        size = len(json.dumps(whole))
        with suppress(Inexpressible):
            found = decoding_schema(whole, LIMITS[limits], is_one_object=is_one_object)
            assert len(json.dumps(found)) < 3 * max(3_000, 4 * size)
            to_subset(found, ANTHROPIC)
            to_subset(found, GEMINI)


def test_a_chain_of_definitions_is_as_long_as_it_likes():
    text = {"type": "string"}
    links = {f"d{n}": {"properties": {"x": {"$ref": f"#/$defs/d{n + 1}"}}, "required": ["x"]} for n in range(1_000)}
    schema = {"type": "object", "$ref": "#/$defs/d0", "$defs": links | {"d1000": text}}
    relaxed = lenient(schema)
    assert compile_schema(relaxed).is_valid({"x": {}})
    assert not compile_schema(relaxed).is_valid({})
    assert decoding_schema(contract(schema | {"$id": "reyn:x"}))["$defs"]
