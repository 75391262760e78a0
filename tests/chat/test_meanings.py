"""What a text means while a question is open: every kind of question with every kind of text."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.chat import Meaning, QuestionAsked
from reyn.chat.meaning import meaning_of
from reyn.journal.kinds import Question
from reyn.kernel.visit.waits import OP_RESPONSE, SUGGESTIONS
from reyn.kernel.world.inbox import answer_error

TEXT: dict[str, Any] = {"type": "string"}
FREE = [
    TEXT,
    {"type": "string", "maxLength": 40},
    {"type": "string", "maxLength": 10},
    {"type": "string", "maxLength": 2},
    {"type": "string", "minLength": 60},
    {"type": ["string", "null"]},
    {"anyOf": [{"type": "string"}, {"type": "integer"}]},
]
"""Schemas that ordinary sentences fit."""
STRICT = [
    ({"type": "integer", "minimum": 1}, "7"),
    ({"type": "number"}, "3.5"),
    ({"type": "boolean"}, "true"),
    ({"enum": ["red", "blue"]}, "blue"),
    ({"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"}, "AB12"),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, '{"a": 1}'),
    ({"type": "array", "items": {"type": "integer"}}, "[1, 2]"),
]
"""Schemas that few texts fit, and one of these texts."""
SAID = [
    "Thanks, that is all for now.",
    "Thanks.",
    "never mind",
    "Which ones are there?",
    "Please stop asking me that.",
    "ok",
    "Tell me a joke about tea\nand one about coffee.",
    "何色がありますか\uff1f",
]
"""What a user may say to an agent."""


def asked(schema: dict[str, Any], *suggestions: str, skill: str = "booking", **keys: Any) -> QuestionAsked:
    keys = {"reason": "question", "message": "Which?"} | keys
    return QuestionAsked("c.1", Question("1", response_schema=schema, suggestions=suggestions, **keys), 1, skill)


def approval(number: int = 1) -> QuestionAsked:
    question = Question("ask-1", "approval", "Approve?", OP_RESPONSE, suggestions=SUGGESTIONS)
    return QuestionAsked("c.2", question, number, "booking")


@pytest.mark.parametrize(("schema", "text"), list(itertools.product([schema for schema, _ in STRICT], SAID)))
def test_what_does_not_fit_the_question_is_a_message(schema: dict[str, Any], text: str):
    found = meaning_of(text, [asked(schema)])
    assert (found.kind, found.is_certain) == ("message", True)
    assert found.reason


@pytest.mark.parametrize(("schema", "text"), STRICT)
def test_what_fits_a_question_that_few_texts_fit_is_the_answer(schema: dict[str, Any], text: str):
    found = meaning_of(f" {text} ", [asked(schema)])
    assert (found.kind, found.is_certain) == ("answer", True)


@pytest.mark.parametrize(("schema", "text"), list(itertools.product(FREE, SAID)))
def test_no_text_is_certain_to_answer_a_question_that_takes_any_text(schema: dict[str, Any], text: str):
    found = meaning_of(text, [asked(schema)])
    assert found.kind == "message" or not found.is_certain


@pytest.mark.parametrize(("schema", "text"), list(itertools.product(FREE[:2], SAID)))
def test_a_question_with_suggestions_is_answered_by_these_alone(schema: dict[str, Any], text: str):
    question = asked(schema, "7 pm", "8 pm")
    assert meaning_of(text, [question]).kind == "message"
    for typed, value in (("7 pm", "7 pm"), ("2", "8 pm"), ("8 PM", "8 pm")):
        found = meaning_of(typed, [question])
        assert (found.kind, found.value, found.is_certain) == ("answer", value, True)
    assert meaning_of("3", [question]).kind == "message"


@pytest.mark.parametrize("text", [*SAID, *SUGGESTIONS, "1", "2", "reject no", "yes"])
def test_no_text_answers_an_approval(text: str):
    found = meaning_of(text, [approval()])
    assert (found.kind, found.reason) == ("message", "it does not name the approval")
    strict = asked({"type": "integer"})
    assert meaning_of(text, [approval(), strict]).question == strict


@pytest.mark.parametrize("text", SAID)
def test_an_agent_that_asks_reads_any_text(text: str):
    found = meaning_of(text, [asked(TEXT, skill="agent:default")])
    assert (found.kind, found.value, found.is_certain) == ("answer", text, True)


def test_without_a_question_every_text_is_a_message():
    assert meaning_of("7", []) == Meaning("message")


@given(
    text=st.text(max_size=400), schema=st.sampled_from([*FREE, *(schema for schema, _ in STRICT)]), listed=st.booleans()
)
def test_an_answer_fits_its_question_and_a_message_says_why_it_is_none(text: str, schema: Any, listed: bool):
    question = asked(schema, *(["red", "7"] if listed else []))
    found = meaning_of(text, [question])
    if found.kind == "answer":
        assert answer_error(question.question, "1", found.value) == ""
        assert found.is_certain or schema in FREE
    else:
        assert found.reason
