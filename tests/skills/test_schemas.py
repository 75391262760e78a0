"""Validation messages are Reyn's own, independent of the validation library's version."""

import pytest

from reyn.jsonschema import SchemaInvalid, Validator


@pytest.mark.parametrize(
    ("schema", "value", "path", "message"),
    [
        ({"required": ["a", "b"]}, {"a": 1}, "$", "'b' is missing"),
        ({"required": list("abcdefg")}, {}, "$", "'a', 'b', 'c', 'd', 'e' and others are missing"),
        ({"type": "string"}, 3, "$", "is integer, not string"),
        ({"type": ["string", "null"]}, 3.5, "$", "is number, not string or null"),
        ({"properties": {"a": {"type": "object"}}}, {"a": [1]}, "$.a", "is array, not object"),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"z": 1}, "$", "'z' is not allowed here"),
        ({"items": {"enum": ["x", "y"]}}, ["x", "z"], "$[1]", 'is "z", not one of ["x","y"]'),
        ({"const": 7}, 8, "$", "is 8, not 7"),
        ({"maxLength": 2}, "abc", "$", "violates `maxLength` 2"),
        ({"minimum": 3}, 1, "$", "is 1, less than 3"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, 1, "$", "does not fit the alternatives of `anyOf`"),
        (
            {"$defs": {"x": {"maxLength": 1}}, "properties": {"a": {"$ref": "#/$defs/x"}}},
            {"a": "bc"},
            "$.a",
            "violates `maxLength` 1",
        ),
        ({"not": {}}, 1, "$", "violates `not` {}"),
        (False, 1, "$", "is not allowed here"),
    ],
)
def test_an_error_has_a_path_and_a_message(schema, value, path: str, message: str):
    error = Validator(schema).first_error(value)
    assert (error.path(), error.message) == (path, message)


def test_errors_are_sorted_by_path_and_keyword():
    schema = {"properties": {"b": {"type": "string"}, "a": {"minimum": 3, "multipleOf": 2, "type": "integer"}}}
    error = Validator(schema).first_error({"b": 1, "a": 1.5})
    assert (error.path(), error.message) == ("$.a", "is 1.5, less than 3")


def test_a_valid_value_has_no_error():
    assert Validator(True).first_error({}) is None
    assert Validator({"type": "object"}).is_valid({})


@pytest.mark.parametrize(
    "schema", [{"type": 3}, {"$ref": "other.yaml"}, {"$schema": "draft-03"}, {"$ref": "#/nowhere"}]
)
def test_an_invalid_schema_is_rejected(schema):
    with pytest.raises(SchemaInvalid):
        Validator(schema)


@pytest.mark.parametrize("index", ["9" * 5000, "%C2%B2", "1"])
def test_a_reference_to_an_element_that_does_not_exist_is_rejected(index: str):
    with pytest.raises(SchemaInvalid):
        Validator({"allOf": [{}], "properties": {"a": {"$ref": f"#/allOf/{index}"}}})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {"type": "strin"},
            '`type` is "strin"; the types are string, number, integer, boolean, array, object and null',
        ),
        ({"properties": {"a": {"type": "sting"}}}, '`type` is "sting"; the types are '),
        ({"required": "a"}, '`required`: "a" is not of type "array"'),
        ({"properties": {"type": 3}}, "3 is not of types"),
        ({"$ref": "#/$defs/none"}, "Use references inside the schema, such as `#/$defs/NAME`"),
        ({"$ref": "other.yaml"}, "Use references inside the schema, such as `#/$defs/NAME`"),
    ],
)
def test_an_invalid_schema_names_the_keyword_and_the_fix(schema: dict, message: str):
    with pytest.raises(SchemaInvalid) as caught:
        Validator(schema)
    assert message in str(caught.value)
