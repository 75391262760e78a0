"""`function.stream(…)`: typed values while the answer arrives, in every form; restarts, errors, cancels, resumes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reyn import ModelAnswer, OSRuntime, SyncRuntime, llm_function, tool
from reyn.contract.partial import PartialData
from reyn.errors import CallStopped, StreamTaken
from reyn.functions import OpenAICompatible, Partial
from reyn.models import ToolCall
from reyn.testing import MemoryJournal, ScriptedModel, finish, reply
from tests.cost import LINEAR, growth
from tests.models.fake_server import FakeServer, chunk, event

FORMS = ("full", "short", "tools")


@dataclass
class City:
    name: str
    people: int = 0


@dataclass
class Report:
    title: str
    level: Literal["low", "lowest"]
    cities: list[City] = field(default_factory=list)
    day: date | None = None


class Loose(TypedDict, total=False):
    a: str
    b: list[str]


REPORT = {
    "title": 'A "big" one 😀',
    "level": "lowest",
    "cities": [{"name": "Rome", "people": 12}, {"name": "Bonn"}],
    "day": "2026-11-19",
}


class Streaming:
    """Sends its answers in pieces, and lets other tasks run after each. Each is a text, or tool calls after a text."""

    name = "streaming"
    takes_time = True

    def __init__(self, *answers: Any, form: Any = "full", size: int = 1) -> None:
        self.answers, self.answer_form, self.size, self.calls = answers, form, size, 0

    async def complete(self, request: Any) -> ModelAnswer:
        self.calls += 1
        text, calls = self.answers[min(self.calls, len(self.answers)) - 1], ()
        if isinstance(text, tuple):
            text, calls = text
        for at in range(0, len(text), self.size):
            if request.on_delta is not None:
                request.on_delta(text[at : at + self.size])
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        return ModelAnswer(text, tool_calls=tuple(calls))


def decision(data: Any, form: str = "full") -> str:
    """The text of an answer with the data of a result."""
    if form == "full":
        return json.dumps(finish(data, type="result"))
    return json.dumps({"reason": "done", "choice": "end", "confidence": 1, "data": data}, indent=1, ensure_ascii=False)


def function_of(runtime: Any, returns: Any, **options: Any) -> Any:
    async def ask(question: str) -> Any:
        """Answer."""

    ask.__annotations__["return"] = returns
    return llm_function(runtime=runtime, **options)(ask)


def collected(root: Path, model: Any, returns: Any = str, **options: Any) -> list[Partial[Any]]:
    """All partial values of a call."""

    async def main() -> list[Partial[Any]]:
        async with OSRuntime.open(root, model=model, journal=MemoryJournal()) as runtime:
            return [one async for one in function_of(runtime, returns, **options).stream("?")]

    return asyncio.run(main())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 5])
def test_a_value_appears_as_soon_as_it_has_its_type(tmp_path: Path, form: str, size: int):
    *parts, last = collected(tmp_path, Streaming(decision(REPORT, form), form=form, size=size), Report)
    assert last.value == Report(REPORT["title"], "lowest", [City("Rome", 12), City("Bonn")], date(2026, 11, 19))
    assert last.result is not None
    assert (last.result.value, last.restarted) == (last.value, "")
    assert all(one.result is None and not one.restarted for one in parts)
    assert parts[0].value is None
    typed = [one.value for one in parts if one.value is not None]
    assert all(isinstance(one, Report) for one in typed)
    assert {one.level for one in typed} == {"lowest"}  # "low" is only its beginning
    assert {one.day for one in typed} <= {None, date(2026, 11, 19)}
    assert [len(one.cities) for one in typed] == sorted(len(one.cities) for one in typed)
    titles = [one.data["title"] for one in parts if "title" in one.data]
    assert all(REPORT["title"].startswith(title) for title in titles)
    assert len(set(titles)) > 2
    if size == 1:
        assert Report(REPORT["title"], "lowest", [City("Rom")]) in typed
        assert Report(REPORT["title"], "lowest", [City("Rome", 12)]) in typed


@pytest.mark.parametrize("form", FORMS)
def test_a_text_grows(tmp_path: Path, form: str):
    text = "Hello, Ada. \u2028 Welcome."
    answer = text if form == "tools" else decision({"value": text}, form)
    *parts, last = collected(tmp_path, Streaming(answer, form=form))
    assert last.value == text
    values = [one.value for one in parts]
    assert len(values) > 10
    assert values == sorted(values, key=len)
    assert all(isinstance(one, str) and text.startswith(one) for one in values)
    assert [one.data for one in parts] == values


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("returns", "data", "value", "some"),
    [
        (list[int], {"value": [1, 23, 4]}, [1, 23, 4], [1, 23]),
        (set[str], {"value": ["a", "b"]}, {"a", "b"}, {"a"}),
        (dict[str, int], {"value": {"a": 1, "b": 2}}, {"a": 1, "b": 2}, {"a": 1}),
        (Loose, {"a": "xy", "b": ["z"]}, {"a": "xy", "b": ["z"]}, {"a": "x"}),
        (tuple[str, int], {"value": ["a", 1]}, ("a", 1), None),
        (City | None, {"value": {"name": "Rome", "people": 1}}, City("Rome", 1), City("Ro")),
        (Any, {"value": {"x": ["yz"]}}, {"x": ["yz"]}, {"x": ["y"]}),
    ],
)
def test_partial_values_have_the_type_of_the_function(
    tmp_path: Path, form: str, returns: Any, data: Any, value: Any, some: Any
):
    *parts, last = collected(tmp_path, Streaming(decision(data, form), form=form), returns)
    assert last.value == value
    assert all(one.value is None or type(one.value) is type(value) for one in parts)
    assert some in [one.value for one in parts]


def test_pydantic_models_are_built_with_their_validators(tmp_path: Path):
    pydantic = pytest.importorskip("pydantic")

    class Order(pydantic.BaseModel):
        name: str = pydantic.Field(min_length=3)
        items: list[str] = pydantic.Field(default_factory=list)

        @pydantic.field_validator("name")
        @classmethod
        def known(cls, name: str) -> str:
            if name == "Rom":
                raise ValueError("not known")
            return name

    *parts, last = collected(tmp_path, Streaming(decision({"name": "Rome", "items": ["a", "b"]})), Order)
    assert last.value == Order(name="Rome", items=["a", "b"])
    assert {one.value.name for one in parts if one.value is not None} == {"Rome"}


@pytest.mark.parametrize("form", FORMS)
def test_a_rejected_answer_starts_over_and_says_so(tmp_path: Path, form: str):
    wrong, right = decision({"value": ["a", 5]}, form), decision({"value": ["b"]}, form)
    *parts, last = collected(tmp_path, Streaming(wrong, right, form=form), list[str])
    restarts = [one.restarted for one in (*parts, last) if one.restarted]
    assert len(restarts) == 1
    assert "is integer, not string" in restarts[0]
    assert last.value == ["b"]
    at = next(number for number, one in enumerate(parts) if one.restarted)
    assert ["a"] in [one.value for one in parts[:at]]
    assert parts[at].value in ([], ["b"], None)


def test_text_before_tool_calls_is_void(tmp_path: Path):
    @tool(effect="pure", permission=None)
    def look() -> str:
        """Look."""
        return "seen"

    model = Streaming(("I look.", [ToolCall("a", "look", "{}")]), "It is there.", form="tools")
    *parts, last = collected(tmp_path, model, str, toolkit=[look])
    assert last.value == "It is there."
    [restart] = [one for one in parts if one.restarted]
    assert "It is there.".startswith(restart.value)


@pytest.mark.parametrize("form", FORMS)
def test_a_model_that_does_not_stream_yields_one_value(tmp_path: Path, form: Any):
    for model in (ScriptedModel([reply("Hi.")], answer_form=form), lambda request: "Hi."):
        [only] = collected(tmp_path, model)
        assert (only.value, only.data, only.restarted) == ("Hi.", "Hi.", "")
        assert only.result is not None
        assert only.result.run_id


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def begins(part: Any, whole: Any) -> bool:
    """Whether JSON is the beginning of other JSON."""
    if isinstance(whole, str) and isinstance(part, str):
        return whole.startswith(part)
    if isinstance(whole, list) and isinstance(part, list):
        return len(part) <= len(whole) and all(map(begins, part, whole))
    if isinstance(whole, dict) and isinstance(part, dict):
        return list(part) == list(whole)[: len(part)] and all(begins(part[key], whole[key]) for key in part)
    return type(part) is type(whole) and part == whole


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON, max_size=4), st.booleans(), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_what_is_known_is_always_a_beginning_of_the_data(data: dict[str, Any], is_ascii: bool, draw: Any):
    text = json.dumps({"control": {"x": [1]}, "artifact": {"type": "result", "data": data}}, ensure_ascii=is_ascii)
    partial, at, before = PartialData(), 0, -1
    while at < len(text):
        size = draw.draw(st.integers(1, 9))
        partial.feed(text[at : at + size])
        at += size
        for completion in partial.completions():
            assert begins(completion.value, data)
            if completion.open_text is not None:
                found: Any = completion.value
                for step in completion.open_text:
                    found = found[step]
                assert isinstance(found, str)
        known = next(partial.completions(), None)
        size_now = len(json.dumps(known.value)) if known else -1
        assert size_now >= before or known is None
    assert next(partial.completions()).value == data
    assert len(list(partial.completions())) == 1


@given(st.text(alphabet='{}[]",:\\u0dtexa ', max_size=80), st.integers(1, 5))
def test_malformed_answers_yield_what_can_be_read_or_nothing(text: str, size: int):
    partial = PartialData()
    text = '{"data": {' + text
    for at in range(0, len(text), size):
        partial.feed(text[at : at + size])
        list(partial.completions())


def test_an_answer_is_read_in_time_that_is_linear_in_its_length(tmp_path: Path):
    def read(count: int) -> None:
        answer = decision({"value": ["word"] * count})
        assert len(collected(tmp_path, Streaming(answer, size=8), list[str])[-1].value) == count

    assert growth(read, 400) < LINEAR


def test_a_call_that_stops_raises_its_error(tmp_path: Path):
    seen: list[Any] = []

    async def main() -> None:
        async with OSRuntime.open(tmp_path, model=Streaming(decision({"value": "x"})), journal=MemoryJournal()) as rt:
            ask = function_of(rt, int, max_retries=0)
            async for one in ask.stream("?"):
                seen.append(one)  # noqa: PERF401 - kept although the loop raises

    with pytest.raises(CallStopped, match="is failed"):
        asyncio.run(main())
    assert all(one.result is None and one.value is None for one in seen)


def test_a_loop_that_is_left_cancels_the_call_and_its_run_continues(tmp_path: Path):
    async def main() -> None:
        model = Streaming(decision({"value": ["a", "b"]}))
        async with OSRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as rt:
            ask = function_of(rt, list[str]).options(run_id="r")
            stream = ask.stream("?")
            async for one in stream:
                if one.value == ["a"]:
                    break
            await stream.aclose()
            assert not rt.services.journal.is_claimed("r")
            assert await ask("?") == ["a", "b"]
            [last] = [one async for one in ask.stream("?")]  # the run has finished
            assert last.value == ["a", "b"]
            assert model.calls == 2
            with pytest.raises(StreamTaken):
                async for _ in stream:
                    pass

    asyncio.run(main())


def test_callbacks_of_the_options_are_called_too(tmp_path: Path):
    events: list[Any] = []
    pieces: list[str] = []

    async def main() -> None:
        async with OSRuntime.open(tmp_path, model=Streaming(decision({"value": 1})), journal=MemoryJournal()) as rt:
            ask = function_of(rt, int).options(listener=events.append, on_delta=lambda delta: pieces.append(delta.text))
            assert [one.value async for one in ask.stream("?")][-1] == 1

    asyncio.run(main())
    assert "".join(pieces) == decision({"value": 1})
    assert {"run_started", "llm_responded"} <= {event.kind for event in events}


def plain(runtime: SyncRuntime) -> Any:
    @llm_function(runtime=runtime)
    def words(question: str) -> list[str]:
        """Answer."""
        raise NotImplementedError

    return words


class Gated(Streaming):
    """Waits in the middle of its answer until the test has seen the first part."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.gate = threading.Event()

    async def complete(self, request: Any) -> ModelAnswer:
        if request.on_delta is not None:
            request.on_delta(self.answers[0][:-6])
            await asyncio.to_thread(self.gate.wait)
        return ModelAnswer(self.answers[0])


