"""The contract: every class of rejection with its path, and agreement with the combined schema."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.config import Sizes
from reyn.contract import Accepted, Candidate, Contract, Rejected, offered_ops
from reyn.journal import canonical
from reyn.jsonschema import compile_schema, lenient
from tests.support import VOCABULARY, abort, finish, go

NOTE = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 20},
        "tags": {
            "type": "array",
            "items": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
        },
    },
    "required": ["text"],
    "additionalProperties": False,
}
LIST = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
CANDIDATES = (
    Candidate("check", "transition", "note", NOTE, "to check"),
    Candidate("check", "transition", "list", LIST, "to check with a list"),
    Candidate("end", "finish", "note", NOTE, "done"),
)
CONTRACT = Contract(CANDIDATES)


def changed(answer: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    answer = copy.deepcopy(answer)
    *way, last = path.split(".")
    node = answer
    for step in way:
        node = node[step]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return answer


OK = go("check")
DEEP = json.dumps(changed(OK, "artifact.data.text", "x")).replace('"x"', "[" * 70 + "]" * 70)


@pytest.mark.parametrize(
    ("answer", "rule", "path", "message"),
    [
        ("", "empty", "$", "empty"),
        (" \n\t", "empty", "$", "empty"),
        ("nothing", "not_json", "$", "not one JSON object"),
        ('{"control": ', "not_json", "$", "not one JSON object"),
        (json.dumps(OK) + json.dumps(OK), "not_json", "$", "not one JSON object"),
        ("[" * 100_000, "depth", "$", "64 deep"),
        ("[" * 900 + "]" * 900, "depth", "$", "64 deep"),
        (DEEP, "depth", "$", "64 deep"),
        ("[]", "not_object", "$", "a JSON list"),
        ('"text"', "not_object", "$", "a JSON string"),
        ("null", "not_object", "$", "a JSON null"),
        ("3.5", "not_object", "$", "a JSON number"),
        ("true", "not_object", "$", "a JSON boolean"),
        ('{"a": 1, "a": 2}', "duplicate_key", "$.a", "twice"),
        ('{"a": 1, "\\u0061": 1}', "duplicate_key", "$.a", "twice"),
        (
            json.dumps(OK).replace('"type": "transition"', '"type": "abort", "type": "transition"'),
            "duplicate_key",
            "$.control.type",
            "twice",
        ),
        (
            json.dumps(OK).replace('"on"', '[{"b": 1}, {"c": {"d": 1, "e": 2, "d": 1}}]'),
            "duplicate_key",
            "$.artifact.data.text[1].c.d",
            "twice",
        ),
        (f'```json\n{json.dumps(OK)[:-1]}, "artifact": null}}\n```', "duplicate_key", "$.artifact", "twice"),
        (
            f'{{"{"k" * 300_000}": [{"{}," * 100_000}{{}}], "b": 1, "b": 2}}',
            "duplicate_key",
            "$.b",
            "twice",
        ),
        ("x" * 1_000_001, "size", "$", "1000000 bytes"),
        ("é" * 600_000, "size", "$", "1000000 bytes"),
        ({}, "shape", "$", "control"),
        (changed(OK, "extra", 1), "shape", "$", "extra"),
        (changed(OK, "control.extra", 1), "shape", "$.control", "extra"),
        (changed(OK, "control.type", "jump"), "shape", "$.control.type", "jump"),
        (changed(OK, "control.decision", "revise"), "shape", "$.control.decision", "revise"),
        (changed(OK, "control.decision", ...), "shape", "$.control", "decision"),
        (changed(OK, "control.confidence", "high"), "shape", "$.control.confidence", "number"),
        (changed(OK, "control.confidence", 1.5), "shape", "$.control.confidence", "more than 1"),
        (changed(OK, "control.confidence", -0.1), "shape", "$.control.confidence", "less than 0"),
        (changed(OK, "control.reason", "because"), "shape", "$.control.reason", "object"),
        (changed(OK, "control.reason.summary", None), "shape", "$.control.reason.summary", "str"),
        (changed(OK, "control.next_phase", 3), "shape", "$.control.next_phase", "str"),
        (changed(OK, "control.decision", "finish"), "consistency", "$.control.decision", "'continue'"),
        (changed(OK, "control.next_phase", None), "consistency", "$.control.next_phase", "name of a phase"),
        (changed(finish(), "control.next_phase", "check"), "consistency", "$.control.next_phase", "null"),
        (changed(finish(), "control.next_phase", "end"), "consistency", "$.control.next_phase", "null"),
        (changed(finish(), "control.decision", "abort"), "consistency", "$.control.decision", "'finish'"),
        (changed(abort(), "control.next_phase", "check"), "consistency", "$.control.next_phase", "null"),
        (go("abort"), "candidate", "$.control.next_phase", "'check'"),
        (go("end"), "candidate", "$.control.next_phase", "or finish with next_phase null"),
        (go("rollback"), "candidate", "$.control.next_phase", "'rollback' is not offered"),
        (changed(OK, "artifact", ...), "shape", "$.artifact", "object"),
        (changed(OK, "artifact.data", ...), "shape", "$.artifact", "data"),
        (changed(OK, "artifact.extra", 1), "shape", "$.artifact", "extra"),
        (changed(OK, "artifact.type", "menu"), "artifact_type", "$.artifact.type", "'note' or 'list'"),
        (changed(finish(), "artifact.type", "list"), "artifact_type", "$.artifact.type", "'note'"),
        (changed(OK, "artifact.data.text", 1), "schema", "$.artifact.data.text", "string"),
        (changed(OK, "artifact.data.text", "x" * 21), "schema", "$.artifact.data.text", "20"),
        (changed(OK, "artifact.data.text", ...), "schema", "$.artifact.data", "'text' is missing"),
        (changed(OK, "artifact.data.more", 1), "schema", "$.artifact.data", "more"),
        (
            changed(OK, "artifact.data.tags", [{"id": 1}, {"id": "x"}]),
            "schema",
            "$.artifact.data.tags[1].id",
            "integer",
        ),
        (changed(OK, "control_ir", [{"kind": "file"}]), "ops", "$.control_ir", "no ops"),
        ({"control_ir": [{"kind": "shell", "cmd": "true"}]}, "ops", "$.control_ir", "decide instead"),
        (changed(OK, "control_ir", "none"), "shape", "$.control_ir", "array"),
    ],
)
def test_an_invalid_answer_is_rejected_with_class_path_and_message(answer, rule: str, path: str, message: str):
    verdict = CONTRACT.judge(answer if isinstance(answer, str) else json.dumps(answer))
    assert isinstance(verdict, Rejected)
    assert (verdict.rule, verdict.path) == (rule, path)
    assert message in verdict.message
    assert len(verdict.message) <= 500


@pytest.mark.parametrize("answer", [OK, go("check", type="list"), finish(), abort(), changed(OK, "control_ir", ...)])
def test_a_valid_answer_is_accepted(answer):
    verdict = CONTRACT.judge(json.dumps(answer))
    assert isinstance(verdict, Accepted)
    assert verdict.dropped == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("```json\n", "\n```"),
        ("```\n", "```"),
        ("Here you are:\n", ""),
        ("", "\n\nAnything else?"),
        ("Sure. ", " Bye."),
        ("<think>perhaps {}, or\n```json\n{}\n```?</think>", ""),
        ("so be it {\n</think>\n\n```json\n", "\n```"),
        ("<think></think>Here: ", ""),
        ("<think>" + "[" * 70 + "</think>", ""),
    ],
)
def test_a_code_fence_or_prose_around_one_object_is_dropped_and_counted(before: str, after: str):
    verdict = CONTRACT.judge(before + json.dumps(OK) + after)
    assert isinstance(verdict, Accepted)
    assert verdict.dropped == len(before) + len(after)
    rejected = CONTRACT.judge(before + json.dumps(go("nowhere")) + after)
    assert isinstance(rejected, Rejected)
    assert rejected.dropped == len(before) + len(after)


@pytest.mark.parametrize("before", ["", "<think>so</think>"])
def test_an_answer_may_contain_think_tags(before: str):
    answer = json.dumps(finish("a </think> {b}"))
    for written in (answer, f"Here: {answer}", f"```json\n{answer}\n```"):
        verdict = CONTRACT.judge(before + written)
        assert isinstance(verdict, Accepted)
        assert verdict.dropped == len(before) + len(written) - len(answer)


@pytest.mark.parametrize(
    "text",
    [
        "```json\n[{}]\n```",
        "Here: [{}, null]",
        "[{}",
        "{}]",
        '"{}"',
        '"answer": {}',
        "```\n{}\n```\n```\n{}\n```",
        "{} and {}",
        "<think>perhaps {}</think> I cannot decide.",
        "<think>perhaps {}</think>",
        'perhaps {} then</think>{"control": 2',
    ],
)
def test_text_without_exactly_one_object_is_not_unwrapped(text: str):
    verdict = CONTRACT.judge(text.replace("{}", json.dumps(OK)))
    assert isinstance(verdict, Rejected)
    assert verdict.rule in ("not_json", "not_object")


def test_the_verdict_on_a_deep_answer_does_not_depend_on_the_stack():
    text = json.dumps(OK).replace('"on"', "[" * 700 + "]" * 700)

    def deeper(levels: int):
        return deeper(levels - 1) if levels else CONTRACT.judge(text)

    assert deeper(0) == deeper(400)


def test_brackets_inside_strings_do_not_count_as_depth():
    verdict = CONTRACT.judge(json.dumps(changed(OK, "artifact.data.text", '[[{{"')).replace("[[{{", "[" * 10))
    assert isinstance(verdict, Accepted)
    many = json.dumps(go("check", "x", type="list")).replace('"x"', json.dumps("[{" * 100))
    assert isinstance(CONTRACT.judge(many), Accepted)


def test_a_draft_7_schema_with_a_root_ref_keeps_its_meaning_in_the_combined_schema():
    tree = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/node",
        "definitions": {"node": {"type": "object", "required": ["id"]}},
    }
    contract = Contract((Candidate("b", "transition", "tree", tree, ""),))
    combined = jsonschema_rs.validator_for(contract.schema)
    assert combined.is_valid(changed(go("b", type="tree"), "artifact.data", {"id": 1}))
    assert not combined.is_valid(changed(go("b", type="tree"), "artifact.data", {}))


def test_white_space_around_the_object_is_not_counted():
    verdict = CONTRACT.judge(f"\n  {json.dumps(OK)}\n")
    assert isinstance(verdict, Accepted)
    assert verdict.dropped == 0


def test_finishing_in_a_phase_that_cannot_finish_is_rejected():
    verdict = Contract(CANDIDATES[:1]).judge(json.dumps(finish()))
    assert isinstance(verdict, Rejected)
    assert verdict.message == "finishing is not offered here; next_phase must be 'check'"


def test_size_limits_come_from_the_settings():
    contract = Contract(CANDIDATES, sizes=Sizes(answer_bytes=50, answer_depth=3))
    verdict = contract.judge(json.dumps(OK))
    assert isinstance(verdict, Rejected)
    assert verdict.rule == "size"


def test_lenient_mode_drops_nested_required_and_strict_mode_keeps_it():
    nested = changed(OK, "artifact.data.tags", [{}])
    assert isinstance(CONTRACT.judge(json.dumps(nested)), Accepted)
    verdict = Contract(CANDIDATES, strict=True).judge(json.dumps(nested))
    assert isinstance(verdict, Rejected)
    assert verdict.path == "$.artifact.data.tags[0]"


def test_lenient_mode_does_not_enter_combinators():
    inner = {"type": "object", "required": ["x"]}
    schema = {
        "required": ["a"],
        "properties": {"a": inner, "b": {"properties": {"c": inner}}},
        "items": [inner],
        "prefixItems": [inner],
        "additionalProperties": inner,
        "oneOf": [inner],
        "anyOf": [inner],
        "allOf": [inner],
        "not": inner,
        "if": inner,
        "$defs": {"d": inner},
    }
    relaxed = lenient(schema)
    bare = {"type": "object"}
    assert relaxed == schema | {
        "properties": {"a": bare, "b": {"properties": {"c": bare}}},
        "items": [bare],
        "prefixItems": [bare],
        "additionalProperties": bare,
    }
    assert lenient(True) is True
    assert schema["properties"]["a"] == inner  # the author's schema is left as it was


def test_refs_in_an_artifact_schema_resolve_inside_that_schema():
    tree = {
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["id"]}},
        "$ref": "#/$defs/node",
    }
    contract = Contract((Candidate("b", "transition", "tree", tree, ""),), strict=True)
    good = changed(go("b", type="tree"), "artifact.data", {"id": 1, "next": {"id": 2}})
    bad = changed(go("b", type="tree"), "artifact.data", {"id": 1, "next": {}})
    combined = jsonschema_rs.validator_for(contract.schema)
    assert combined.is_valid(good)
    assert not combined.is_valid(bad)
    assert isinstance(contract.judge(json.dumps(good)), Accepted)
    assert isinstance(contract.judge(json.dumps(bad)), Rejected)


FILES = Contract(CANDIDATES, offered_ops(VOCABULARY, ("file",)))


def test_a_truncated_answer_is_rejected_as_such_unless_it_is_complete():
    assert FILES.judge(json.dumps(OK)[:40], is_truncated=True).rule == "size"
    assert FILES.judge(json.dumps(OK)[:40]).rule == "not_json"
    assert isinstance(FILES.judge(json.dumps(OK), is_truncated=True), Accepted)


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 30)
    | st.sampled_from(["check", "end", "note", "list", "finish", "abort"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "tags", "id", "type"]), inner),
    max_leaves=6,
)
CONTROL = [f"control.{name}" for name in ("type", "decision", "next_phase", "confidence", "reason")]
ARTIFACT = [f"artifact.{name}" for name in ("type", "data", "data.text", "data.tags")]
PATHS = st.sampled_from(["control", "artifact", "control_ir", "extra", *CONTROL, *ARTIFACT])


@given(st.sampled_from([OK, finish(), abort(), go("check", type="list")]), st.lists(st.tuples(PATHS, ANY), max_size=3))
def test_the_staged_verdict_and_the_combined_schema_agree(answer, changes):
    """The staged checks and the schema sent to providers accept the same answers."""
    for path, value in changes:
        try:
            answer = changed(answer, path, value)
        except (TypeError, KeyError):
            continue
    strict = Contract(CANDIDATES, strict=True)
    verdict = strict.judge(json.dumps(answer))
    assert isinstance(verdict, Accepted) == jsonschema_rs.validator_for(strict.schema).is_valid(answer)


@given(st.text())
def test_arbitrary_text_is_rejected_without_an_exception(text: str):
    assert isinstance(CONTRACT.judge(text), Rejected)


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=6,
        ),
        max_size=4,
    )
)
def test_an_accepted_artifact_comes_with_its_canonical_json(data: dict[str, Any]):
    contract = Contract((Candidate("end", "finish", "any", {"type": "object"}, "done"),))
    verdict = contract.judge(json.dumps(changed(finish(), "artifact", {"type": "any", "data": data})))
    assert isinstance(verdict, Accepted)
    assert verdict.artifact_json == canonical(verdict.artifact)
    assert json.loads(verdict.artifact_json) == {"type": "any", "data": data}


DRAFT_7 = "http://json-schema.org/draft-07/schema#"
INNER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ({"properties": {"x": {"$ref": "#/$defs/inner"}}, "$defs": {"inner": INNER}}, {"x": {}}),
        ({"properties": {"x": {"$ref": "#/definitions/inner"}}, "definitions": {"inner": INNER}}, {"x": {}}),
        ({"properties": {"x": {"$ref": "#/properties/y"}, "y": INNER}}, {"x": {}}),
        ({"items": {"$ref": "#/$defs/inner"}, "$defs": {"inner": INNER}}, [{}]),
        ({"$ref": "#/$defs/top", "$defs": {"top": {"properties": {"x": INNER}}}}, {"x": {}}),
        ({"properties": {"next": {"$ref": "#"}}, "required": ["next"]}, {"next": {"next": {}}}),
        ({"patternProperties": {"^x": INNER}}, {"x": {}}),
        ({"properties": {"x": {"dependentRequired": {"a": ["b"]}}}}, {"x": {"a": 1}}),
        ({"$schema": DRAFT_7, "properties": {"x": {"dependencies": {"a": ["b"], "c": INNER}}}}, {"x": {"a": 1}}),
    ],
)
def test_lenient_mode_follows_references_and_patterns(schema: dict, data: object):
    assert compile_schema(schema).first_error(data) is not None
    assert compile_schema(lenient(schema)).first_error(data) is None


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ({"$ref": "#/$defs/inner", "$defs": {"inner": INNER}}, {}),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}),
        ({"properties": {"x": {"anyOf": [{"$ref": "#/$defs/inner"}]}}, "$defs": {"inner": INNER}}, {"x": {}}),
        (
            {
                "properties": {"x": {"$ref": "#/$defs/inner"}, "y": {"oneOf": [{"$ref": "#/$defs/inner"}]}},
                "$defs": {"inner": INNER},
            },
            {"x": {}, "y": {}},
        ),
        ({"properties": {"x": {"$ref": "#/$defs/inner"}}, "$defs": {"inner": INNER}}, {"x": {"a": "text"}}),
    ],
)
def test_lenient_mode_keeps_the_top_level_combinators_and_types(schema: dict, data: object):
    assert compile_schema(lenient(schema)).first_error(data) is not None
