"""The vocabulary is consistent with step values, schemas and the model's view."""

import msgspec
import pytest

from reyn.jsonschema import compile_schema
from reyn.skills.front_matter import STEP_ARGUMENTS
from reyn.skills.step_types import STEP_TYPES
from reyn.skills.values import DEFAULT_OPS
from tests.support import VOCABULARY

FORMS = [pytest.param(spec, form, id=f"{spec.kind}-{form.op}") for spec in VOCABULARY.ops for form in spec.forms]
EFFECTS = ("pure", "idempotent", "reconcilable", "unsafe")


def test_step_arguments_are_the_fields_of_step_values():
    assert STEP_ARGUMENTS.keys() == STEP_TYPES.keys()
    for kind, shape in STEP_ARGUMENTS.items():
        assert {*shape.__struct_fields__} == {*STEP_TYPES[kind].__struct_fields__}


def test_every_step_value_has_a_summary():
    assert all((cls.__doc__ or "").strip() for cls in STEP_TYPES.values())


def test_permissions_of_ops_exist():
    assert {spec.permission for spec in VOCABULARY.ops if spec.permission} <= VOCABULARY.permission_keys
    assert set(DEFAULT_OPS) <= VOCABULARY.op_kinds


@pytest.mark.parametrize(("spec", "form"), FORMS)
def test_an_example_matches_exactly_its_form(spec, form):
    matching = [other.op for other in spec.forms if compile_schema(other.arguments).is_valid(form.example)]
    assert matching == [form.op]
    assert compile_schema(spec.schema).is_valid(form.example)
    assert spec.form(form.op) is form


@pytest.mark.parametrize(("spec", "form"), FORMS)
def test_arguments_are_closed_and_bounded(spec, form):
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
def test_a_result_has_the_envelope(spec, form):
    schema = compile_schema(form.result)
    envelope = {"kind": spec.kind} | ({"op": form.op} if form.op else {})
    for status in ("ok", "error", "denied", "skipped", "timeout"):
        assert schema.is_valid(envelope | {"status": status})
    assert not schema.is_valid(envelope)
    assert not schema.is_valid(envelope | {"status": "perhaps"})


def test_the_effect_of_a_kind_is_the_most_severe_of_its_forms():
    for spec in VOCABULARY.ops:
        if spec.forms:
            assert spec.effect == max((form.effect for form in spec.forms), key=EFFECTS.index)


def test_glob_takes_a_pattern_a_folder_or_both():
    glob = compile_schema(VOCABULARY.op("file").form("glob").arguments)
    base = {"kind": "file", "op": "glob"}
    accepted = [
        glob.is_valid(base | more) for more in ({}, {"pattern": "*"}, {"path": "*"}, {"pattern": "*", "path": "*"})
    ]
    assert accepted == [False, True, True, True]


def test_the_models_view_is_short_and_names_every_form():
    for spec in VOCABULARY.ops:
        entry = spec.offered()
        assert list(entry) == ["kind", "description", "example"]
        assert entry["example"]["kind"] == spec.kind
    file = VOCABULARY.op("file").offered()["description"]
    assert "read(path, offset?, limit?, start?, length?); write(path, content); " in file
    assert "glob(pattern, max_results?)" in file
    assert len(file) < 4 * 150
    assert VOCABULARY.op("ask_user").offered()["description"].endswith("Fields: question, suggestions?, required?.")


def test_a_reserved_kind_accepts_no_arguments():
    mcp = VOCABULARY.op("mcp")
    assert (mcp.is_available, VOCABULARY.op("file").is_available) == (False, True)
    assert mcp.form(None) is None
    assert not compile_schema(mcp.schema).is_valid({"kind": "mcp"})


def test_a_kind_with_one_named_form_shows_the_name():
    spec = VOCABULARY.op("file")
    only = msgspec.structs.replace(spec, forms=(spec.form("delete"),))
    assert only.offered()["description"].endswith("op: delete(path).")


@pytest.mark.parametrize("kind", ["mcp", "index_merge", "index_anything"])
def test_names_of_later_ops_are_reserved(kind: str):
    assert VOCABULARY.is_reserved(kind)
    assert not VOCABULARY.op(kind).is_available


@pytest.mark.parametrize("kind", ["index", "indexes", "embedded", "mcp_install", "reindex_docs"])
def test_similar_names_are_unknown(kind: str):
    assert VOCABULARY.op(kind) is None
    assert not VOCABULARY.is_reserved(kind)


def test_an_available_op_is_not_reserved():
    assert not VOCABULARY.is_reserved("file")
