"""Images reach only models that read them, however they came into the conversation; a refusal loses nothing."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, llm_chat
from reyn.context import ContextReplace, UserMessage
from reyn.context.messages import NormalizedMessage
from reyn.context.transcript import normalize
from reyn.errors import ChatStopped, ImagesUnsupported, ModelUnavailable
from reyn.functions import HookTurn, Image, tool
from reyn.journal import MemoryJournal
from reyn.models import Message, ModelAnswer, ToolCall
from reyn.models.roster import Roster
from tests.functions.test_chat import Chatty, calls

FORMS = ["full", "short", "tools"]
PICTURE = Image("image/png", base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8)).decode())
LINK = Image(url="https://images.example/dog.png")
SHOWN = Message("user", "What is this?", (PICTURE,))
BEFORE = [SHOWN, Message("assistant", "A cat.")]


@tool(effect="pure")
def draw(number: int) -> tuple[str, Image]:
    """Draw a number."""
    return f"drawn {number}", PICTURE


def reply_in(form: str, text: str, *, ends: bool = True) -> str:
    """A reply in a form."""
    if form == "tools":
        return text
    if form == "short":
        return json.dumps(
            {"reason": "x", "choice": "end" if ends else "agent", "confidence": 1, "data": {"text": text}}
        )
    target = {"type": "finish", "decision": "finish", "next_phase": None}
    if not ends:
        target = {"type": "transition", "decision": "continue", "next_phase": "agent"}
    control = target | {"confidence": 1, "reason": {"summary": "x"}}
    return json.dumps({"control": control, "artifact": {"type": "reply", "data": {"text": text}}})


def drawing_in(form: str) -> Any:
    """An answer that calls `draw`."""
    if form == "tools":
        return calls(("draw", '{"number": 1}'))
    ops = [{"kind": "draw", "number": 1}]
    return json.dumps({"reason": "x", "ops": ops} if form == "short" else {"control_ir": ops})


class Studio:
    """A chat `agent` with a model that reads images, or not."""

    def __init__(
        self, root: Path, form: str, *answers: Any, reads: bool = False, journal: Any = None, **options: Any
    ) -> None:
        self.model = Chatty(*answers)
        self.model.answer_form = form
        self.model.reads_images = reads
        self.journal = journal or MemoryJournal()
        self.rt = OSRuntime.open(root, model=self.model, journal=self.journal, trust=True)

        @llm_chat(runtime=self.rt, toolkit=[draw], **options)
        async def agent(message: str, history: Any = None) -> None:
            """You see."""

        self.agent = agent

    @property
    def images(self) -> list[int]:
        """The number of images in each request."""
        return [sum(len(message.images) for message in request.messages) for request in self.model.requests]

    def refused(self) -> None:
        """Check that the last run stopped before its model was asked."""
        [*_, row] = self.rt.runs.all()
        [*_, failed] = [event.data for event in self.rt.runs.events(row.run_id) if event.kind == "run_failed"]
        assert failed["code"] == ImagesUnsupported.code
        assert not any(self.images)


def adds_image(turn: HookTurn) -> Any:
    return [UserMessage("And this.", (LINK,))]


def replaces_with_image(turn: HookTurn) -> Any:
    return [ContextReplace(normalize([SHOWN, *turn.messages]))]


WAYS: dict[str, tuple[Any, Any, Any]] = {
    "message": (SHOWN, (), ()),
    "address": (Message("user", "Look.", (LINK,)), (), ()),
    "history": ("And its colour?", BEFORE, ()),
    "dicts": (
        "And its colour?",
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": LINK.url}}]}],
        (),
    ),
    "hook": ("hi", (), [adds_image]),
    "replacing hook": ("hi", (), [replaces_with_image]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_reads_no_images_is_not_asked_about_new_ones(tmp_path: Path, way: str, form: str):
    said, history, hooks = WAYS[way]

    async def scenario() -> None:
        studio = Studio(tmp_path, form, hooks=hooks)
        with pytest.raises(ChatStopped, match="not configured to read images") as found:
            await studio.agent(said, history)
        studio.refused()
        assert not studio.model.requests
        assert found.value.hint == ImagesUnsupported.hint
        assert found.value.action is not None
        assert found.value.action.model  # the same model would stop again
        with pytest.raises(ChatStopped, match="not configured to read images"):
            await studio.agent.options(run_id=found.value.run_id).resume()
        studio.refused()
        reader = Studio(tmp_path, form, reply_in(form, "A cat."), hooks=hooks, reads=True)
        assert (await reader.agent(said, history)).text == "A cat."
        assert reader.images == [1]

    asyncio.run(scenario())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("turns", [0, 1])
def test_a_conversation_with_a_key_continues_after_a_refused_image(tmp_path: Path, turns: int, form: str):
    async def scenario() -> None:
        replies = [reply_in(form, text, ends=False) for text in ("One.", "Two.", "Three.")]
        studio = Studio(tmp_path, form, *replies)
        agent = studio.agent.options(key="k")
        for _ in range(turns):
            await agent("hi")
        for _ in range(2):  # the same image again is as new
            with pytest.raises(ChatStopped, match="not configured to read images"):
                await agent(SHOWN)
        assert len(studio.model.requests) == turns
        reply = await agent("Never mind.")
        assert reply.text == ("One.", "Two.")[turns]
        assert [message.text for message in studio.model.requests[-1].messages if message.role == "user"] == [
            *["hi"] * turns,
            *["What is this?\n[image: image/png]"] * 2,
            "Never mind.",
        ]
        assert [len(message.images) for message in reply.history if message.text == SHOWN.text] == [1, 1]
        assert (await agent("Bye.")).text == ("Two.", "Three.")[turns]
        assert not any(studio.images)
        assert (await studio.rt.runs.replay(reply.run_id)).events == studio.rt.runs.verify(reply.run_id).events

    asyncio.run(scenario())


@pytest.mark.parametrize("key", [None, "k"])
def test_a_refused_turn_is_answered_by_a_model_that_reads_images(tmp_path: Path, key: str | None):
    async def scenario() -> None:
        studio = Studio(tmp_path, "tools")
        with pytest.raises(ChatStopped) as found:
            await studio.agent.options(key=key)(SHOWN)
        reader = Studio(tmp_path, "tools", "A cat.", reads=True, journal=studio.journal)
        run = {"key": key} if key else {"run_id": found.value.run_id}
        assert (await reader.agent.options(**run).resume()).text == "A cat."
        assert reader.images == [1]

    asyncio.run(scenario())


@pytest.mark.parametrize("reads", [False, True])
def test_a_conversation_of_a_runtime_checks_images_as_well(tmp_path: Path, reads: bool):
    async def scenario() -> None:
        model = Chatty("Seen.", "Bye.")
        model.reads_images = reads
        async with OSRuntime.open(tmp_path, model=model, journal=MemoryJournal(), trust=True) as rt:
            async with rt.chat(run_id="c") as chat:
                if reads:
                    assert (await chat.say(SHOWN)).text == "Seen."
                else:
                    with pytest.raises(ChatStopped, match="not configured to read images"):
                        await chat.say(SHOWN)
                    assert not model.requests
                    assert (await chat.say("Never mind.")).text == "Seen."
            assert [sum(len(m.images) for m in request.messages) for request in model.requests] == [int(reads)]

    asyncio.run(scenario())


@pytest.mark.parametrize("form", FORMS)
def test_images_of_tools_are_described_and_their_history_can_be_passed_on(tmp_path: Path, form: str):
    async def scenario() -> None:
        answers = [drawing_in(form), reply_in(form, "Done."), reply_in(form, "Again.")]
        studio = Studio(tmp_path, form, *answers)
        reply = await studio.agent("Draw.")
        assert (await studio.agent("More.", reply.history)).text == "Again."
        assert studio.images == [0, 0, 0]
        reader = Studio(tmp_path, form, *answers, reads=True)
        reply = await reader.agent("Draw.")
        await reader.agent("More.", reply.history)
        assert reader.images == [0, 1, 1]

    asyncio.run(scenario())


def test_a_hook_can_remove_images_or_add_the_result_of_a_tool(tmp_path: Path):
    def describe(turn: HookTurn) -> Any:
        seen.append([len(message.images) for message in turn.messages])
        return [ContextReplace(normalize([Message(m.role, f"{m.text} (a cat)") for m in turn.messages]))]

    def look(turn: HookTurn) -> Any:
        call = ToolCall("c", "draw", "{}")
        return [ContextReplace(normalize([*turn.messages, NormalizedMessage("assistant", "", tool_calls=(call,)),
            NormalizedMessage("tool", "drawn", (PICTURE,), tool_call_id="c")]))]  # fmt: skip

    seen: list[list[int]] = []

    async def scenario() -> None:
        studio = Studio(tmp_path, "tools", "A cat.", hooks=[describe])
        assert (await studio.agent(SHOWN)).text == "A cat."
        assert seen == [[1]]
        assert studio.model.seen() == [("user", "What is this? (a cat)")]
        studio = Studio(tmp_path, "tools", "Drawn.", hooks=[look])
        assert (await studio.agent("hi")).text == "Drawn."
        assert studio.model.seen()[-1] == ("tool", "drawn\n[image: image/png]")

    asyncio.run(scenario())


class Named:
    """A model of the configuration. `down` fails, the others reply."""

    takes_time = False
    answer_form = "tools"

    def __init__(self, name: str, requests: list[tuple[str, int]]) -> None:
        self.name = name
        self._requests = requests

    async def complete(self, request: Any) -> ModelAnswer:
        self._requests.append((self.name, sum(len(message.images) for message in request.messages)))
        if self.name == "down":
            raise ModelUnavailable("it is down")
        return ModelAnswer("Here.")


@pytest.mark.parametrize(
    ("models", "said", "history", "expected"),
    [
        ({"down": True, "plain": False}, SHOWN, (), [("down", 1)]),
        ({"down": True, "plain": False}, "hi", BEFORE, [("down", 1)]),
        ({"down": True, "plain": False, "sees": True}, SHOWN, (), [("down", 1), ("sees", 1)]),
        ({"plain": False, "sees": True}, SHOWN, (), [("sees", 1)]),
        ({"down": True, "plain": False}, "hi", "tool", [("down", 1), ("plain", 0)]),
        ({"down": False, "sees": True}, "hi", "tool", [("down", 0), ("sees", 1)]),
    ],
)
def test_fallbacks_are_sent_images_only_if_they_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: Any, said: Any, history: Any, expected: Any
):
    requests: list[tuple[str, int]] = []
    first, *rest = models
    keys = {"retries": 0, "answer_form": "tools"}
    listed = {name: {"model": f"openai:{name}", "images": reads, **keys} for name, reads in models.items()}
    listed[first]["fallback"] = rest
    (tmp_path / "reyn.yaml").write_text(json.dumps({"model": first, "models": listed}))
    monkeypatch.setattr(Roster, "open", lambda self, name: Named(name, requests))
    if history == "tool":
        call = ToolCall("c", "draw", "{}")
        history = [
            Message("assistant", "", tool_calls=(call,)),
            Message("tool", "drawn", (PICTURE,), tool_call_id="c"),
        ]

    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, journal=MemoryJournal(), trust=True) as rt:

            @llm_chat(runtime=rt)
            async def agent(message: str, history: Any = None) -> None:
                """You see."""

            if expected[-1][0] == "down":
                with pytest.raises(ChatStopped, match="`plain` is not configured to read images"):
                    await agent(said, history)
            else:
                assert (await agent(said, history)).text == "Here."
        assert requests == expected

    asyncio.run(scenario())
