"""Images as arguments of functions: they reach a model that reads images, in every answer form; others fail."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn import OSRuntime, SyncRuntime, llm_function, tool
from reyn.errors import CallStopped, ImageInvalid, RunIdTaken
from reyn.functions import Image, use_runtime
from reyn.journal import decode
from reyn.models import ModelAnswer, ToolCall
from reyn.testing import MemoryJournal
from tests.functions.support import reyn
from tests.properties import examples
from tests.support import finish, go, write_skill

FORMS = ("full", "short", "tools")
RED = Image("image/png", base64.b64encode(b"\x89PNG red").decode())
BLUE = Image("image/png", base64.b64encode(b"\x89PNG blue").decode())
FAR = Image(url="https://example.org/sky.jpg")


def answer(form: str, value: str) -> str:
    """The answer of a function that returns a text."""
    if form == "tools":
        return value
    if form == "short":
        return json.dumps({"reason": "x", "choice": "end", "confidence": 1, "data": {"value": value}})
    control = {"type": "finish", "decision": "finish", "next_phase": None, "confidence": 1, "reason": {"summary": "x"}}
    return json.dumps({"control": control, "artifact": {"type": "result", "data": {"value": value}}})


class Viewer:
    """A model of one answer form; the first answers are texts, then it gives the value `seen`."""

    takes_time = False

    def __init__(self, form: str, *first: str, reads_images: bool = True) -> None:
        self.name = f"viewer-{form}"
        self.answer_form = form
        self.reads_images = reads_images
        self.requests: list[Any] = []
        self._first = first

    async def complete(self, request: Any) -> ModelAnswer:
        self.requests.append(request)
        number = len(self.requests) - 1
        return ModelAnswer(self._first[number] if number < len(self._first) else answer(self.answer_form, "seen"))

    def user(self, number: int = 0) -> tuple[str, tuple[Image, ...]]:
        """The text and the images of the first message of the user."""
        found = next(message for message in self.requests[number].messages if message.role == "user")
        return found.text, found.images


def open_with(root: Path, model: Any, journal: MemoryJournal | None = None) -> SyncRuntime:
    return SyncRuntime.open(root, model=model, journal=journal or MemoryJournal(), trust=True)


@dataclass
class Page:
    title: str
    scan: Image


@pytest.mark.parametrize("form", FORMS)
def test_images_and_text_of_the_arguments_reach_the_model_in_every_turn(tmp_path: Path, form: str):
    model = Viewer(form, "{")
    if form == "tools":
        model = Viewer(form, " ")  # an empty reply is rejected
    with open_with(tmp_path, model) as rt:

        @llm_function(runtime=rt)
        def describe(photo: Image, question: str, others: list[Image], page: Page | None = None) -> str:
            """Describe the photo."""

        result = describe.run(RED, "what is it?", [BLUE, FAR], Page("front", RED))
        assert result.value == "seen"
        assert len(model.requests) == 2  # the second is a correction
        for number in (0, 1):
            text, images = model.user(number)
            assert images == (RED, BLUE, FAR, RED)
            for part in ("what is it?", "front", "image 1 (image/png)", f"image 3 ({FAR.url})"):
                assert part in text
            assert RED.data not in "".join(message.text for message in model.requests[number].messages)
        assert rt.runs.replay(result.run_id).events == rt.runs.verify(result.run_id).events


@pytest.mark.parametrize("form", FORMS)
def test_a_model_that_reads_no_images_is_not_called(tmp_path: Path, form: str):
    @llm_function
    def describe(photo: Image | None, question: str) -> str:
        """Describe the photo."""

    journal, blind, model = MemoryJournal(), Viewer(form, reads_images=False), Viewer(form)
    with open_with(tmp_path, blind, journal) as rt, use_runtime(rt):
        with pytest.raises(CallStopped, match="not configured to read images") as stopped:
            describe(RED, "what is it?")
        assert blind.requests == []
        [failed] = [event for event in rt.runs.events(stopped.value.run_id) if event.kind == "llm_failed"]
        assert failed.data["code"] == "RYN534"
        assert "images: true" in stopped.value.hint
        assert describe(None, "what is it?") == "seen"  # there is nothing to read
    with open_with(tmp_path, model, journal) as rt, use_runtime(rt):
        assert describe.resume(stopped.value.run_id, retry=True).value == "seen"
        assert model.user()[1] == (RED,)


IMAGES = st.sampled_from([RED, BLUE, FAR])
VALUES = st.recursive(
    st.one_of(st.text("ab", max_size=3), st.integers(0, 9), IMAGES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("xy", max_size=2), inner, max_size=3)),
    max_leaves=6,
)


def in_order(value: Any) -> list[Image]:
    if isinstance(value, Image):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [image for part in parts for image in in_order(part)]


@given(VALUES, st.lists(IMAGES, max_size=2))
@examples(30)
def test_images_are_found_anywhere_in_the_arguments(tmp_path_factory: pytest.TempPathFactory, value: Any, more: list):
    model = Viewer("full")
    with open_with(tmp_path_factory.getbasetemp(), model) as rt:

        @llm_function(runtime=rt)
        def describe(anything: Any, more: list[Image]) -> str:
            """Describe."""

        result = describe.run(value, more)
        assert model.user()[1] == (*in_order(value), *more)
        [started] = [decode(event) for event in rt.runs.events(result.run_id) if event.kind == "run_started"]
        assert len(started.images) == len(in_order(value)) + len(more)


def test_the_images_of_tools_follow_those_of_the_arguments(tmp_path: Path):
    for form in FORMS:
        call = {"control_ir": [{"kind": "zoom"}]} if form == "full" else {"reason": "x", "ops": [{"kind": "zoom"}]}
        model = Viewer(form, json.dumps(call)) if form != "tools" else Viewer(form)

        @tool(effect="pure", permission=None)
        def zoom() -> Image:
            """Zoom in."""
            return BLUE

        with open_with(tmp_path, model) as rt:

            @llm_function(toolkit=[zoom], runtime=rt)
            def describe(photo: Image) -> str:
                """Describe."""

            assert describe(RED) == "seen"
            assert model.user(-1)[1] == ((RED,) if form == "tools" else (RED, BLUE))


def test_a_call_with_another_image_is_another_call(tmp_path: Path):
    """By its run id, and as a sub-run of a tool that is performed again after a crash."""

    async def run() -> None:
        journal, model = MemoryJournal(), Viewer("tools")
        async with OSRuntime.open(tmp_path, model=model, journal=journal, trust=True) as rt:

            @llm_function(runtime=rt)
            async def describe(photo: Image) -> str:
                """Describe."""

            assert await describe.options(run_id="k")(RED) == "seen"
            assert await describe.options(run_id="k")(RED) == "seen"
            assert len(model.requests) == 1
            with pytest.raises(RunIdTaken):
                await describe.options(run_id="k")(BLUE)

            @tool(effect="pure", permission=None)
            async def look() -> str:
                """Look."""
                return await describe(RED) + await describe(BLUE)

            outer = Native(look)

            @llm_function(toolkit=[look], runtime=rt, llm_interface=outer)
            async def compare(question: str) -> str:
                """Compare."""

            result = await compare.run("which?")
            children = [row for row in rt.runs.all() if row.parent == result.run_id]
            assert len(children) == 2
            assert [model.user(number)[1] for number in (1, 2)] == [(RED,), (BLUE,)]
            again = await rt.rerun("k")
            assert again.ok
            assert model.user(-1)[1] == (RED,)
            for row in rt.runs.all():
                assert (await rt.runs.replay(row.run_id)).events == rt.runs.verify(row.run_id).events

    asyncio.run(run())


class Native:
    """Calls a tool, then replies."""

    name = "native"
    takes_time = False
    answer_form = "tools"

    def __init__(self, one: Any) -> None:
        self._one = one

    async def complete(self, request: Any) -> ModelAnswer:
        if request.answered:
            return ModelAnswer("both")
        return ModelAnswer("", tool_calls=(ToolCall("id", self._one.name, "{}"),))


@pytest.mark.parametrize(
    "image", [Image(), Image("image/png", "%%"), Image("text/plain", RED.data), Image(url="file:x")]
)
def test_an_image_without_content_is_an_error_before_the_run(tmp_path: Path, image: Image):
    with open_with(tmp_path, Viewer("full")) as rt:

        @llm_function(runtime=rt)
        def describe(photo: Image) -> str:
            """Describe."""

        with pytest.raises(ImageInvalid):
            describe(image)
        assert list(rt.runs.all()) == []


def test_a_run_of_a_skill_can_have_images_in_its_entry_phase_only(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]})
    model = Viewer("full", json.dumps(go("b")), json.dumps(finish()))
    with open_with(tmp_path, model) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k", images=[RED]).ok
        assert [model.user(number)[1] for number in (0, 1)] == [(RED,), ()]
        assert rt.runs.replay("k").events == rt.runs.verify("k").events


MODULE = """
from reyn import llm_function
from reyn.functions import Image

@llm_function(llm_interface="scripted:answers.jsonl")
def describe(photo: Image) -> str:
    \"\"\"Describe.\"\"\"
"""


def test_a_command_passes_images_of_its_json_to_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("pictures.py").write_text(MODULE)
    Path("answers.jsonl").write_text(answer("full", "seen") + "\n")
    photo = {"media_type": RED.media_type, "data": RED.data, "url": ""}
    ended = reyn("run", "pictures:describe", json.dumps({"photo": photo}), "--run-id", "k")
    assert "RYN534" in ended.stdout + ended.stderr
    with SyncRuntime.open(tmp_path) as rt:
        [image] = rt.runs.state("k").started.images
        assert rt.runs.content(image.content) == base64.b64decode(RED.data)