def test_a_plain_function_is_iterated_without_an_event_loop(tmp_path: Path):
    model = Gated(decision({"value": ["a", "b"]}))
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as rt:
        values = []
        for partial in plain(rt).stream("?"):
            model.gate.set()
            values.append(partial.value)
        assert values == [["a", ""], ["a", "b"]]
        model.gate.clear()
        for partial in plain(rt).options(run_id="left").stream("?"):
            assert partial.result is None
            break
        model.gate.set()
        del partial
        assert plain(rt).options(run_id="left")("?") == ["a", "b"]


def test_a_function_is_iterated_inside_a_tool(tmp_path: Path):
    found: list[Any] = []

    async def main() -> None:
        async with OSRuntime.open(tmp_path, model=by_function, journal=MemoryJournal()) as rt:

            @tool(effect="pure", permission=None)
            async def count() -> int:
                """Count."""
                found.extend([one async for one in inner.stream("?")])
                return len(found)

            inner = function_of(None, list[str])
            outer = function_of(rt, str, toolkit=[count])
            assert await outer("?") == "done"

    turns = iter([json.dumps({"control_ir": [{"kind": "count"}]}), decision({"value": ["x"]}), "done"])

    def by_function(request: Any) -> str:
        return next(turns)

    asyncio.run(main())
    assert [one.value for one in found] == [["x"]]


