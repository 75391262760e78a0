"""The prompts that ask for the choice alone, written from what a request has."""

from __future__ import annotations

from typing import Any

import msgspec

from reyn.models import Candidate, Message, ModelRequest
from reyn.models.protocol import UnionCandidate
from reyn.models.two_step import choice_prompt

REVIEW = Candidate("review", "transition", "note", {}, "the text\nneeds a review")
SHORT_NOTE = UnionCandidate("done", "transition", "short", {}, "the text is short")
DECIDE: dict[str, Any] = {"properties": {"reason": {}, "choice": {"const": "review"}}}
ACT: dict[str, Any] = {"properties": {"reason": {}, "ops": {}}}


def request(*candidates: Candidate, contract: tuple[dict[str, Any], ...] = (DECIDE,)) -> ModelRequest:
    messages = (Message("system", "Decide."), Message("user", "in\n\n# Answer\nreason"))
    return ModelRequest(
        messages,
        {"anyOf": list(contract)},
        "k",
        "1.1",
        "0" * 64,
        candidates=candidates,
        answer_form="short",
        task="Your role: editor\nDo what check does.",
    )


def test_the_choice_alone_is_asked_by_examples():
    prompt = choice_prompt(request(REVIEW, SHORT_NOTE))
    assert prompt is not None
    assert [(message.role, message.text) for message in prompt.messages] == [
        ("system", "Your role: editor\nDo what check does."),
        ("user", "the text needs a review"),
        ("assistant", '{"choice": "review"}'),
        ("user", "the text is short"),
        ("assistant", '{"choice": "done:short"}'),
        ("user", "in"),
    ]
    assert prompt.topic == "Decide."
    assert prompt.topic_texts == ("review: the text needs a review", "done:short: the text is short")


def test_there_are_no_examples_without_a_choice_between_different_texts():
    same = msgspec.structs.replace(SHORT_NOTE, description=REVIEW.description.upper())
    assert choice_prompt(request(REVIEW)) is None
    assert choice_prompt(request(REVIEW, same)) is None
    assert choice_prompt(request(REVIEW, SHORT_NOTE, contract=(DECIDE, ACT))) is None
    assert choice_prompt(msgspec.structs.replace(request(REVIEW, SHORT_NOTE), answer_form="full")) is None
