"""What a decoder is held to: everything has an end, nothing is wider than the contract where it can be helped."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.contract import Contract, candidates_of, offered_ops
from reyn.models.decoding import decoding_schema, single_object
from reyn.skills import Library, compile_schema, load_skill
from reyn.vocabulary import STANDARD
from tests.support import write_skill


def contract_of(folder: Path, phase: str, ops: tuple[str, ...] = ()) -> dict:
    skill = load_skill(folder)
    return Contract(candidates_of(skill, phase), offered_ops(STANDARD, ops)).schema


@pytest.fixture
def contract(tmp_path: Path) -> dict:
    return contract_of(write_skill(tmp_path, "s", {"a": ["a", "end"]}), "a", ("file", "ask_user"))


def texts(schema: object) -> list[dict]:
    if isinstance(schema, list):
        return [found for item in schema for found in texts(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "string" and not {"enum", "const"} & schema.keys() else []
    return own + [found for value in schema.values() for found in texts(value)]


def test_every_text_has_an_end(contract: dict):
    found = texts(decoding_schema(contract))
    assert found
    assert all("maxLength" in text for text in found)
    assert all(
        "maxLength" in text or "{" in text["pattern"] for text in texts(decoding_schema(contract, is_unmarked=True))
    )


def test_confidence_is_one_of_a_few_steps(contract: dict):
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


def test_an_answer_that_a_decoder_may_give_satisfies_the_contract(contract: dict):
    for schema in (
        decoding_schema(contract),
        decoding_schema(contract, is_unmarked=True),
        single_object(decoding_schema(contract)),
    ):
        assert compile_schema(schema).is_valid(ANSWERS)
    assert compile_schema(contract).is_valid(ANSWERS)


def test_a_placeholder_cannot_be_decoded(contract: dict):
    copied = ANSWERS | {"artifact": {"type": "note", "data": {"text": "<text>"}}}
    assert compile_schema(contract).is_valid(copied)
    assert not compile_schema(decoding_schema(contract, is_unmarked=True)).is_valid(copied)


def test_an_op_holds_no_placeholder_where_a_name_belongs_but_may_write_anything(contract: dict):
    schema = compile_schema(decoding_schema(contract, is_unmarked=True))
    read, write = ({"kind": "file", "op": op, "path": "a.txt"} for op in ("read", "write"))
    assert schema.is_valid({"control_ir": [read]})
    assert not schema.is_valid({"control_ir": [read | {"path": "<path>"}]})
    assert schema.is_valid({"control_ir": [write | {"content": '<a href="x">\n</a>'}]})


def test_a_text_is_as_long_as_the_contract_wants_it(tmp_path: Path):
    wanted = {"type": "object", "properties": {"text": {"type": "string", "minLength": 300, "maxLength": 900}}}
    folder = write_skill(tmp_path, "long", {"a": ["end"]}, artifacts={"note": wanted})
    for length, longest in ((160, 300), (500, 500), (4_000, 900)):
        found = texts(decoding_schema(contract_of(folder, "a"), text_length=length))
        assert {"type": "string", "minLength": 300, "maxLength": longest} in found


def test_alternatives_at_the_root_become_one_object(contract: dict):
    merged = single_object(decoding_schema(contract))
    assert "anyOf" not in merged
    assert merged["type"] == "object"
    assert set(merged["properties"]) == {"control", "artifact", "control_ir"}


def test_references_inside_an_artifact_still_lead_to_it(tmp_path: Path):
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
def test_the_standard_library_can_be_decoded(tmp_path: Path, name: str):
    folder = Library(tmp_path).find(name)
    skill = load_skill(folder)
    for phase in skill.phases:
        compile_schema(decoding_schema(contract_of(folder, phase)))
