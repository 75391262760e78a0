"""The lenient mode treats a schema behind a reference as if it stood there, and leaves combinators as they are."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.jsonschema import compile_schema
from reyn.jsonschema.references import lenient

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
INNER: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "deep": {"type": "object", "required": ["z"]}},
    "required": ["a"],
}
VALUES = ({}, {"a": 1}, {"a": "text"}, {"deep": {}}, {"a": 1, "deep": {"z": 2}}, {"a": 1, "deep": 3}, 7)

REFERENCES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a pointer": ({"$ref": "#/$defs/inner"}, {"$defs": {"inner": INNER}}),
    "a pointer to definitions": ({"$ref": "#/definitions/inner"}, {"definitions": {"inner": INNER}}),
    "a pointer with escapes": ({"$ref": "#/$defs/a~1b%25"}, {"$defs": {"a/b%": INNER}}),
    "an anchor": ({"$ref": "#inner"}, {"$defs": {"x": INNER | {"$anchor": "inner"}}}),
    "a dynamic anchor": ({"$ref": "#inner"}, {"$defs": {"x": INNER | {"$dynamicAnchor": "inner"}}}),
    "a dynamic reference": ({"$dynamicRef": "#inner"}, {"$defs": {"x": INNER | {"$dynamicAnchor": "inner"}}}),
    "another schema": ({"$ref": "inner"}, {"$defs": {"x": INNER | {"$id": "inner"}}}),
    "another schema with an absolute name": (
        {"$ref": "http://example.org/inner"},
        {"$defs": {"x": INNER | {"$id": "http://example.org/inner"}}},
    ),
    "another schema beside this one": (
        {"$ref": "inner.json"},
        {"$id": "http://example.org/s/all.json", "$defs": {"x": INNER | {"$id": "inner.json"}}},
    ),
    "a schema with a URN": ({"$ref": "urn:example:inner"}, {"$defs": {"x": INNER | {"$id": "urn:example:inner"}}}),
    "a pointer into another schema": ({"$ref": "o#/$defs/i"}, {"$defs": {"x": {"$id": "o", "$defs": {"i": INNER}}}}),
    "an anchor of another schema": (
        {"$ref": "o#i"},
        {"$defs": {"x": {"$id": "o", "$defs": {"i": INNER | {"$anchor": "i"}}}}},
    ),
    "a chain": (
        {"$ref": "#one"},
        {"$defs": {"one": {"$anchor": "one", "$ref": "two"}, "two": {"$id": "two", "$ref": "#/$defs/i"}}},
    ),
    "a chain through a folder": (
        {"$ref": "f/one"},
        {"$defs": {"one": {"$id": "f/one", "$ref": "two"}, "two": {"$id": "f/two", **INNER}}},
    ),
}
REFERENCES["a chain"][1]["$defs"]["two"]["$defs"] = {"i": INNER}
OLDER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "an anchor of draft 7": (
        {"$ref": "#inner"},
        {"$schema": DRAFT_7, "definitions": {"x": INNER | {"$id": "#inner"}}},
    ),
    "another schema of draft 7": (
        {"$ref": "inner.json"},
        {"$schema": DRAFT_7, "definitions": {"x": INNER | {"$id": "inner.json"}}},
    ),
}
PLACES: dict[str, tuple[Any, Any]] = {
    "properties": (lambda part: {"properties": {"x": part}}, lambda value: {"x": value}),
    "patternProperties": (lambda part: {"patternProperties": {"^x": part}}, lambda value: {"x1": value}),
    "additionalProperties": (lambda part: {"additionalProperties": part}, lambda value: {"y": value}),
    "unevaluatedProperties": (lambda part: {"unevaluatedProperties": part}, lambda value: {"y": value}),
    "items": (lambda part: {"items": part}, lambda value: [value]),
    "prefixItems": (lambda part: {"prefixItems": [part]}, lambda value: [value]),
    "unevaluatedItems": (lambda part: {"unevaluatedItems": part}, lambda value: [value]),
    "two levels": (lambda part: {"properties": {"x": {"items": part}}}, lambda value: {"x": [value]}),
}
OLDER_PLACES: dict[str, tuple[Any, Any]] = {
    name: PLACES[name] for name in ("properties", "patternProperties", "additionalProperties", "items", "two levels")
} | {
    "additionalItems": (lambda part: {"items": [{}], "additionalItems": part}, lambda value: [0, value]),
    "a list of items": (lambda part: {"items": [part]}, lambda value: [value]),
}
COMBINED = ("anyOf", "oneOf", "allOf")
CASES = [
    *((*REFERENCES[name], *PLACES[place]) for name, place in product(REFERENCES, PLACES)),
    *((*OLDER[name], *OLDER_PLACES[place]) for name, place in product(OLDER, OLDER_PLACES)),
]
NAMES = [
    *(f"{name} in {place}" for name, place in product(REFERENCES, PLACES)),
    *(f"{name} in {place}" for name, place in product(OLDER, OLDER_PLACES)),
]


def accepts(schema: Any, value: Any) -> bool:
    return compile_schema(schema).first_error(value) is None


def verdicts(schema: Any, data: Callable[[Any], Any]) -> list[bool]:
    compiled = compile_schema(schema)
    return [compiled.first_error(data(value)) is None for value in VALUES]


@pytest.mark.parametrize(("reference", "definitions", "schema", "data"), CASES, ids=NAMES)
def test_a_schema_behind_a_reference_is_treated_as_one_that_stands_there(reference, definitions, schema, data):
    identity = {key: part for key, part in definitions.items() if key in ("$schema", "$id")}
    behind, inline = definitions | schema(reference), identity | schema(INNER)
    before = deepcopy(behind)
    assert verdicts(behind, data) == verdicts(inline, data)
    assert verdicts(lenient(behind), data) == verdicts(lenient(inline), data)
    assert accepts(lenient(behind), data({}))
    assert not accepts(lenient(behind), data({"a": "text"}))
    assert behind == before


@pytest.mark.parametrize(("reference", "definitions", "schema", "data"), CASES, ids=NAMES)
def test_a_combinator_keeps_what_it_refers_to(reference, definitions, schema, data):
    for combined in COMBINED:
        strict = definitions | schema({combined: [reference]})
        assert verdicts(lenient(strict), data) == verdicts(strict, data), combined


NODE = {"required": ["id"], "properties": {"next": {}, "list": {"type": "array"}, "id": {"type": "integer"}}}
RECURSIVE = [
    ({"$ref": "#"}, {}, {}),
    ({"$ref": "#/$defs/node"}, {}, {"$ref": "#/$defs/node"}),
    ({"$ref": "#node"}, {"$anchor": "node"}, {"$ref": "#node"}),
    ({"$ref": "node"}, {"$id": "node"}, {"$ref": "node"}),
    ({"$ref": "#"}, {"$id": "node"}, {"$ref": "node"}),
    ({"$dynamicRef": "#node"}, {"$dynamicAnchor": "node"}, {"$ref": "#node"}),
]
TREES = st.recursive(
    st.fixed_dictionaries({}, optional={"id": st.sampled_from([1, "text"])}),
    lambda inner: st.fixed_dictionaries({}, optional={"id": st.just(1), "next": inner, "list": st.lists(inner)}),
    max_leaves=6,
)


@pytest.mark.parametrize(("back", "identity", "top"), RECURSIVE)
@given(tree=TREES)
def test_a_schema_that_refers_to_itself_requires_nothing_of_its_parts(back, identity, top, tree):
    node = NODE | identity | {"properties": NODE["properties"] | {"next": back, "list": {"items": back}}}
    schema = {"$defs": {"node": node}, **top} if top else node
    assert accepts(lenient(schema), tree) == ("id" in tree and not _has_text(tree))


def _has_text(tree: dict[str, Any]) -> bool:
    parts = [*([tree["next"]] if "next" in tree else []), *tree.get("list", [])]
    return tree.get("id") == "text" or any(map(_has_text, parts))


def test_a_schema_with_a_name_stays_what_it_is_for_combinators_that_refer_to_it():
    schema = {"properties": {"x": INNER | {"$id": "inner"}, "y": {"anyOf": [{"$ref": "inner"}]}}}
    relaxed = lenient(schema)
    assert accepts(relaxed, {"x": {}})
    assert not accepts(relaxed, {"y": {}})


SELECTING = [
    *({word: [INNER]} for word in ("anyOf", "oneOf", "allOf")),
    {"not": INNER},
    {"if": INNER, "then": INNER, "else": INNER},
    {"contains": INNER},
    {"dependentSchemas": {"a": INNER}},
    {"$schema": DRAFT_7, "dependencies": {"a": INNER}},
]


@pytest.mark.parametrize("schema", SELECTING, ids=lambda schema: list(schema)[-1])
def test_a_part_that_is_a_condition_keeps_its_demands(schema: dict[str, Any]):
    identity = {key: part for key, part in schema.items() if key == "$schema"}
    inner = {key: part for key, part in schema.items() if key != "$schema"}
    nested = identity | {"properties": {"x": inner}}
    assert lenient(schema) == schema
    assert lenient(nested) == nested
