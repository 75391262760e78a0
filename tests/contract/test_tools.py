"""The form `tools`: ops as native tools, tool calls as ops, and what is rejected at which path."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reyn.config import Sizes
from reyn.contract import Accepted, Acting, Candidate, Contract, Rejected, offered_ops
from reyn.models.protocol import PLAIN_TEXT
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments as op_arguments
from tests.support import NOTE, VOCABULARY, abort, file, finish, go

END = Candidate("end", "finish", "note", NOTE, "done")
WRITE = Candidate("write", "transition", "note", NOTE, "to write")
OPS = offered_ops(VOCABULARY, ("file", "ask_user"))
DECIDING = Contract((WRITE, END), OPS, form="tools")
REPLYING = Contract((END,), OPS, form="tools")
READ = file("read", "a.txt")


def answer(content: str = "", *calls: tuple[str, str, Any]) -> str:
    tool_calls = [
        {"id": call_id, "name": name, "arguments": args if isinstance(args, str) else json.dumps(args)}
        for call_id, name, args in calls
    ]
    return json.dumps({"content": content, "tool_calls": tool_calls})


def decide(choice: str) -> str:
    return json.dumps({"reason": "it fits", "choice": choice, "confidence": 0.7, "data": {"text": "on"}})


def test_each_form_of_an_op_is_one_tool_with_valid_parameters():
    names = [tool.name for tool in DECIDING.tools]
    assert {"file_read", "file_write", "ask_user"} <= set(names)
    assert len(set(names)) == len(names)
    forms = [form for spec in OPS for form in spec.forms]
    for tool, form in zip(DECIDING.tools, forms, strict=True):
        jsonschema_rs.validator_for(tool.parameters)
        assert tool.parameters["type"] == "object"
        assert not {"oneOf", "anyOf", "allOf"} & tool.parameters.keys()
        assert not {"kind", "op"} & tool.parameters["properties"].keys()
        assert tool.description
        example = {key: value for key, value in form.example.items() if key not in ("kind", "op")}
        assert jsonschema_rs.is_valid(tool.parameters, example)


def test_every_example_of_an_op_is_accepted_as_a_tool_call():
    tools = [tool.name for tool in DECIDING.tools]
    forms = [form for spec in OPS for form in spec.forms]
    for name, form in zip(tools, forms, strict=True):
        args = {key: value for key, value in form.example.items() if key not in ("kind", "op")}
        assert DECIDING.judge(answer("", ("1", name, args))) == Acting((form.example,), is_native=True)


def _op(kind: str, *forms: str | None) -> OpSpec:
    return OpSpec(
        kind,
        "It does something.",
        "pure",
        forms=tuple(
            OpForm(form, f"Form {form}.", op_arguments(kind, form, {}), "pure", {}, {"kind": kind}) for form in forms
        ),
    )


def test_names_of_tools_are_unique_and_acceptable_to_providers():
    ops = (_op("a", "b"), _op("a_b", None), _op("a_b_2", None), _op("x" * 40, "käse und wein " + "y" * 40, "z"))
    names = [tool.name for tool in Contract((END,), ops, form="tools").tools]
    assert names[:3] == ["a_b", "a_b_2", "a_b_2_2"]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 64 and name.replace("-", "_").replace("_", "a").isalnum() for name in names)
    assert all(name.isascii() for name in names)


def test_tool_calls_become_ops_in_their_order():
    calls = [("x", "file_read", {"path": "a.txt"}), ("y", "ask_user", {"question": "Why?"})]
    ops = (READ, {"kind": "ask_user", "question": "Why?"})
    assert DECIDING.judge(answer("Let me look.", *calls)) == Acting(ops, is_native=True)


def test_a_tool_call_may_repeat_the_fields_that_its_name_stands_for():
    assert DECIDING.judge(answer("", ("x", "file_read", READ))) == Acting((READ,), is_native=True)


def test_a_tool_without_arguments_may_be_called_with_an_empty_text():
    contract = Contract((END,), (_op("now", None),), form="tools")
    assert contract.judge(answer("", ("x", "now", " "))) == Acting(({"kind": "now"},), is_native=True)


@pytest.mark.parametrize(
    ("calls", "rule", "path"),
    [
        ([("", "file_read", {"path": "a"})], "ops", "$.tool_calls[0].id"),
        ([("x", "file_read", READ), ("x", "file_read", READ)], "ops", "$.tool_calls[1].id"),
        ([("x", "nothing", {})], "ops", "$.tool_calls[0].name"),
        ([("x", "", {})], "ops", "$.tool_calls[0].name"),
        ([("x", "file_read", '{"path": "a')], "not_json", "$.tool_calls[0].arguments"),
        ([("x", "file_read", '{"path": "a"} {"path": "b"}')], "not_json", "$.tool_calls[0].arguments"),
        ([("x", "file_read", '```json\n{"path": "a"}\n```')], "not_json", "$.tool_calls[0].arguments"),
        ([("x", "file_read", "[1]")], "not_object", "$.tool_calls[0].arguments"),
        ([("x", "file_read", '{"path": "a", "path": "b"}')], "duplicate_key", "$.tool_calls[0].arguments.path"),
        ([("x", "file_read", '{"path": ' + "[" * 99 + "]" * 99 + "}")], "depth", "$.tool_calls[0].arguments"),
        ([("x", "file_read", {"path": 3})], "ops", "$.tool_calls[0].arguments.path"),
        ([("x", "file_read", {"path": "a", "colour": 1})], "ops", "$.tool_calls[0].arguments"),
        ([("x", "file_read", {"path": "a", "kind": "shell"})], "ops", "$.tool_calls[0].arguments.kind"),
        ([("x", "file_read", {}), ("y", "nothing", {})], "ops", "$.tool_calls[0].arguments"),
        ([(str(n), "file_read", READ) for n in range(65)], "size", "$.tool_calls"),
    ],
)
def test_a_wrong_tool_call_is_rejected_at_its_path(calls: list, rule: str, path: str):
    verdict = DECIDING.judge(answer("", *calls))
    assert isinstance(verdict, Rejected)
    assert (verdict.rule, verdict.path) == (rule, path)


INVALID = [
    ("file_read", {}, "ops", ".arguments", {"kind": "file", "op": "read"}),
    ("file_read", "[1]", "not_object", ".arguments", {"kind": "file", "op": "read"}),
    ("ask_user", '{"question": ', "not_json", ".arguments", {"kind": "ask_user"}),
    ("nothing", {}, "ops", ".name", {"kind": "nothing"}),
]


@pytest.mark.parametrize("is_truncated", [False, True])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize(("name", "arguments", "rule", "path", "named"), INVALID)
def test_an_invalid_call_among_valid_ones_is_rejected_alone(
    name: str, arguments: Any, rule: str, path: str, named: dict, at: int, is_truncated: bool
):
    calls = [("x", "file_read", READ), ("y", "file_read", READ)]
    calls.insert(at, ("z", name, arguments))
    verdict = DECIDING.judge(answer("", *calls), is_truncated=is_truncated)
    assert isinstance(verdict, Acting)
    assert [(op["kind"], op.get("op")) for op in verdict.ops].pop(at) == (named["kind"], named.get("op"))
    assert [op for position, op in enumerate(verdict.ops) if position != at] == [READ, READ]
    [(position, error)] = verdict.errors.items()
    assert (position, error.path) == (at, f"$.tool_calls[{at}]{path}")
    assert error.rule == ("size" if is_truncated else rule)


def test_an_unknown_tool_is_rejected_with_the_names_of_the_tools():
    verdict = DECIDING.judge(answer("", ("x", "nothing", {})))
    assert isinstance(verdict, Rejected)
    assert "'file_read'" in verdict.message
    verdict = Contract((WRITE, END), form="tools").judge(answer("", ("x", "nothing", {})))
    assert isinstance(verdict, Rejected)
    assert "no tools are offered here; decide instead" in verdict.message


def test_truncated_arguments_are_rejected_because_of_their_length():
    verdict = DECIDING.judge(answer("", ("x", "file_read", '{"path": "a')), is_truncated=True)
    assert isinstance(verdict, Rejected)
    assert (verdict.rule, "max_tokens" in verdict.message) == ("size", True)
    assert isinstance(DECIDING.judge(answer("", ("x", "file_read", READ)), is_truncated=True), Acting)


def test_an_answer_that_is_too_large_in_sum_is_rejected():
    contract = Contract((END,), OPS, form="tools", sizes=Sizes(answer_bytes=100))
    calls = [(str(n), "file_read", {"path": "a" * 40}) for n in range(3)]
    verdict = contract.judge(answer("", *calls))
    assert isinstance(verdict, Rejected)
    assert verdict.rule == "size"


def test_without_calls_the_content_is_a_decision_in_the_short_or_the_full_form():
    for content in (decide("write"), f"```json\n{decide('end')}\n```", json.dumps(finish())):
        assert isinstance(DECIDING.judge(answer(content)), Accepted)
    schema = Contract((WRITE, END), form="short").schema
    assert DECIDING.schema == schema


@pytest.mark.parametrize("content", [json.dumps({"ops": [READ]}), json.dumps({"control_ir": [READ]})])
def test_ops_in_the_content_are_rejected(content: str):
    verdict = DECIDING.judge(answer(content))
    assert isinstance(verdict, Rejected)
    assert (verdict.rule, verdict.message) == ("ops", "call the tools instead of writing ops into the text")


def test_content_that_is_no_decision_is_rejected():
    for content, rule in (("", "empty"), ("Hello!", "not_json"), (decide("nowhere"), "candidate")):
        verdict = DECIDING.judge(answer(content))
        assert isinstance(verdict, Rejected)
        assert verdict.rule == rule


def test_the_only_candidate_with_one_text_field_is_a_plain_text_reply():
    assert REPLYING.is_plain_text
    assert REPLYING.schema == PLAIN_TEXT
    for text in ("Hello!", '{"choice": "abort"}', "  indented\n"):
        verdict = REPLYING.judge(answer(text))
        assert isinstance(verdict, Accepted)
        assert verdict.artifact == {"type": "note", "data": {"text": text}}
        assert (verdict.type, verdict.decision, verdict.next_phase, verdict.confidence) == ("finish", "finish", None, 1)
    going = Contract((WRITE,), form="tools").judge(answer("on"))
    assert isinstance(going, Accepted)
    assert (going.type, going.next_phase) == ("transition", "write")


def _schema(**field: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"text": {"type": "string"} | field}, "required": ["text"]}


@pytest.mark.parametrize(
    "schema",
    [
        _schema(enum=["a", "b"]),
        _schema(pattern="^a"),
        _schema(type=["string", "null"]),
        NOTE | {"required": []},
        {"type": "object", "properties": NOTE["properties"] | {"n": {"type": "integer"}}, "required": ["text"]},
        True,
    ],
)
def test_other_candidates_are_not_plain_text(schema: Any):
    assert not Contract((Candidate("end", "finish", "note", schema, "done"),), form="tools").is_plain_text


def test_a_plain_text_reply_is_off_where_a_handoff_or_a_choice_is_asked():
    assert not DECIDING.is_plain_text
    assert not Contract((END,), form="tools", asks_handoff=True).is_plain_text
    assert not Contract((END,), form="short").is_plain_text


def test_a_reply_that_does_not_fit_is_rejected():
    contract = Contract((Candidate("end", "finish", "note", _schema(maxLength=5), "done"),), form="tools")
    for text, rule in (("too long", "schema"), (" \n", "empty")):
        verdict = contract.judge(answer(text))
        assert isinstance(verdict, Rejected)
        assert (verdict.rule, verdict.path) == (rule, "$.content")
    verdict = contract.judge(answer("whole"), is_truncated=True)
    assert isinstance(verdict, Rejected)
    assert verdict.rule == "size"


@pytest.mark.parametrize("text", ["", "{}x", '{"content": 3}', '{"content": "", "tool_calls": [{}]}', "[]"])
def test_a_recorded_answer_of_another_shape_is_rejected(text: str):
    verdict = DECIDING.judge(text)
    assert isinstance(verdict, Rejected)
    assert verdict.rule == "shape"


def test_definitions_can_be_recorded():
    assert msgspec.json.decode(msgspec.json.encode(DECIDING.tools))[0]["name"] == "file_read"


ABORT = abort()
SHORT_ABORT = {"reason": "impossible", "choice": "abort", "confidence": 1}


@pytest.mark.parametrize(
    "value", [ABORT, ABORT | {"artifact": None}, SHORT_ABORT, finish("hi"), json.loads(decide("end"))]
)
@pytest.mark.parametrize("layout", [{}, {"indent": 2}])
def test_an_object_of_the_contract_is_a_decision_where_text_is_asked_for(value: dict, layout: dict):
    verdict = REPLYING.judge(answer(f" {json.dumps(value, **layout)}\n"))
    assert isinstance(verdict, Accepted)
    is_abort = verdict.type == "abort"
    assert is_abort is ("abort" in json.dumps(value))
    assert verdict.artifact is None if is_abort else verdict.artifact["data"]["text"] in ("hi", "on")


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (go("nowhere"), "candidate"),
        (finish(type="other"), "artifact_type"),
        (finish(7), "schema"),
        ({"control_ir": [READ]}, "ops"),
        ({"reason": "x", "choice": "end", "confidence": 1, "data": {}}, "schema"),
    ],
)
def test_an_invalid_object_of_the_contract_is_no_reply_either(value: dict, rule: str):
    verdict = REPLYING.judge(answer(json.dumps(value)))
    assert isinstance(verdict, Rejected)
    assert verdict.rule == rule


SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5)
KEYS = st.sampled_from(["control", "artifact", "reason", "choice", "data", "text", "ops"]) | st.text(max_size=3)
OBJECTS = st.dictionaries(KEYS, SCALARS | st.dictionaries(KEYS, SCALARS, max_size=2), max_size=4).map(json.dumps)


@given(OBJECTS | st.text(min_size=1).filter(str.strip))
def test_any_other_text_is_the_reply_itself(text: str):
    verdict = REPLYING.judge(answer(text))
    assert isinstance(verdict, Accepted)
    assert verdict.artifact == {"type": "note", "data": {"text": text}}


TEXTS = st.text(st.characters(exclude_characters="{}`\n", exclude_categories=["Cs"]), max_size=20)
DECISIONS = [finish(), abort(), json.loads(decide("end")), {"reason": "no", "choice": "abort", "confidence": 1}]


@given(TEXTS.map(lambda text: f"{text}: "), TEXTS.map(lambda text: f" {text}"), st.booleans())
def test_text_around_a_decision_does_not_make_it_a_reply(before: str, after: str, is_fenced: bool):
    assume(not before.lstrip().startswith("<think>"))  # what follows is thoughts that were cut off
    assume(not before.rstrip().endswith('":') and not after.lstrip().startswith(("[", "]", ",", '"')))  # of other JSON
    for decision in map(json.dumps, DECISIONS):
        inner = f"\n```json\n{decision}\n```\n" if is_fenced else decision
        expected, verdict = REPLYING.judge(answer(decision)), REPLYING.judge(answer(before + inner + after))
        assert isinstance(verdict, Accepted)
        assert verdict == msgspec.structs.replace(expected, dropped=verdict.dropped)


@pytest.mark.parametrize(
    "text",
    [
        "Use {} as the default.",
        '{"colour": "red"}',
        'The settings are {"reason": "none"}.',
        "```json\n{}\n```",
        f"First {decide('end')}, then {decide('end')}",
        f"```\n{decide('end')}\n```\n```\n{decide('abort')}\n```",
        '{"reason": "r", "choice": "B", "data": {}}',
        '{"reason": "r", "choice": "B", "confidence": 1, "rest": "no decision"}',
        '{"control": {"type": "slider", "label": "Volume"}}',
        '{"colour": "red", "colour": "blue"}',
    ],
)
def test_a_reply_with_other_objects_is_a_text(text: str):
    verdict = REPLYING.judge(answer(text))
    assert isinstance(verdict, Accepted)
    assert verdict.artifact == {"type": "note", "data": {"text": text}}


def _without(value: dict, key: str) -> dict:
    return {name: part for name, part in value.items() if name != key}


def _broken(decision: dict) -> list[str]:
    """Return a decision with one error each."""
    if "control" not in decision:
        wrong = [("confidence", "high"), ("confidence", 2), ("reason", 1), ("choice", "escalate"), ("notes", "x")]
        found = [decision | {key: value} for key, value in wrong] + [_without(decision, "reason")]
    else:
        control = decision["control"]
        wrong = [("confidence", 1.5), ("confidence", "high"), ("reason", "no"), ("decision", "revise"), ("notes", "x")]
        changed = [control | {key: value} for key, value in (*wrong, ("type", "escalate"), ("next_phase", 7))]
        changed += [_without(control, key) for key in control]
        found = [decision | {"control": one} for one in changed] + [decision | {"notes": "x"}]
    texts = [json.dumps(one) for one in found]
    return [*texts, *(f'{json.dumps(decision)[:-1]}, "{key}": 1}}' for key in decision)]


@pytest.mark.parametrize("layout", ["{}", "```json\n{}\n```", "I decide: {}"])
@pytest.mark.parametrize("decision", DECISIONS)
def test_a_decision_with_an_error_is_rejected_and_no_reply(decision: dict, layout: str):
    for text in _broken(decision):
        assert isinstance(REPLYING.judge(answer(layout.replace("{}", text))), Rejected), text


CALLS = [("x", "file_read", READ), ("y", "nothing", {})]


@pytest.mark.parametrize("contract", [REPLYING, DECIDING])
@pytest.mark.parametrize("layout", ["{}", "```json\n{}\n```", "I stop: {}"])
@pytest.mark.parametrize("decision", [ABORT, SHORT_ABORT])
@pytest.mark.parametrize("called", [CALLS[:1], CALLS])
def test_an_abort_beside_tool_calls_is_the_decision(contract: Contract, layout: str, decision: dict, called: list):
    verdict = contract.judge(answer(layout.replace("{}", json.dumps(decision)), *called))
    assert isinstance(verdict, Accepted)
    assert (verdict.type, verdict.ops) == ("abort", ())
    for text in _broken(decision):
        if '"type": "escalate"' not in text and '"choice": "escalate"' not in text:
            assert isinstance(contract.judge(answer(layout.replace("{}", text), *called)), Rejected), text


@pytest.mark.parametrize("decision", [ABORT, SHORT_ABORT])
def test_an_abort_beside_tool_calls_executes_none_where_it_is_not_allowed(decision: dict):
    contract = Contract((END,), OPS, form="tools", allows_abort=False)
    assert isinstance(contract.judge(answer(json.dumps(decision), *CALLS)), Rejected)


@given(OBJECTS | st.text() | st.just(json.dumps(finish())) | st.just(decide("end")))
def test_other_text_beside_tool_calls_does_not_stop_them(text: str):
    assert REPLYING.judge(answer(text, *CALLS[:1])) == Acting((READ,), is_native=True)


def test_the_object_in_the_only_fence_counts_beside_one_in_prose():
    text = f"I could answer {decide('end')}, but:\n```json\n{json.dumps(ABORT)}\n```"
    verdict = REPLYING.judge(answer(text))
    assert isinstance(verdict, Accepted)
    assert (verdict.type, verdict.dropped) == ("abort", len(text) - len(json.dumps(ABORT)))
