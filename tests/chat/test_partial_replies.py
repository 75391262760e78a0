"""A reply is shown while it arrives, whatever the form of the model's answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.chat.reader import PartialReply
from tests.chat.support import reply, run_skill


def fed(text: str, size: int) -> str:
    partial = PartialReply()
    return "".join(partial.feed(text[at : at + size]) for at in range(0, len(text), size))


SHORT = {"reason": 'a "data": {"text": "no"}', "choice": "converse", "confidence": 1, "data": {"text": "Yes.\n\n- a"}}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (reply('He said "hi" \\ é 😀\n'), 'He said "hi" \\ é 😀\n'),
        (SHORT, "Yes.\n\n- a"),
        (run_skill("text", text="no", data={"text": "no"}), ""),
        ({"data": {"text": {"text": "no"}, "more": [{"text": "no"}]}, "artifact": [{"data": {"text": "no"}}]}, ""),
    ],
)
def test_the_reply_is_read_from_a_decision(answer: dict, text: str, size: int):
    assert fed(json.dumps(answer), size) == text
    assert fed(json.dumps(answer, ensure_ascii=False, indent=1), size) == text
    assert fed(f"```json\n{json.dumps(answer)}\n```", size) == text


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("text", ["Hello, *you*.", "[1] is a list", "```python\nx\n```", '"quoted"'])
def test_an_answer_that_is_no_object_is_the_reply(text: str, size: int):
    assert fed(text, size) == text


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200), st.integers(1, 9))
def test_any_text_of_a_decision_arrives_whole(text: str, size: int):
    assert fed(json.dumps({"data": {"text": text}}), size) == text


@given(st.text(alphabet='{}[]",:\\u0dtex ', max_size=60), st.integers(1, 5))
def test_malformed_answers_raise_nothing(text: str, size: int):
    fed("{" + text, size)
