"""The short form: what it expands to, and what it rejects at which path."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.contract import Accepted, Acting, Candidate, Contract, Rejected, offered_ops
from reyn.models.protocol import UnionCandidate
from tests.contract.test_judge import LIST, NOTE
from tests.support import VOCABULARY, file, finish, go

CANDIDATES = (
    UnionCandidate("check", "transition", "note", NOTE, "to check"),
    UnionCandidate("check", "transition", "list", LIST, "to check with a list"),
    Candidate("write", "transition", "note", NOTE, "to write"),
    Candidate("end", "finish", "note", NOTE, "done"),
)
SHORT = Contract(CANDIDATES, offered_ops(VOCABULARY, ("file",)), form="short")
WITHOUT_OPS = Contract(CANDIDATES, form="short")
READ = file("read", "a.txt")


def decide(choice: str, text: Any = "on", **keys: Any) -> dict[str, Any]:
    return {"reason": "it fits", "choice": choice, "confidence": 0.7, "data": {"text": text}} | keys


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (decide("write"), ("transition", "continue", "write", "note")),
        (decide("check:list"), ("transition", "continue", "check", "list")),
        (decide("check:note"), ("transition", "continue", "check", "note")),
        (decide("end"), ("finish", "finish", None, "note")),
    ],
)
def test_a_short_decision_becomes_the_object_of_the_contract(answer: dict, expected: tuple):
    verdict = SHORT.judge(json.dumps(answer))
    assert isinstance(verdict, Accepted)
    assert verdict.artifact is not None
    assert (verdict.type, verdict.decision, verdict.next_phase, verdict.artifact["type"]) == expected
    assert (verdict.reason, verdict.confidence, verdict.artifact["data"]) == ("it fits", 0.7, {"text": "on"})


def test_an_abort_needs_no_data():
    for extra in ({}, {"data": {}}):
        verdict = SHORT.judge(json.dumps({"reason": "no", "choice": "abort", "confidence": 1} | extra))
        assert isinstance(verdict, Accepted)
        assert (verdict.type, verdict.next_phase, verdict.artifact) == ("abort", None, None)


def test_a_short_act_turn():
    for extra in ({}, {"reason": "to see"}):
        verdict = SHORT.judge(json.dumps({"ops": [READ]} | extra))
        assert verdict == Acting((READ,))


def test_the_measured_probability_is_the_confidence():
    stated, unstated = decide("end"), decide("end")
    del unstated["confidence"]
    assert SHORT.judge(json.dumps(stated), probability=0.25).confidence == 0.25
    assert SHORT.judge(json.dumps(unstated), probability=0.25).confidence == 0.25
    rejected = SHORT.judge(json.dumps(unstated))
    assert (rejected.rule, rejected.path) == ("shape", "$.confidence")


@pytest.mark.parametrize("answer", [go("write"), finish(), {"control_ir": [READ]}])
def test_an_answer_in_the_full_form_is_accepted_where_the_short_one_was_asked_for(answer: dict):
    full = Contract(CANDIDATES, offered_ops(VOCABULARY, ("file",)))
    assert SHORT.judge(json.dumps(answer)) == full.judge(json.dumps(answer))
    assert not isinstance(SHORT.judge(json.dumps(answer)), Rejected)


def test_a_short_answer_is_rejected_where_the_full_form_was_asked_for():
    verdict = Contract(CANDIDATES).judge(json.dumps(decide("write")))
    assert isinstance(verdict, Rejected)


@pytest.mark.parametrize(
    ("answer", "rule", "path"),
    [
        (decide("nowhere"), "candidate", "$.choice"),
        (decide("check"), "candidate", "$.choice"),
        (decide("write:note"), "candidate", "$.choice"),
        (decide("write", 7), "schema", "$.data.text"),
        (decide("write", "x" * 21), "schema", "$.data.text"),
        (decide("write", more=1), "shape", "$"),
        (decide("write", confidence=2), "shape", "$.confidence"),
        (decide("write", reason=None), "shape", "$.reason"),
        (decide("write") | {"choice": ["write"]}, "shape", "$.choice"),
        (decide("write", ops=[READ]), "shape", "$.ops"),
        ({"reason": "no", "choice": "write", "confidence": 1}, "shape", "$.data"),
        ({"choice": "abort", "confidence": 1}, "shape", "$"),
        ({"ops": []}, "shape", "$.ops"),
        ({"ops": [file("fly", "a")]}, "ops", "$.ops[0].op"),
        ({"ops": [READ] * 65}, "size", "$.ops"),
        ({}, "shape", "$"),
    ],
)
def test_a_rejection_names_the_path_in_the_short_answer(answer: dict, rule: str, path: str):
    verdict = SHORT.judge(json.dumps(answer))
    assert isinstance(verdict, Rejected)
    assert (verdict.rule, verdict.path) == (rule, path)


@pytest.mark.parametrize("allows_abort", [True, False])
def test_a_rollback_is_answered_with_what_to_do_instead(allows_abort: bool):
    of_older = {"type": "rollback", "decision": "continue", "next_phase": None, "confidence": 0.7}
    answers = [
        {"control": of_older | {"reason": {"summary": "no"}}, "artifact": {}},
        {"control": of_older},
        {"control": of_older | {"type": "transition", "next_phase": "rollback", "reason": {"summary": "no"}}},
        {"control": of_older | {"type": "abort", "decision": "rollback"}, "artifact": None, "control_ir": []},
    ]
    for form in ("full", "short", "tools"):
        contract = Contract(CANDIDATES, form=form, allows_abort=allows_abort)
        for answer in answers if form == "full" else [*answers, decide("rollback", data={})]:
            text = json.dumps({"content": json.dumps(answer), "tool_calls": []} if form == "tools" else answer)
            verdict = contract.judge(text)
            assert isinstance(verdict, Rejected)
            assert verdict.rule == "candidate"
            assert "a model cannot roll back: go to a phase that is offered, or " in verdict.message
            assert ("abort" in verdict.message) is allows_abort


def test_a_phase_may_be_called_rollback():
    candidates = (Candidate("rollback", "transition", "note", {"type": "object"}, "Undo the release."),)
    assert isinstance(Contract(candidates, form="short").judge(json.dumps(decide("rollback"))), Accepted)
    verdict = Contract(candidates).judge(json.dumps({"control": {"type": "rollback"}}))
    assert (verdict.rule, verdict.path) == ("shape", "$.control")


def test_ops_are_rejected_where_none_are_offered():
    verdict = WITHOUT_OPS.judge(json.dumps({"ops": [READ]}))
    assert (verdict.rule, verdict.path) == ("ops", "$.ops")


def test_a_rejected_choice_names_the_choices_on_one_line():
    verdict = SHORT.judge(json.dumps(decide("a\n# Task\nb\u2028c")))
    assert verdict.message == (
        r"'a\n# Task\nb\u2028c' is not a choice; use 'check:note' or 'check:list' or 'write' or 'end' or 'abort'"
    )


VALUES = st.none() | st.booleans() | st.floats(0, 1) | st.sampled_from(["write", "end", "abort", "check:list", ""])
KEYS = ("reason", "choice", "confidence", "data", "ops", "extra")


@given(st.sampled_from(["write", "end", "abort", "check:list"]), st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_the_verdict_and_the_schema_of_the_short_form_agree(choice: str, changes: dict):
    answer = decide(choice) | changes
    if answer["choice"] == "abort":
        answer.pop("data")
    strict = Contract(CANDIDATES, strict=True, form="short")
    verdict = strict.judge(json.dumps(answer))
    assert isinstance(verdict, Accepted) == jsonschema_rs.validator_for(strict.schema).is_valid(answer)


def test_the_reason_comes_before_the_choice_and_the_choice_before_the_data():
    for branch in SHORT.schema["anyOf"]:
        assert list(branch["properties"]) in (
            ["reason", "choice", "confidence", "data"],
            ["reason", "choice", "confidence"],
            ["reason", "ops"],
        )
    for branch in Contract(CANDIDATES).schema["anyOf"]:
        assert list(branch["properties"]) == ["control", "artifact", "control_ir"]
        assert next(iter(branch["properties"]["control"]["properties"])) == "reason"
