"""The words are one table; what is written elsewhere must agree with it."""

import msgspec
import pytest

from reyn.jsonschema import compile_schema
from reyn.skills import values
from reyn.skills.fronts import STEP_FRONTS
from reyn.skills.values import DEFAULT_OPS
from tests.support import VOCABULARY

FORMS = [pytest.param(spec, form, id=f"{spec.kind}-{form.op}") for spec in VOCABULARY.ops for form in spec.forms]
EFFECTS = ("pure", "idempotent", "reconcilable", "unsafe")


def test_steps_have_the_keys_that_the_vocabulary_says():
    assert STEP_FRONTS.keys() == VOCABULARY.step_kinds
    for spec in VOCABULARY.steps:
        fields = msgspec.structs.fields(STEP_FRONTS[spec.kind])
        assert {field.name for field in fields} == set(spec.keys)
        assert {field.name for field in fields if field.required} == set(spec.required)


def test_every_kind_of_step_has_a_value():
    members = values.AnyStep.__args__
    assert {member.__struct_config__.tag for member in members} == VOCABULARY.step_kinds


def test_what_an_op_needs_is_a_permission_that_exists():
    assert {spec.permission for spec in VOCABULARY.ops if spec.permission} <= VOCABULARY.permission_keys
    assert set(DEFAULT_OPS) <= VOCABULARY.op_kinds


@pytest.mark.parametrize(("spec", "form"), FORMS)
def test_an_example_is_an_op_of_its_form_and_of_no_other(spec, form):
    fitting = [other.op for other in spec.forms if compile_schema(other.arguments).is_valid(form.example)]
    assert fitting == [form.op]
    assert compile_schema(spec.schema).is_valid(form.example)
    assert spec.form(form.op) is form


@pytest.mark.parametrize(("spec", "form"), FORMS)
def test_the_fields_of_a_form_are_closed_and_bounded(spec, form):
    assert form.arguments["additionalProperties"] is False
    assert form.arguments["properties"]["kind"] == {"const": spec.kind}
    assert not compile_schema(form.arguments).is_valid(form.example | {"more": 1})
    for name, field in form.arguments["properties"].items():
        for schema in (field, field.get("items", {})):
            types = [schema.get("type")] if not isinstance(schema.get("type"), list) else schema["type"]
            assert "string" not in types or "maxLength" in schema, name
            assert "array" not in types or "maxItems" in schema, name
            assert "integer" not in types or {"minimum", "maximum"} <= schema.keys(), name
        if "default" in field:
            assert compile_schema(field).is_valid(field["default"])
            assert name not in form.arguments["required"]


@pytest.mark.parametrize(("spec", "form"), FORMS)
def test_a_result_comes_in_the_envelope(spec, form):
    schema = compile_schema(form.result)
    envelope = {"kind": spec.kind} | ({"op": form.op} if form.op else {})
    for status in ("ok", "error", "denied", "skipped", "timeout"):
        assert schema.is_valid(envelope | {"status": status})
    assert not schema.is_valid(envelope)
    assert not schema.is_valid(envelope | {"status": "perhaps"})


def test_a_kind_is_as_bad_as_the_worst_of_its_forms():
    for spec in VOCABULARY.ops:
        if spec.forms:
            assert spec.effect == max((form.effect for form in spec.forms), key=EFFECTS.index)


def test_glob_takes_a_pattern_or_a_path_but_not_both():
    glob = compile_schema(VOCABULARY.op("file").form("glob").arguments)
    base = {"kind": "file", "op": "glob"}
    taken = [
        glob.is_valid(base | more) for more in ({}, {"pattern": "*"}, {"path": "*"}, {"pattern": "*", "path": "*"})
    ]
    assert taken == [False, True, True, False]


def test_what_a_model_is_shown_is_short_and_names_every_form():
    for spec in VOCABULARY.ops:
        offered = spec.offered()
        assert list(offered) == ["kind", "description", "example"]
        assert offered["example"]["kind"] == spec.kind
    file = VOCABULARY.op("file").offered()["description"]
    assert "read(path, offset?, limit?, start?, length?); write(path, content); " in file
    assert "glob(pattern, max_results?)" in file
    assert len(file) < 4 * 150
    assert VOCABULARY.op("ask_user").offered()["description"].endswith("Fields: question, suggestions?, required?.")


def test_the_texts_of_an_example_are_marked_because_small_models_copy_them():
    assert VOCABULARY.op("file").offered()["example"] == {"kind": "file", "op": "read", "path": "<path>"}
    asked = {"kind": "ask_user", "question": "<question>", "suggestions": ["<suggestions>"]}
    assert VOCABULARY.op("ask_user").offered()["example"] == asked
    assert VOCABULARY.op("run_skill").offered()["example"]["input"] == {"text": "<text>"}


def test_a_kind_without_forms_is_declared_and_nothing_fits_it():
    lint = VOCABULARY.op("lint")
    assert (lint.is_available, VOCABULARY.op("file").is_available) == (False, True)
    assert lint.form(None) is None
    assert not compile_schema(lint.schema).is_valid({"kind": "lint"})


def test_a_kind_with_one_form_left_still_tells_its_name():
    spec = VOCABULARY.op("file")
    only = msgspec.structs.replace(spec, forms=(spec.form("delete"),))
    assert only.offered()["description"].endswith("op: delete(path).")
