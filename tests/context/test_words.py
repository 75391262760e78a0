"""Fields of a schema in words, in the author's order, on one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.context.field_order import field_order, plain_text
from reyn.context.render import truncate
from reyn.journal import canonical, ordered
from reyn.jsonschema.words import describe_fields, escape_line_ends, quote_schema
from reyn.texts import one_line
from reyn.vocabulary import OpForm


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"type": "string"}, "f (text)"),
        ({"type": "string", "maxLength": 80}, "f (text, at most 80 characters)"),
        ({"type": "string", "format": "date"}, "f (text, date)"),
        ({"type": "integer", "minimum": 0, "maximum": 10}, "f (integer, 0 to 10)"),
        ({"type": "number", "minimum": 1}, "f (number, at least 1)"),
        ({"type": "boolean"}, "f (true or false)"),
        ({"enum": ["low", "high"]}, 'f ("low" or "high")'),
        ({"const": 3}, "f (always 3)"),
        ({"type": ["string", "null"]}, "f (text or null)"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, "f (list of text, at least 1 items)"),
        ({"type": "string", "description": "The\nname."}, "f (text): The name."),
        (True, "f (any value)"),
    ],
)
def test_a_simple_field_is_described_in_words(field: Any, words: str):
    assert describe_fields(closed(f=field)) == words


@pytest.mark.parametrize(
    "schema",
    [
        closed(f={"type": "object", "properties": {}}),
        closed(f={"type": "array", "items": {"type": "object"}}),
        closed(f={"type": "string", "pattern": "^a"}),
        closed(f={"$ref": "#/$defs/x"}),
        closed(f={"anyOf": [{"type": "string"}]}),
        closed(f=False),
        {"type": "object", "required": ["f"]},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "minProperties": 1},
        {"anyOf": [closed()]},
        {"type": "string"},
        True,
    ],
)
def test_a_schema_that_words_do_not_cover_is_quoted(schema: Any):
    assert describe_fields(schema) is None


def test_fields_keep_the_order_of_the_author_and_say_what_is_optional():
    schema = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}, "required": ["z"]}
    assert describe_fields(schema) == "z (text), a (integer, optional)"
    assert quote_schema(schema).index('"z"') < quote_schema(schema).index('"a"')


LINES = st.text(alphabet="a #\n\r\u000b\u000c\u0085\u2028\u2029", min_size=1)


@given(LINES, LINES, LINES)
def test_no_text_of_an_author_begins_a_line(name: str, description: str, value: str):
    schema = closed(**{name: {"enum": [value], "description": description}})
    for text in (describe_fields(schema) or "", quote_schema(schema), one_line(description), escape_line_ends(name)):
        assert len(text.replace("\n", "").replace("\r", "").splitlines()) <= 1
    assert len((describe_fields(schema) or "").splitlines()) <= 1
    assert len(quote_schema(schema).splitlines()) == 1


def test_values_of_an_artifact_are_rendered_as_json_on_one_line():
    data = {"a": [1, 2.5, {"k": "é\u2028\n"}], "b": None, "c": True, "x y": {}, "d": "two\nlines", "e": " "}
    assert plain_text(canonical({"type": "t", "data": data})) == (
        'a: [1, 2.5, {"k": "é\\u2028\\n"}]\nb: null\nc: true\nd: two\n  lines\ne: (empty)\n"x y": {}'
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [([1, "a"], '[1, "a"]'), ({}, "{}"), (None, "null"), (3, "3"), ("t", '"t"'), ({"only": "text"}, "text")],
)
def test_data_without_several_fields_is_rendered_as_a_whole(data: Any, text: str):
    assert plain_text(canonical({"type": "t", "data": data})) == text


def test_truncated_content_names_the_op_that_reads_the_rest():
    form = OpForm("page", "Read.", {}, "pure", {}, {"kind": "archive", "op": "page", "path": "NAME"})
    text = truncate("é".encode() * 10, 7, "1.1.1", form).decode()
    assert text == (
        "ééé\n[truncated: these are the first 3 characters of 20 bytes. Read more with "
        '{"kind": "archive", "op": "page", "path": "workspace:.full/1.1.1", "start": 3, "length": 2000}]'
    )


def test_truncated_content_that_no_op_reads_names_no_op():
    text = truncate(b"abcdef", 3, "1.1.1", None).decode()
    assert text == "abc\n[truncated: these are the first 3 characters of 6 bytes.]"


NAMES = st.lists(st.sampled_from(["text", "tone", "a", "z z", "#"]), min_size=1, max_size=4, unique=True)


@given(NAMES, st.integers(0, 3), st.sampled_from([[], ["first"], ["all"]]))
def test_a_text_alone_has_no_name_only_where_its_type_has_no_other_field(names: list[str], at: int, required: list):
    only = names[at % len(names)]
    enforced = {"first": [only], "all": names}[required[0]] if required else []
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": enforced}
    order = field_order(schema)
    text = plain_text(canonical({"type": "t", "data": {only: "hello"}}), ordered(order))
    if len(names) == 1:
        assert text == "hello"
    elif len(enforced) < 2:  # otherwise no such artifact exists
        assert text.endswith(": hello")
        assert text.removesuffix(": hello").strip('"') == only
    whole = plain_text(canonical({"type": "t", "data": dict.fromkeys(names, "hello")}), ordered(order))
    if len(names) > 1:
        assert [line.partition(": ")[0].strip('"') for line in whole.splitlines()] == names