def test_arguments_are_checked_at_once(tmp_path: Path):
    async def main(check: Callable[[Any], None]) -> None:
        async with OSRuntime.open(tmp_path, model=Streaming("x"), journal=MemoryJournal()) as rt:
            check(function_of(rt, str))

    def check(ask: Any) -> None:
        with pytest.raises(TypeError):
            ask.stream()

    asyncio.run(main(check))


@pytest.mark.sockets
def test_values_arrive_while_the_server_of_a_real_adapter_still_sends(tmp_path: Path):
    pytest.importorskip("openai")
    gate = threading.Event()

    async def halves(request: Any, connection: Any) -> None:
        text = decision({"value": ["a", "b"]}, "short")
        await connection.begin_stream()
        await connection.piece(event(chunk(text[: text.index('"b"')])))
        await asyncio.to_thread(gate.wait)
        await connection.piece(event(chunk(text[text.index('"b"') :])))
        await connection.piece(event(chunk(finish="stop")))
        await connection.piece(b"data: [DONE]\n\n")
        await connection.end_stream()

    with FakeServer(halves) as server:
        llm = OpenAICompatible("m", base_url=server.url, api_key="sk-0123456789", answer_form="short")
        with SyncRuntime.open(tmp_path, model=llm, journal=MemoryJournal()) as rt:
            values = []
            for partial in plain(rt).stream("?"):
                gate.set()
                values.append(partial.value)
    assert values[0] == ["a"]
    assert values[-1] == ["a", "b"]
