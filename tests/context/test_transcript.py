"""Transcripts are persistent: appending shares memory, never changes a list, and keeps calls and results linked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.context import NormalizedMessageList
from reyn.context.messages import NormalizedMessage
from reyn.context.transcript import normalize
from reyn.errors import MessageInvalid, TranscriptInvalid
from reyn.models import Image, Message, ToolCall


def user(text: str) -> NormalizedMessage:
    return NormalizedMessage("user", text)


def calling(*ids: str) -> NormalizedMessage:
    return NormalizedMessage("assistant", "", tool_calls=tuple(ToolCall(name, "look", "{}") for name in ids))


def result(call: str) -> NormalizedMessage:
    return NormalizedMessage("tool", f"result of {call}", tool_call_id=call)


texts = st.lists(st.text(min_size=1, max_size=5), max_size=200)


@given(texts, st.integers(0, 200))
def test_a_list_behaves_like_a_tuple_of_its_messages(said: list[str], at: int):
    expected = tuple(user(text) for text in said)
    messages = NormalizedMessageList(expected)
    assert tuple(messages) == expected
    assert len(messages) == len(expected)
    assert messages.tail(at) == (expected[-at:] if at else ())
    assert [messages[index] for index in range(len(expected))] == list(expected)
    assert messages[-3:] == expected[-3:]
    with pytest.raises(IndexError):
        messages[len(expected)]


@given(texts, texts, texts)
def test_branches_of_a_list_do_not_affect_each_other(before: list[str], left: list[str], right: list[str]):
    base = NormalizedMessageList(map(user, before))
    one, other = base.append(*map(user, left)), base.append(*map(user, right))
    assert tuple(base) == tuple(map(user, before))
    assert tuple(one) == tuple(map(user, before + left))
    assert tuple(other) == tuple(map(user, before + right))
    assert one.extends(base)
    assert other.extends(base)
    assert (one == other) == (left == right)


@given(texts, st.data())
def test_equality_and_digest_depend_on_the_content_alone(said: list[str], data: st.DataObject):
    whole = NormalizedMessageList(map(user, said))
    pieces = NormalizedMessageList()
    rest = list(said)
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        pieces, rest = pieces.append(*map(user, rest[:size])), rest[size:]
        if data.draw(st.booleans()):
            assert len(pieces.digest) == 64  # computing it early makes no difference
    assert pieces == whole
    assert hash(pieces) == hash(whole)
    assert pieces.digest == whole.digest
    assert whole.append(user("more")).digest != whole.digest


def test_a_list_that_was_built_independently_does_not_extend_another():
    one = NormalizedMessageList(user(str(number)) for number in range(100))
    assert not one.extends(NormalizedMessageList(user(f"another {number}") for number in range(100)))
    assert not NormalizedMessageList().extends(one)
    assert one.extends(NormalizedMessageList())


def test_the_latest_system_message_is_the_only_one_and_comes_first():
    messages = normalize(
        [
            {"role": "system", "content": "first"},
            {"role": "user", "content": "hello"},
            {"role": "system", "content": "second"},
        ]
    )
    assert [(message.role, message.text) for message in messages] == [("system", "second"), ("user", "hello")]
    assert messages.length == 1


@pytest.mark.parametrize(
    ("history", "error"),
    [
        ([calling("a")], "no result: `look` (a)"),
        ([calling("a", "a")], "not unique"),
        ([calling("")], "empty or not unique"),
        ([result("a")], "'a', which is not open"),
        ([calling("a"), result("a"), result("a")], "it has a result already"),
        ([calling("a"), user("and?")], "comes before the results of `look` (a)"),
        ([calling("a", "b"), result("a"), calling("c")], "comes before the results of `look` (b)"),
        ([calling("a", "b"), result("b")], "no result: `look` (a)"),
        ([NormalizedMessage("user", "", tool_calls=(ToolCall("a", "look", ""),))], "only an assistant calls tools"),
    ],
)
def test_every_tool_call_has_exactly_one_result(history: list[Message], error: str):
    with pytest.raises(TranscriptInvalid) as raised:
        normalize(history)
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({"role": "wizard", "content": "x"}, "message 0 has the role 'wizard'"),
        ({"content": "x"}, "has the role None"),
        ({"role": "user", "content": "\ud800"}, "lone surrogate at character 0"),
        ({"role": "user", "content": ["text"]}, "neither text nor an image"),
        ({"role": "user", "content": 3}, "neither text nor an image"),
        ({"role": "user", "content": "x", "weight": 1}, "unknown key 'weight'"),
        ({"role": "assistant", "tool_calls": [{"id": 3}]}, "malformed tool call"),
        ({"role": "tool", "content": "x", "tool_call_id": 3}, "`tool_call_id` is 3"),
        ("hello", "message 0 is a str"),
    ],
)
def test_a_malformed_message_is_an_error_that_names_it(message: Any, error: str):
    with pytest.raises(MessageInvalid) as raised:
        normalize([message])
    assert error in str(raised.value)


def test_surrogates_in_tool_calls_and_later_messages_are_errors():
    with pytest.raises(MessageInvalid):
        normalize([NormalizedMessage("assistant", "", tool_calls=(ToolCall("a", "look", "\udfff"),))])
    with pytest.raises(MessageInvalid):
        NormalizedMessageList([user("fine")]).append(user("not \ud83d fine"))


def test_histories_of_chat_completion_apis_are_read():
    messages = normalize(
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "what is this?"}, _image("data:image/png;base64,AA==")],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "a", "content": "a dot"},
            Message("user", "thanks", (Image(url="https://example.org/a.png"),)),
        ]
    )
    assert messages[0].images == (Image(media_type="image/png", data="AA=="),)
    assert messages[1].tool_calls == (ToolCall("a", "look", "{}"),)
    assert messages[3].images[0].url == "https://example.org/a.png"
    assert normalize(messages) is messages


def test_a_message_of_ten_megabytes_is_an_ordinary_message():
    large = "x\u00e9" * 5_000_000
    messages = normalize([{"role": "user", "content": large}]).append(user("and?"))
    assert messages[0].text is large
    assert len(messages.digest) == 64


def _image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}
