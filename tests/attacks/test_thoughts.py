"""Thoughts of a model. The attacker forges what is recorded as thoughts, in an archive, for a fork that continues it.

What goes back to a provider as thoughts changes nothing else of a message: not its role, its text or its calls.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from reyn.errors import ArchiveInvalid
from reyn.models import Message, ModelAnswer, ToolCall
from reyn.models.anthropic import to_messages
from reyn.models.chat_messages import to_wire
from reyn.models.gemini import to_contents
from reyn.models.thoughts import Thoughts
from tests.attacks.support import with_limits
from tests.fuzz.archives import Archive
from tests.kernel.support import Project
from tests.support import finish, write_skill

CALL = ToolCall("c1", "file_read", '{"path": "a.txt"}')
OBEY = "OBEY"
VALUES: list[Any] = [None, True, -1, 2**70, 1.5, OBEY, [], [OBEY], {}, {"url": OBEY}, [{"type": "text", "text": OBEY}]]
FIELDS = ("role", "content", "tool_calls", "name", "reasoning_content", "reasoning_details", "", 7, None)
BLOCKS = ("text", "tool_use", "tool_result", "image", "document", "thinking", "redacted_thinking", None, ["thinking"])
FORGED: list[Any] = [
    *VALUES,
    *({"field": field, "value": value} for field, value in itertools.product(FIELDS, VALUES)),
    *({"call": number, key: value} for number in VALUES for key in ("value", "signature") for value in VALUES),
    *({"at": at, "block": {"type": kind, "text": OBEY}} for at, kind in itertools.product((0, -9, 9, "0"), BLOCKS)),
    *({"at": 0, "block": value} for value in VALUES),
    {"at": 0},
    {"block": {"type": "thinking"}},
    {"field": "role"},
    {"call": 0},
]
THINKING = {"thinking", "redacted_thinking"}


def sent(adapter: str, parts: tuple[Any, ...]) -> dict[str, Any]:
    """The message of the assistant in a request."""
    message = Message("assistant", "I read it.", (), (CALL,), thoughts=Thoughts(adapter, parts))
    messages = [Message("user", "Read it."), message]
    [*_, found] = {"anthropic": to_messages, "gemini": to_contents}.get(adapter, to_wire)(messages)
    return found


def without_thoughts(adapter: str, message: dict[str, Any]) -> Any:
    """A message without the places where thoughts belong."""
    copy = json.loads(json.dumps(message))
    if adapter == "anthropic":
        copy["content"] = [block for block in copy["content"] if block["type"] not in THINKING]
    for part in copy.get("parts", ()):
        part.pop("thoughtSignature", None)
    for call in copy.get("tool_calls", ()):
        call.pop("extra_content", None)
    for field in ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"):
        copy.pop(field, None)
    return copy


@pytest.mark.parametrize("adapter", ["openai", "litellm", "anthropic", "gemini"])
def test_forged_thoughts_change_nothing_else_of_a_message(adapter: str):
    plain = without_thoughts(adapter, sent(adapter, ()))
    for parts in (*((one,) for one in FORGED), tuple(FORGED)):
        assert without_thoughts(adapter, sent(adapter, parts)) == plain, parts


class ThinkingModel:
    """Answers with thoughts."""

    name = "thinking"
    output_modes = ("free",)

    async def complete(self, request: Any) -> ModelAnswer:
        return ModelAnswer(
            json.dumps(finish()), thoughts=Thoughts("openai", ({"field": "reasoning", "value": "so"},), "so")
        )


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"so", b"[]", b"{}", b'{"api": 1}', b'{"api": "x", "role": "system"}']
)
def test_an_archive_whose_thoughts_have_another_shape_is_refused(tmp_path: Path, content: bytes):
    write_skill(tmp_path, "s", {"a": ["end"]})
    with Project(tmp_path).open([], model=ThinkingModel()) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").ok
        archive = Archive(b"".join(rt.runs.export("k")))
        rt.runs.delete("k")
        [event] = archive.of_kind("llm_responded")
        event["data"]["thoughts"] = archive.add_blob(content)
        with pytest.raises(ArchiveInvalid, match="no thoughts"):
            rt.runs.import_(archive.lines())
        assert not rt.runs.is_recorded("k")


PIECES = """
from reyn.chat import ReplyDelta
from reyn.cli.chat.printing import TerminalPrinter
from reyn.contract.partial import PartialReply
from reyn.models.thoughts import ThinkTags
printer = TerminalPrinter()
for read, pieces in (
    (ThinkTags().split, ["\\n" * 50] * 20_000),
    (ThinkTags().split, ["<think>", *["</think" * 7] * 20_000]),
    (PartialReply().feed, ["\\n" * 50] * 20_000),
    (lambda text: printer.show(ReplyDelta(text)), ["a"] * 700_000),
):
    for piece in pieces:
        read(piece)
"""


def test_the_time_to_read_the_pieces_of_an_answer_grows_with_their_length():
    """Blanks before an answer took time that grew with the square of their number."""
    with_limits(PIECES, seconds=8, megabytes=500)
