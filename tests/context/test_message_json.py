"""Messages and histories as JSON in the format of chat completion APIs: what is written is read again."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.context import NormalizedMessageList
from reyn.context.messages import NormalizedMessage, normalized_message, user_message
from reyn.errors import MessageInvalid, ReynError, TranscriptInvalid
from reyn.journal.kinds import Part
from reyn.models import Image, Message, Thoughts, ToolCall
from reyn.models.chat_messages import to_wire

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.dictionaries(TEXT, TEXT | st.integers(-(2**50), 2**50) | st.lists(st.booleans(), max_size=2), max_size=3)
DATA = st.binary(max_size=8).map(lambda content: base64.b64encode(content).decode())
IMAGES = st.builds(Image, st.sampled_from(["image/png", "image/svg+xml"]), DATA.filter(bool)) | st.builds(
    Image, st.sampled_from(["", "image/png"]), st.just(""), TEXT.map(lambda path: f"https://host/{path}")
)
THOUGHTS = st.none() | st.builds(
    Thoughts, TEXT, st.lists(JSON, max_size=2).map(tuple), TEXT, st.sampled_from(["", "model"])
)


@st.composite
def histories(draw: Any) -> list[NormalizedMessage]:
    """Messages of a conversation, with every field that they can have."""
    messages, number = [], 0
    if draw(st.booleans()):
        messages.append(NormalizedMessage("system", draw(TEXT)))
    for _ in range(draw(st.integers(0, 5))):
        images = tuple(draw(st.lists(IMAGES, max_size=2)))
        more: dict[str, Any] = {"name": draw(TEXT), "is_from_hook": draw(st.booleans())}
        messages.append(NormalizedMessage("user", draw(TEXT), images, **more))
        names = [f"id-{number + at}" for at in range(draw(st.integers(0, 2)))]
        number += len(names)
        calls = tuple(ToolCall(name, draw(TEXT), draw(TEXT)) for name in names)
        more = {"annotations": tuple(draw(st.lists(JSON, max_size=2))), "name": draw(TEXT)}
        if not calls:
            more |= {"status": draw(st.sampled_from(["", "truncated"])), "reason": draw(TEXT)}
        messages.append(NormalizedMessage("assistant", draw(TEXT), tool_calls=calls, thoughts=draw(THOUGHTS), **more))
        for call in calls:
            images = tuple(draw(st.lists(IMAGES, max_size=1)))
            status = draw(st.sampled_from(["", "cancelled", "unknown"]))
            messages.append(NormalizedMessage("tool", draw(TEXT), images, tool_call_id=call.id, status=status))
    return messages


@given(histories())
def test_a_history_reads_back_what_it_writes(messages: list[NormalizedMessage]):
    for message in messages:
        assert normalized_message(json.loads(json.dumps(message.to_dict()))) == message
    history = NormalizedMessageList(messages)
    written = json.loads(json.dumps(history.to_dicts()))
    again = NormalizedMessageList(written)
    assert again == history
    assert list(again) == list(history)
    assert again.to_dicts() == written


@given(histories())
def test_messages_of_users_read_back_too(messages: list[NormalizedMessage]):
    for one in messages:
        message = Message(
            one.role, one.text, one.images, one.tool_calls, one.tool_call_id, one.thoughts, one.name, one.annotations
        )
        assert normalized_message(message.to_dict()) == normalized_message(message)
        assert set(message.to_dict()) <= {
            "role", "content", "name", "tool_calls", "tool_call_id", "annotations", "reyn"
        }  # fmt: skip


def test_a_plain_history_is_one_of_the_api():
    history = NormalizedMessageList(
        [
            Message("system", "Be brief."),
            Message("user", "Look.", (Image("image/png", "aGk="),), name="ada"),
            Message("assistant", "", tool_calls=[ToolCall("a", "look", "{}")]),
            Message("tool", "seen", tool_call_id="a"),
        ]
    )
    assert history.to_dicts() == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "name": "ada",
            "content": [
                {"type": "text", "text": "Look."},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "seen"},
    ]
    assert [message.get("name") for message in to_wire(history)] == [None, "ada", None, None]


def test_messages_as_the_sdk_of_openai_dumps_them_are_read():
    annotations = [{"type": "url_citation", "url_citation": {"url": "https://x", "start_index": 0}}]
    dumped = {
        "content": "It is so.",
        "refusal": None,
        "role": "assistant",
        "annotations": annotations,
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    }
    [system, answer, refusal] = NormalizedMessageList(
        [
            {"role": "developer", "content": "Be brief."},
            dumped,
            {"role": "assistant", "content": None, "refusal": "No."},
        ]
    )
    assert (system.role, system.text) == ("system", "Be brief.")
    assert (answer.text, answer.annotations) == ("It is so.", tuple(annotations))
    assert answer.to_dict()["annotations"] == annotations
    assert refusal.text == "No."
    assert "annotations" not in to_wire([answer])[0]


def test_what_refers_to_content_of_a_run_is_refused():
    with pytest.raises(MessageInvalid, match="refers to stored content"):
        NormalizedMessage("user", "", parts=(Part(text="x"),)).to_dict()


BROKEN = "a\ud800b"


@pytest.mark.parametrize(
    "message",
    [
        Message("user", BROKEN),
        Message("user", "x", name=BROKEN),
        Message("user", "x", (Image("image/png", url=f"https://{BROKEN}"),)),
        Message("assistant", "", tool_calls=[ToolCall("a", "f", BROKEN)]),
        Message("assistant", "x", annotations=({"a": BROKEN},)),
    ],
)
def test_text_that_is_not_unicode_is_refused_with_its_reason(message: Message):
    with pytest.raises(MessageInvalid, match=r"surrogate|Unicode"):
        message.to_dict()
    with pytest.raises(MessageInvalid):
        NormalizedMessageList([message])


class Dumped:
    def model_dump(self) -> dict[str, Any]:
        return {}


JUNK = [None, 5, 1.5, True, b"x", BROKEN, "", [], {}, object(), Dumped(), [None], {"a": object()}, {1: 2}, ("x",)]


KEYS = ("role", "content", "tool_calls", "tool_call_id", "name", "annotations", "refusal", "reyn")


def bad_messages() -> Iterator[Any]:
    """Messages, each with one field that has another value."""
    yield from JUNK
    for junk in JUNK:
        for key in (
            "role",
            "content",
            "tool_calls",
            "tool_call_id",
            "name",
            "annotations",
            "refusal",
            "audio",
            "reyn",
            "x",
        ):
            yield {"role": "user", "content": "x"} | {key: junk}
            yield {"role": "assistant", "content": [{"type": "text", "text": "x"}]} | {key: junk}
        yield {"role": "user", "content": [junk]}
        yield {"role": "user", "content": [{"type": "text", "text": junk}]}
        yield {"role": "user", "content": [{"type": "image_url", "image_url": junk}]}
        yield {"role": "assistant", "tool_calls": [junk]}
        yield {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": junk, "arguments": junk}}]}
        for key in ("thoughts", "status", "reason", "is_summary", "x"):
            yield {"role": "user", "content": "x", "reyn": {key: junk}}
        for position in range(8):
            fields = ["user", "x", (), (), "", None, "", ()]
            fields[position] = junk
            try:
                yield Message(*fields)
            except MessageInvalid as error:
                assert error.hint  # noqa: PT017 - the constructor refuses it


def test_bad_input_is_an_error_of_reyn_with_a_hint():
    count = 0
    for bad in bad_messages():
        for read in (normalized_message, user_message, lambda one: NormalizedMessageList([one]).to_dicts()):
            count += 1
            try:
                read(bad)
            except ReynError as error:
                assert isinstance(error, MessageInvalid | TranscriptInvalid)  # noqa: PT017 - any other error fails
                assert error.hint  # noqa: PT017
    assert count > 500


@pytest.mark.parametrize("bad", [None, 1, True, 1.5, object(), len, "[]", b"[]", {}, {"role": "user"}])
def test_what_is_no_list_of_messages_is_refused_with_its_type(bad: Any):
    with pytest.raises(MessageInvalid, match=type(bad).__name__) as caught:
        NormalizedMessageList(bad)
    assert caught.value.hint
