"""The example answer in a prompt matches the schema of its artifact."""

from __future__ import annotations

from typing import Any

import pytest

from reyn.contract import Candidate
from reyn.contract.example import example_answer
from reyn.jsonschema import compile_schema

NODE = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def example_data(schema: dict[str, Any]) -> Any:
    return example_answer((Candidate("end", "finish", "note", schema, ""),))["artifact"]["data"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": NODE}}, {"a": {"x": 1}}),
        ({"allOf": [NODE, {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}]}, {"x": 1, "b": True}),
        ({"type": "number", "maximum": -0.5}, -0.5),
        ({"type": "integer", "minimum": 1, "multipleOf": 5}, 5),
        ({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 8}, 4),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "integer", "minimum": 2.5}, 3),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": False}, [1, True]),
        ({"type": "array", "maxItems": 0}, []),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, 1),
        ({"type": "object", "properties": {"old": False, "a": {"const": 3}}}, {"a": 3}),
    ],
)
def test_the_example_matches_its_schema(schema: dict[str, Any], value: Any):
    assert example_data(schema) == value
    assert compile_schema(schema).is_valid(value)


def test_a_recursive_schema_is_expanded_to_a_fixed_depth():
    kids = {"type": "array", "items": {"$ref": "#"}}
    tree = {"type": "object", "properties": {"name": {"type": "string"}, "kids": kids}}
    assert example_data(tree) == {"name": "<name>", "kids": [{"name": "<name>", "kids": []}]}
    assert compile_schema(tree).is_valid(example_data(tree))
    assert example_data({"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/x"}}}) == "<value>"


def test_a_long_list_is_truncated():
    assert len(example_data({"type": "array", "items": {"type": "integer"}, "minItems": 50})) == 3


def test_unusual_bounds_and_wide_schemas_are_fast():
    assert example_data({"type": "array", "items": {"type": "integer"}, "minItems": 2.0}) == [1, 1]
    huge = {"type": "number", "minimum": -1.797e308, "maximum": 1.797e308, "multipleOf": 0.01}
    assert isinstance(example_data(huge), float)
    many = {"type": "object", "properties": {name: {"$ref": "#"} for name in "abcdefghij"}}
    assert len(str(example_data(many))) < 20_000
    assert example_data({"type": "object", "properties": {"w": {"$ref": "#word"}}}) == {"w": "<w>"}
