"""Decoding schemas: bounded, supported by grammars, and no wider than the contract where that can be expressed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reyn.contract import Candidate, Contract, candidates_of, offered_ops
from reyn.jsonschema import compile_schema
from reyn.models.decoding import decoding_schema
from reyn.models.narrowing import DecodingLimits
from reyn.skills import Library
from tests.support import VOCABULARY, load_skill, write_skill


def contract_of(folder: Path, phase: str, ops: tuple[str, ...] = ()) -> dict:
    skill = load_skill(folder)
    return Contract(candidates_of(skill, phase), offered_ops(VOCABULARY, ops)).schema


@pytest.fixture
def contract(tmp_path: Path) -> dict:
    return contract_of(write_skill(tmp_path, "s", {"a": ["a", "end"]}), "a", ("file", "ask_user"))


def contract_of_candidates(contract: dict) -> dict:
    """Return the contract without ops."""
    return {"anyOf": [branch for branch in contract["anyOf"] if "control" in branch["properties"]]}


def strings_in(schema: object) -> list[dict]:
    if isinstance(schema, list):
        return [found for item in schema for found in strings_in(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "string" and not {"enum", "const"} & schema.keys() else []
    return own + [found for value in schema.values() for found in strings_in(value)]


def test_every_string_is_bounded(contract: dict):
    found = strings_in(decoding_schema(contract))
    assert found
    assert all("maxLength" in text for text in found)
    assert all(
        "maxLength" in text or "{" in text["pattern"]
        for text in strings_in(decoding_schema(contract, DecodingLimits(is_small=True)))
    )


def test_confidence_is_an_enum(contract: dict):
    branch = decoding_schema(contract)["anyOf"][0]
    assert branch["properties"]["control"]["properties"]["confidence"] == {
        "enum": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    }


ANSWERS = {
    "control": {
        "type": "finish",
        "decision": "finish",
        "next_phase": None,
        "confidence": 0.5,
        "reason": {"summary": "done"},
    },
    "artifact": {"type": "note", "data": {"text": "all of it"}},
}


def test_a_decodable_answer_satisfies_the_contract(contract: dict):
    for schema in (
        decoding_schema(contract),
        decoding_schema(contract, DecodingLimits(is_small=True)),
        decoding_schema(contract, is_one_object=True),
    ):
        assert compile_schema(schema).is_valid(ANSWERS)
    assert compile_schema(contract).is_valid(ANSWERS)


def test_op_names_exclude_escapes_and_op_contents_do_not(contract: dict):
    schema = compile_schema(decoding_schema(contract, DecodingLimits(is_small=True)))
    read, write = ({"kind": "file", "op": op, "path": "a.txt"} for op in ("read", "write"))
    assert schema.is_valid({"control_ir": [read]})
    assert not schema.is_valid({"control_ir": [read | {"path": "a\nb"}]})
    assert schema.is_valid({"control_ir": [write | {"content": '<a href="x">\n</a>'}]})


def test_length_limits_of_the_contract_are_preserved(tmp_path: Path):
    wanted = {"type": "object", "properties": {"text": {"type": "string", "minLength": 300, "maxLength": 900}}}
    folder = write_skill(tmp_path, "long", {"a": ["end"]}, artifacts={"note": wanted})
    assert {"type": "string", "minLength": 300, "maxLength": 900} in strings_in(
        decoding_schema(contract_of(folder, "a"))
    )
    small = strings_in(decoding_schema(contract_of(folder, "a"), DecodingLimits(is_small=True)))
    assert any(text.get("pattern", "").endswith("{300,300}$") for text in small)


def field(schema: dict, **options: bool) -> dict:
    """Return the decoding schema of a field of an artifact."""
    contract = Contract(
        (Candidate("end", "finish", "note", {"type": "object", "properties": {"f": schema}}, ""),)
    ).schema
    branch = decoding_schema(contract, DecodingLimits(**options))["anyOf"][0]["properties"]["artifact"]["properties"][
        "data"
    ]
    return branch["properties"]["f"]


def test_numbers_and_lists_are_restricted_for_small_models_only():
    price = {"type": "number", "minimum": 0, "maximum": 1000}
    assert field(price) == price
    assert field(price, is_small=True) == {"enum": [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]}
    tiny = {"type": "number", "minimum": 0, "maximum": 1e-7}
    assert len(field(tiny, is_small=True)["enum"]) == 11
    rows = {"type": "array", "items": {"type": "integer"}}
    assert field(rows) == rows
    assert field(rows, is_small=True)["maxItems"] == 6


def test_bounds_do_not_contradict_each_other():
    rows = {"type": "array", "items": {"type": "integer"}, "minItems": 9, "maxItems": 20}
    assert (field(rows, is_small=True)["minItems"], field(rows, is_small=True)["maxItems"]) == (9, 9)
    assert field({"type": "array", "minItems": 9}, is_small=True)["maxItems"] == 9


def test_enums_are_preserved():
    assert field({"type": "number", "enum": [1, 1.5], "minimum": 1, "maximum": 2}, is_small=True) == {"enum": [1, 1.5]}
    assert field({"type": ["string", "null"], "enum": ["a", None]}) == {"enum": ["a", None]}


@pytest.mark.parametrize("is_small", [False, True])
def test_strings_are_bounded_in_every_construct(is_small: bool):
    for schema in (
        {"type": ["string", "null"]},
        {"maxLength": 10},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "string", "pattern": r"^\d+$"},
        {"type": "string", "pattern": "[a-z]"},
        {"type": "string", "pattern": "^[a-z]{2,}$"},
    ):
        [text] = strings_in(field(schema, is_small=is_small))
        assert "maxLength" in text or "{0," in text["pattern"]
    assert field({"type": "string", "pattern": "^[a-z]{2,5}$"})["pattern"] == "^[a-z]{2,5}$"
    assert field({"type": ["string", "null"]})["anyOf"][1] == {"type": "null"}


def test_unsupported_keywords_are_rewritten():
    assert field(True) == {}
    pair = {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": False}
    assert field(pair) == {"type": "array", "prefixItems": pair["prefixItems"], "maxItems": 2}


def test_an_unrestricted_value_is_a_scalar_for_small_models():
    assert field({}) == {}
    kinds = [choice["type"] for choice in field({}, is_small=True)["anyOf"]]
    assert kinds == ["string", "number", "boolean", "null"]


def test_alternative_required_fields_become_alternative_objects():
    either = {
        "type": "object",
        "properties": {"name": {"type": "integer"}, "mail": {"type": "integer"}, "phone": {"type": "integer"}},
        "required": ["name"],
        "additionalProperties": False,
        "oneOf": [{"required": ["mail"]}, {"required": ["phone"]}],
    }
    decoded, true = compile_schema(field(either)), compile_schema(either)
    for value in ({"name": 1, "mail": 1}, {"name": 1, "phone": 1}, {"name": 1}, {"name": 1, "mail": 1, "phone": 1}):
        assert decoded.is_valid(value) == true.is_valid(value)


def test_artifact_fields_named_like_answer_fields_are_not_special():
    odd = {"type": "object", "properties": {"confidence": {"type": "number"}, "control_ir": {"type": "array"}}}
    assert field(odd, is_small=True)["properties"]["confidence"]["type"] == "number"


def test_ops_of_small_models_have_required_fields_only(contract: dict):
    [act] = [
        branch
        for branch in decoding_schema(contract, DecodingLimits(is_small=True))["anyOf"]
        if "control" not in branch["properties"]
    ]
    read = act["properties"]["control_ir"]["items"]["anyOf"][0]
    assert list(read["properties"]) == ["kind", "op", "path"]


def test_one_object_requires_what_all_branches_require(contract: dict):
    merged = decoding_schema(contract_of_candidates(contract), is_one_object=True)
    assert merged["required"] == ["control", "artifact"]
    assert not compile_schema(merged).is_valid({"control": ANSWERS["control"], "artifact": {"anything": 1}})


def test_one_object_has_no_alternatives_at_the_root(contract: dict):
    merged = decoding_schema(contract, is_one_object=True)
    assert "anyOf" not in merged
    assert merged["type"] == "object"
    assert set(merged["properties"]) == {"control", "artifact", "control_ir"}


def test_references_within_an_artifact_are_resolved(tmp_path: Path):
    tree = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "required": ["tree"],
        "$defs": {"node": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
    }
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, artifacts={"tree": tree}, final_output="tree")
    schema = decoding_schema(contract_of(folder, "a"))
    good = ANSWERS | {"artifact": {"type": "tree", "data": {"tree": {"name": "oak"}}}}
    bad = ANSWERS | {"artifact": {"type": "tree", "data": {"tree": {"name": 7}}}}
    assert compile_schema(schema).is_valid(good)
    assert not compile_schema(schema).is_valid(bad)


@pytest.mark.parametrize("name", ["summarize", "triage", "draft_review", "extract_fields", "direct_llm", "headline"])
def test_contracts_of_the_standard_library_can_be_converted(tmp_path: Path, name: str):
    folder = Library(tmp_path).find(name)
    skill = load_skill(folder)
    for phase in skill.phases:
        compile_schema(decoding_schema(contract_of(folder, phase)))


@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 7},
        {"type": "integer", "minimum": 2.5, "maximum": 6.5},
        {"type": "integer", "exclusiveMinimum": 2.5, "minimum": 1, "maximum": 6},
        {"type": "integer", "multipleOf": 3, "minimum": -4, "maximum": 9},
        {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": 0, "maximum": 3},
        {"type": ["number", "null"], "multipleOf": 2, "minimum": 0, "maximum": 8},
    ],
)
def test_exclusive_bounds_and_multiples_are_converted_exactly(schema: dict, is_small: bool):
    decoded, true = field(schema, is_small=is_small), compile_schema(schema)
    assert "exclusive" not in str(decoded)
    for value in [number / 2 for number in range(-20, 21)]:
        number = int(value) if value.is_integer() else value
        assert compile_schema(decoded).is_valid(number) == true.is_valid(number), number


def test_exclusive_bounds_of_numbers_become_inclusive():
    ratio = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    assert field(ratio) == {"type": "number", "minimum": 0, "maximum": 1}
    assert field(ratio, is_small=True) == {"enum": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]}
    assert field({"type": "integer", "multipleOf": 3, "minimum": 0}) == {"type": "integer", "minimum": 0}


def test_repetition_counts_stay_within_the_limit_of_llama_cpp():
    assert field({"type": "string", "minLength": 3000}) == {"type": "string", "minLength": 2000, "maxLength": 3000}
    assert field({"type": "array", "minItems": 3000})["minItems"] == 2000
    assert "pattern" not in field({"type": "string", "pattern": "^[a-z]{3000,4000}$"})
    assert field({"type": "string", "minLength": 3000}, is_small=True)["pattern"].endswith("{2000,3000}$")
    assert field({"type": "string", "minLength": 5000}) == {"type": "string", "minLength": 2000, "maxLength": 5000}
    huge = {"type": "number", "minimum": -1.7e308, "maximum": 1.7e308, "multipleOf": 0.01}
    assert field(huge, is_small=True)["type"] == "integer"


def test_small_models_add_no_additional_properties():
    node = {"type": "object", "properties": {"v": {"type": "integer"}}, "additionalProperties": {"type": "integer"}}
    assert field(node)["additionalProperties"] == {"type": "integer"}
    assert field(node, is_small=True)["additionalProperties"] is False


def test_required_properties_are_declared():
    undeclared = {"type": "object", "required": ["a"]}
    assert field(undeclared | {"additionalProperties": {"type": "null"}})["properties"] == {"a": {"type": "null"}}
    assert list(field(undeclared, is_small=True)["properties"]) == ["a"]
    named = undeclared | {"patternProperties": {"^a": {"type": "null"}, "^b": False}, "additionalProperties": False}
    assert field(named)["properties"] == {"a": {"type": "null"}}
    assert field(named)["additionalProperties"] == {"type": "null"}
    other = {
        "required": ["name"],
        "patternProperties": {"^x_": {"type": "integer"}},
        "additionalProperties": {"type": "null"},
    }
    assert field(other)["properties"] == {"name": {"type": "null"}}
    letters = {"required": ["ä"], "patternProperties": {r"^\p{L}$": {"type": "null"}}, "additionalProperties": False}
    assert field(letters)["properties"] == {"ä": {"type": "null"}}
    closed = {"type": "object", "patternProperties": {"^_": False}, "additionalProperties": False}
    assert field(closed)["additionalProperties"] is False
    either = {"properties": {"a": {}, "b": {}, "k": {}}, "required": ["k"]}
    branches = field(either | {"oneOf": [{"required": ["k", "a"]}, {"required": ["b"]}]})["anyOf"]
    assert [list(branch["properties"]) for branch in branches] == [["a", "k"], ["b", "k"]]


def test_a_tuple_with_further_items_accepts_all_item_types():
    rows = {"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "integer"}}
    assert field(rows)["items"] == {"anyOf": [{"type": "null"}, {"type": "integer"}]}
    earlier = {"type": "array", "items": [{"type": "null"}], "additionalItems": False}
    assert decoding_schema({"properties": {"x": earlier}})["properties"]["x"] == {
        "type": "array", "prefixItems": [{"type": "null"}], "maxItems": 1
    }  # fmt: skip


def test_a_large_contract_is_converted_completely():
    fields = {f"f{number}": {"type": "string"} for number in range(25)}
    home = {
        "$id": "reyn:h",
        "$ref": "#/$defs/r",
        "$defs": {"r": {"type": "object", "properties": fields, "required": ["f0"]}},
    }
    branch = {"type": "object", "properties": {"artifact": home | {"type": "object"}}, "required": ["artifact"]}
    contract = {"anyOf": [branch | {"description": str(number)} for number in range(100)]}
    for is_small in (False, True):
        for branch in decoding_schema(contract, DecodingLimits(is_small=is_small))["anyOf"]:
            assert list(branch["properties"]["artifact"]["properties"]) == list(fields)


def test_recursive_schemas_stay_small():
    kinds = [f"N{number}" for number in range(8)]
    union = {"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in kinds], "discriminator": {"propertyName": "kind"}}
    node = {"type": "object", "properties": {"left": union, "right": union}, "required": ["left"]}
    tree = {"$id": "reyn:t", "$defs": dict.fromkeys(kinds, node), "type": "object", "properties": {"root": union}}
    contract = {"anyOf": [{"type": "object", "properties": {"artifact": tree}, "required": ["artifact"]}]}
    for is_small in (False, True):
        assert len(json.dumps(decoding_schema(contract, DecodingLimits(is_small=is_small)))) < 200_000
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2, "minLength": n} for n in range(30)}
    doubled = {"$id": "reyn:d", "$ref": "#/$defs/d0", "$defs": twice | {"d30": {"type": "string"}}}
    assert len(json.dumps(field(doubled))) < 200_000
    wide = {"allOf": [{"anyOf": [{"minLength": n}, {"maxLength": n}, {"const": "x"}]} for n in range(12)]}
    assert len(json.dumps(field(wide))) < 200_000


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"^\d{4}-\d{2}-\d{2}$", "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
        (r"^[\w-]{1,8}\.py$", "^[A-Za-z0-9_-]{1,8}[.]py$"),
        ("^(AB|CD)-[0-9]{3}(-x)?$", "^(AB|CD)-[0-9]{3}(-x)?$"),
        (r"^\d+$", None),
        ("^a|b$", None),
        ("^(?:ab)$", None),
        ("^([a-z]{1,30}){1,30}$", None),
        ("^.{1,5}$", None),
        ("^[^a]{1,5}$", None),
        ('^"x"$', None),
        ("^[a-z]{3,}$", None),
        (r"^a\$", None),
        ("[a-z]", None),
        ("^[ -~]{1,9}$", None),
        ("^[A-z]{1,9}$", None),
        ("^[-a]{1,9}$", "^[-a]{1,9}$"),
    ],
)
def test_a_pattern_is_rewritten_or_dropped(pattern: str, expected: str | None):
    assert field({"type": "string", "pattern": pattern}).get("pattern") == expected


def test_lengths_are_merged_into_a_pattern_of_one_class():
    word = {"type": "string", "pattern": "^[a-z]{0,9}$", "minLength": 3, "maxLength": 4}
    assert field(word)["pattern"] == "^[a-z]{3,4}$"
    assert field(word | {"minLength": 30})["pattern"] == "^[a-z]{0,9}$"


def test_numbers_for_small_models_are_valid_samples():
    for schema in (
        {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 100},
        {"type": "integer", "multipleOf": 7},
        {"type": "integer", "multipleOf": 7, "maximum": -3},
        {"type": "integer", "multipleOf": 1.5, "minimum": 0, "maximum": 9},
        {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": 1},
    ):
        numbers = field(schema, is_small=True)["enum"]
        assert len(numbers) > 2
        assert all(compile_schema(schema).is_valid(number) for number in numbers), numbers
    assert field({"type": "number", "maximum": -0.5}, is_small=True) == {
        "type": "integer",
        "minimum": -(10**9),
        "maximum": -1,
    }
    assert field({"type": "integer", "minimum": 10**16, "maximum": 10**17}) == {"type": "integer"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer"},
        {"type": "integer", "minimum": 3},
        {"type": "integer", "exclusiveMaximum": -5},
        {"type": "integer", "minimum": 10**12},
        {"type": "number"},
        {"type": "number", "maximum": 0.5},
    ],
)
def test_no_number_in_a_grammar_has_digits_without_end(schema: dict):
    """The embedded model repeated a digit until its answer was cut off, and the run failed."""
    for options in ({"is_small": True}, {"bounds_numbers": True}):
        bounded = field(schema, **options)
        assert bounded["minimum"] < bounded["maximum"]
        for value in (bounded["minimum"], bounded["maximum"]):
            assert compile_schema(schema).is_valid(value)
    assert field({"type": "number"}, is_small=True)["multipleOf"] == 0.0001
    assert field(schema).keys() - {"type"} <= {"minimum", "maximum"}
    assert field({"type": "integer"}) == {"type": "integer"}


def test_tuples_of_small_models_have_a_fixed_length():
    count, flag = {"type": "integer", "minimum": 0, "maximum": 9}, {"type": "boolean"}
    pair = {"type": "array", "prefixItems": [flag, count]}
    assert field(pair | {"items": count, "minItems": 3}, is_small=True)["prefixItems"] == [flag, count, count]
    assert field(pair | {"maxItems": 1}, is_small=True) == {"type": "array", "prefixItems": [flag]}
    assert field(pair | {"maxItems": 1})["prefixItems"] == [flag]
    assert next(kind["type"] for kind in field({"type": "array"}, is_small=True)["items"]["anyOf"]) == "string"


def test_unsatisfiable_parts_are_dropped():
    assert field({"type": "object", "properties": {"a": {"type": "null"}, "old": False}})["properties"] == {
        "a": {"type": "null"}
    }
    assert field({"anyOf": [False, {"type": "null"}]}) == {"anyOf": [{"type": "null"}]}
    assert field({"type": "array", "prefixItems": [{"type": "null"}, False]})["maxItems"] == 1
    assert field({"type": "array", "items": True, "minItems": 2.0}) == {"type": "array", "minItems": 2}
    assert field({"allOf": [{"enum": ["a", 1]}, {"enum": [True, "a"]}]}) == {"enum": ["a"]}
