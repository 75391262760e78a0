"""A schema that says the same in fewer ways takes the same values; one that comes to an end takes some of them."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.jsonschema import compile_schema
from reyn.jsonschema.flattening import flatten
from reyn.models.decoding import decoding_schema

TREE = {
    "$id": "reyn:tree",
    "type": "object",
    "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name", "kids"],
    "additionalProperties": False,
}


def words_of(schema: Any) -> set[str]:
    """Every key anywhere in it."""
    if isinstance(schema, list):
        return set().union(*map(words_of, schema))
    return set(schema).union(*map(words_of, schema.values())) if isinstance(schema, dict) else set()


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


def test_what_is_said_in_parts_is_said_in_one():
    schema = {"$id": "reyn:x", **ALL_OF}
    flat = flatten({"properties": {"x": schema}}, unroll=False)
    assert "allOf" not in words_of(flat)
    ours, true = compile_schema(flat), compile_schema(ALL_OF)
    assert "$ref" not in words_of(flat)
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


def test_a_schema_without_references_and_parts_is_left_as_it_is():
    schema = {
        "anyOf": [{"properties": {"$ref": {"type": "string"}, "allOf": {"enum": [{"$ref": "#"}]}}}, {"type": "null"}]
    }
    assert flatten(schema, unroll=True) == schema


def test_what_holds_itself_keeps_its_references_or_comes_to_an_end():
    whole = compile_schema(flatten({"properties": {"x": TREE}}, unroll=False))
    ended = flatten({"properties": {"x": TREE}}, unroll=True)
    assert "$ref" not in words_of(ended)
    assert "$defs" not in words_of(ended)
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
def test_every_way_to_end_is_taken(schema: dict[str, Any], values: list[Any]):
    ended = flatten({"properties": {"x": {"$id": "reyn:x"} | schema}}, unroll=True)
    assert "$ref" not in words_of(ended)
    ours, true = compile_schema(ended), compile_schema(schema)
    for value in values:
        assert true.is_valid(value)
        assert ours.is_valid({"x": value}), (value, ended)


def test_what_never_ends_or_would_grow_too_large_keeps_its_references():
    endless = {"$id": "reyn:x", "type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    schema = {"properties": {"x": endless}, "required": ["x"]}
    assert "$ref" in words_of(flatten(schema, unroll=True))
    wide = {f"d{n}": {"properties": {key: {"$ref": f"#/$defs/d{n + 1}"} for key in "lr"}} for n in range(20)}
    wide["d20"] = {"type": "integer"}
    grown = flatten({"properties": {"x": {"$id": "reyn:x", "$defs": wide, "$ref": "#/$defs/d0"}}}, unroll=True)
    assert "$ref" in words_of(grown)


def test_what_holds_itself_and_says_more_is_followed_once():
    described = {"allOf": [{"$ref": "#"}], "description": "as generators of schemas write it"}
    named = {"$id": "reyn:x", "type": "object", "properties": {"next": described, "v": {"type": "integer"}}}
    flat = flatten({"properties": {"x": named}}, unroll=False)
    assert flat["properties"]["x"]["properties"]["next"] == {"$ref": "#/$defs/d0"}
    assert flat["$defs"]["d0"]["properties"]["next"] == {"$ref": "#/$defs/d0"}
    more = {"$id": "reyn:x", "type": "object", "properties": {"next": {"$ref": "#", "required": ["next"]}}}
    second = flatten({"properties": {"x": more}}, unroll=False)["properties"]["x"]["properties"]["next"]
    assert second["required"] == ["next"]
    assert second["properties"]["next"] == {"$ref": "#/$defs/d0"}


def test_alternatives_at_the_top_keep_their_definitions():
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


def test_a_definition_that_is_reached_in_two_ways_counts_in_both():
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
def test_a_reference_is_followed_however_it_is_written(reference: str):
    word = {"$anchor": "word", "type": "string", "maxLength": 3}
    inner = {"$id": "reyn:word", "type": "string", "maxLength": 3}
    defs = {"a b": word, "in": {"type": "array", "items": inner}}
    schema = {"$id": "reyn:x", "type": "object", "properties": {"w": {"$ref": reference}}, "$defs": defs}
    for unroll in (False, True):
        ours = compile_schema(flatten({"properties": {"x": schema}}, unroll=unroll))
        assert [ours.is_valid({"x": {"w": word}}) for word in ("abc", "abcd", 3)] == [True, False, False]


def test_what_is_said_beside_alternatives_is_said_in_each():
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


@given(st.recursive(PLAIN, larger, max_leaves=12), st.recursive(PLAIN, larger, max_leaves=6))
def test_whatever_an_author_may_write_a_decoder_can_be_given(schema: Any, definition: Any):
    artifact = {"$id": "reyn:x", "type": "object", "properties": {"x": schema}, "$defs": {"d": definition}}
    contract = {"anyOf": [{"type": "object", "properties": {"artifact": artifact}, "required": ["artifact"]}]}
    for is_small in (False, True):
        decoded = decoding_schema(contract, is_small=is_small)
        compile_schema(decoded)
        assert "allOf" not in words_of(decoded)
        assert decoding_schema(contract, is_one_object=True)["type"] == "object"


def test_parts_that_lead_nowhere_or_to_themselves_are_passed_over():
    schema = {"$id": "reyn:x", "allOf": [{"$ref": "#"}, {"$ref": "#/$defs/gone"}, {"type": "integer"}]}
    assert flatten({"properties": {"x": schema}}, unroll=False)["properties"]["x"] == {"type": "integer"}
