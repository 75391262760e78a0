"""Flattened schemas accept the same values; with recursion unrolled, a subset."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.jsonschema import compile_schema
from reyn.jsonschema.flattening import flatten
from reyn.models.decoding import decoding_schema
from reyn.models.narrowing import DecodingLimits

TREE = {
    "$id": "reyn:tree",
    "type": "object",
    "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name", "kids"],
    "additionalProperties": False,
}


def keywords_in(schema: Any) -> set[str]:
    """Return every key at any depth."""
    if isinstance(schema, list):
        return set().union(*map(keywords_in, schema))
    return set(schema).union(*map(keywords_in, schema.values())) if isinstance(schema, dict) else set()


def tree(depth: int) -> dict[str, Any]:
    return {"name": "n", "kids": [tree(depth - 1)] if depth else []}


ALL_OF = {
    "type": "object",
    "$defs": {"named": {"properties": {"name": {"type": "string"}}, "required": ["name"]}, "word": {"type": "string"}},
    "properties": {"word": {"$ref": "#/$defs/word", "minLength": 2, "description": "not too short"}},
    "allOf": [
        {"$ref": "#/$defs/named"},
        {"properties": {"name": {"minLength": 2}, "count": {"type": "number", "minimum": 0}}},
        {"properties": {"name": {"maxLength": 3}, "count": {"type": "integer", "maximum": 5}}},
        {"properties": {"sort": {"enum": ["a", "b"]}}},
        {"properties": {"sort": {"enum": ["b", "c"]}}, "allOf": [{"properties": {"rows": {"items": {"minimum": 1}}}}]},
        {"properties": {"rows": {"type": "array", "items": {"maximum": 3}, "minItems": 1}}},
    ],
}


def test_all_of_is_merged():
    schema = {"$id": "reyn:x", **ALL_OF}
    flat = flatten({"properties": {"x": schema}}, unroll=False)
    assert "allOf" not in keywords_in(flat)
    ours, true = compile_schema(flat), compile_schema(ALL_OF)
    assert "$ref" not in keywords_in(flat)
    seen = set()
    choices = {
        "name": ("n", "nn", "nnnn", 3),
        "count": (-1, 2.5, 2, 7),
        "sort": ("a", "b"),
        "rows": ([], [0], [3], [4]),
        "word": ("w", "ww"),
    }
    for chosen in product(*((None, *values) for values in choices.values())):
        value = {key: value for key, value in zip(choices, chosen, strict=True) if value is not None}
        assert ours.is_valid({"x": value}) == true.is_valid(value), value
        seen.add(true.is_valid(value))
    assert seen == {True, False}


def test_a_plain_schema_is_unchanged():
    schema = {
        "anyOf": [{"properties": {"$ref": {"type": "string"}, "allOf": {"enum": [{"$ref": "#"}]}}}, {"type": "null"}]
    }
    assert flatten(schema, unroll=True) == schema


def test_recursion_is_preserved_or_unrolled():
    whole = compile_schema(flatten({"properties": {"x": TREE}}, unroll=False))
    ended = flatten({"properties": {"x": TREE}}, unroll=True)
    assert "$ref" not in keywords_in(ended)
    assert "$defs" not in keywords_in(ended)
    assert [whole.is_valid({"x": tree(depth)}) for depth in (0, 1, 5)] == [True, True, True]
    assert [compile_schema(ended).is_valid({"x": tree(depth)}) for depth in (0, 2, 3)] == [True, True, False]


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ({"properties": {"next": {"$ref": "#"}, "v": {"type": "integer"}}}, [{"v": 1}, {"v": 1, "next": {"v": 2}}]),
        (
            {"type": ["object", "null"], "properties": {"next": {"$ref": "#"}}, "required": ["next"]},
            [None, {"next": None}, {"next": {"next": None}}],
        ),
        ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]}, [1, [], [1, [2]]]),
        ({"type": "object", "additionalProperties": {"$ref": "#"}}, [{}, {"a": {}}]),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"$ref": "#"}}, [[1], [1, [2]]]),
    ],
)
def test_unrolling_uses_every_base_case(schema: dict[str, Any], values: list[Any]):
    ended = flatten({"properties": {"x": {"$id": "reyn:x"} | schema}}, unroll=True)
    assert "$ref" not in keywords_in(ended)
    ours, true = compile_schema(ended), compile_schema(schema)
    for value in values:
        assert true.is_valid(value)
        assert ours.is_valid({"x": value}), (value, ended)


def test_endless_or_large_recursion_is_preserved():
    endless = {"$id": "reyn:x", "type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    schema = {"properties": {"x": endless}, "required": ["x"]}
    assert "$ref" in keywords_in(flatten(schema, unroll=True))
    wide = {f"d{n}": {"properties": {key: {"$ref": f"#/$defs/d{n + 1}"} for key in "lr"}} for n in range(20)}
    wide["d20"] = {"type": "integer"}
    grown = flatten({"properties": {"x": {"$id": "reyn:x", "$defs": wide, "$ref": "#/$defs/d0"}}}, unroll=True)
    assert "$ref" in keywords_in(grown)


def test_recursive_all_of_is_followed_once():
    described = {"allOf": [{"$ref": "#"}], "description": "as generators of schemas write it"}
    named = {"$id": "reyn:x", "type": "object", "properties": {"next": described, "v": {"type": "integer"}}}
    flat = flatten({"properties": {"x": named}}, unroll=False)
    assert flat["properties"]["x"]["properties"]["next"] == {"$ref": "#/$defs/d0"}
    assert flat["$defs"]["d0"]["properties"]["next"] == {"$ref": "#/$defs/d0"}
    more = {"$id": "reyn:x", "type": "object", "properties": {"next": {"$ref": "#", "required": ["next"]}}}
    second = flatten({"properties": {"x": more}}, unroll=False)["properties"]["x"]["properties"]["next"]
    assert second["required"] == ["next"]
    assert second["properties"]["next"] == {"$ref": "#/$defs/d0"}


def test_root_alternatives_keep_their_definitions():
    owner = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    animal = {"type": "object", "properties": {"owner": {"$ref": "#/$defs/Owner"}}, "required": ["owner"]}
    defs = {"Owner": owner, "Cat": animal, "Dog": {"allOf": [{"$ref": "#/$defs/Cat"}, {"required": ["bark"]}]}}
    pet = {"$id": "reyn:pet", "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}], "$defs": defs}
    contract = {"anyOf": [{"properties": {"x": pet}}, {"properties": {"y": {"type": "null"}}}]}
    for unroll in (False, True):
        flat = flatten(contract, unroll=unroll)
        assert len(flat["anyOf"]) == 2
        ours = compile_schema(flat["anyOf"][0] | {"$defs": flat.get("$defs", {})})
        assert ours.is_valid({"x": {"owner": {"name": "Ada"}}})
        assert not ours.is_valid({"x": {"owner": {}}})


def test_a_shared_definition_applies_to_every_reference():
    base = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    sides = {
        name: {"allOf": [{"$ref": "#/$defs/base"}, {"properties": {name: {}}, "required": [name]}]} for name in "ab"
    }
    both = {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"$ref": "#/$defs/a"}]}
    schema = {"$id": "reyn:x", "$defs": {"base": base, **sides}, **both}
    flat = flatten({"properties": {"x": schema}}, unroll=True)["properties"]["x"]
    assert (sorted(flat["properties"]), sorted(flat["required"])) == (["a", "b", "id"], ["a", "b", "id"])


@pytest.mark.parametrize(
    "reference", ["#word", "#/$defs/a%20b", "#/$defs/a b", "reyn:x#/$defs/a b", "reyn:word", "#/$defs/in/items"]
)
def test_every_form_of_reference_is_resolved(reference: str):
    word = {"$anchor": "word", "type": "string", "maxLength": 3}
    inner = {"$id": "reyn:word", "type": "string", "maxLength": 3}
    defs = {"a b": word, "in": {"type": "array", "items": inner}}
    schema = {"$id": "reyn:x", "type": "object", "properties": {"w": {"$ref": reference}}, "$defs": defs}
    for unroll in (False, True):
        ours = compile_schema(flatten({"properties": {"x": schema}}, unroll=unroll))
        assert [ours.is_valid({"x": {"w": word}}) for word in ("abc", "abcd", 3)] == [True, False, False]


def test_siblings_of_alternatives_are_pushed_into_each():
    beside = {"properties": {"id": {"type": "integer"}}, "required": ["id"]}
    parts = [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"type": "string"}, {"required": ["b"]}]
    flat = flatten({"type": "object", "anyOf": parts} | beside, unroll=False)
    assert list(flat) == ["anyOf"]
    assert [part["required"] for part in flat["anyOf"]] == [["a", "id"], ["b", "id"]]
    assert flat["anyOf"][0]["properties"] == {"a": {"const": 1}, "id": {"type": "integer"}}


PLAIN = st.sampled_from(
    [
        True, {}, {"type": "string", "minLength": 2}, {"maxLength": 3}, {"type": "integer", "exclusiveMinimum": 1},
        {"type": ["number", "null"], "multipleOf": 2, "minimum": 0, "maximum": 9}, {"enum": ["x", None, 1]},
        {"const": {"a": 1}}, {"$ref": "#"}, {"$ref": "#/$defs/d"}, {"$ref": "#/$defs/d", "minLength": 2},
        {"type": "array", "items": False, "prefixItems": [True]}, {"type": "object"}, {"required": ["a"]},
    ]
)  # fmt: skip


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    fields = st.dictionaries(st.sampled_from(["a", "b", "items", "$ref", "type"]), inner, max_size=3)
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": fields}, optional={"additionalProperties": inner}
        ),
        *(
            st.fixed_dictionaries({key: several}, optional={"type": st.just("object"), "properties": fields})
            for key in ("anyOf", "oneOf", "allOf")
        ),
    )


@pytest.mark.slow
@given(st.recursive(PLAIN, larger, max_leaves=12), st.recursive(PLAIN, larger, max_leaves=6))
def test_any_schema_can_be_converted(schema: Any, definition: Any):
    artifact = {"$id": "reyn:x", "type": "object", "properties": {"x": schema}, "$defs": {"d": definition}}
    contract = {"anyOf": [{"type": "object", "properties": {"artifact": artifact}, "required": ["artifact"]}]}
    for is_small in (False, True):
        decoded = decoding_schema(contract, DecodingLimits(is_small=is_small))
        compile_schema(decoded)
        assert "allOf" not in keywords_in(decoded)
        assert decoding_schema(contract, is_one_object=True)["type"] == "object"


def test_dangling_and_self_references_in_all_of_are_ignored():
    schema = {"$id": "reyn:x", "allOf": [{"$ref": "#"}, {"$ref": "#/$defs/gone"}, {"type": "integer"}]}
    assert flatten({"properties": {"x": schema}}, unroll=False)["properties"]["x"] == {"type": "integer"}
