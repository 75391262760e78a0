"""Schemas reduced to the keywords that a provider supports."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.jsonschema import compile_schema
from reyn.models.decoding import ANTHROPIC, GEMINI, Inexpressible, to_subset

TEXT = {"type": "string", "maxLength": 9, "pattern": "^a"}


@pytest.mark.parametrize(
    ("schema", "anthropic", "gemini"),
    [
        (TEXT, {"type": "string"}, {"type": "string"}),
        ({"type": "string", "format": "uuid"}, {"type": "string", "format": "uuid"}, {"type": "string"}),
        (
            {"type": "integer", "minimum": 1, "maximum": 5},
            {"type": "integer"},
            {"type": "integer", "minimum": 1, "maximum": 5},
        ),
        ({"const": "a"}, {"const": "a"}, {"type": "string", "enum": ["a"]}),
        (
            {"enum": ["a", None, True, 2]},
            {"enum": ["a", None, True, 2]},
            {
                "anyOf": [
                    {"type": "string", "enum": ["a"]},
                    {"type": "number", "enum": [2]},
                    {"type": "boolean"},
                    {"type": "null"},
                ]
            },
        ),
        (
            {"type": "array", "items": TEXT, "minItems": 3, "maxItems": 4},
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 4},
        ),
        (
            {"type": ["string", "null"], "maxLength": 3, "description": "d"},
            {"description": "d", "anyOf": [{"type": "string"}, {"type": "null"}]},
            {"description": "d", "anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        (
            {"type": "object", "properties": {"a": TEXT}, "required": ["a", "b"]},
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "required": ["a"],
                "additionalProperties": False,
            },
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ),
        (
            {"$ref": "#/$defs/n", "$defs": {"n": TEXT}},
            {"$ref": "#/$defs/n", "$defs": {"n": {"type": "string"}}},
            {"$ref": "#/$defs/n", "$defs": {"n": {"type": "string"}}},
        ),
    ],
)
def test_unsupported_keywords_are_removed(schema: Any, anthropic: Any, gemini: Any):
    assert to_subset(schema, ANTHROPIC) == anthropic
    assert to_subset(schema, GEMINI) == gemini


@pytest.mark.parametrize("schema", [True, {}, {"type": "array"}, {"anyOf": [TEXT, {}]}, {"description": "anything"}])
def test_a_schema_of_any_value_cannot_be_expressed(schema: Any):
    for subset in (ANTHROPIC, GEMINI):
        with pytest.raises(Inexpressible):
            to_subset(schema, subset)


def test_an_object_with_any_names_is_open_for_gemini_only():
    schema = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
    with pytest.raises(Inexpressible):
        to_subset(schema, ANTHROPIC)
    assert to_subset(schema, GEMINI)["additionalProperties"] == {"type": "integer", "minimum": 0}


SCHEMAS = st.recursive(
    st.sampled_from([TEXT, {"type": "integer", "minimum": 3}, {"const": "a"}, {"enum": [1, "b"]}, {"type": "null"}]),
    lambda inner: st.one_of(
        st.builds(lambda one: {"type": "array", "items": one, "minItems": 2}, inner),
        st.builds(lambda one: {"anyOf": [one, {"type": "boolean"}]}, inner),
        st.builds(
            lambda one: {
                "type": "object",
                "properties": {"a": one},
                "required": ["a"],
                "additionalProperties": False,
            },
            inner,
        ),
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.sampled_from(["a", "ab", 3, 5, 1, "b", None, True]),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.builds(lambda one: {"a": one}, inner)),
    max_leaves=6,
)


@given(SCHEMAS, VALUES)
def test_what_the_contract_accepts_of_closed_schemas_can_be_answered(schema: Any, value: Any):
    if compile_schema(schema).first_error(value) is None:
        for subset in (ANTHROPIC, GEMINI):
            assert compile_schema(to_subset(schema, subset)).first_error(value) is None
