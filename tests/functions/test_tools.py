"""`@tool`: a Python function is an op. Whatever it does, the model gets a result and the run goes on."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import enum
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from reyn import llm_function, tool
from reyn.errors import FunctionInvalid, OpMissing
from reyn.functions import Image, Tool, ambient, current_call
from reyn.ops import Op, standard_ops
from reyn.ops.docs import op_page
from reyn.ops.execution import MAY_HAVE_EFFECT
from reyn.runtime import function_tools
from tests.functions.support import Answers, act, async_runtime, kinds, results, sync_runtime, value
from tests.support import finish as skill_finish
from tests.support import write_skill

PNG = base64.b64encode(b"\x89PNG pixels").decode()


class Unit(enum.Enum):
    METRIC = "metric"
    IMPERIAL = "imperial"


@dataclasses.dataclass
class Place:
    city: str
    country: str = "NO"


class Reading(pydantic.BaseModel):
    degrees: float = pydantic.Field(ge=-100, le=100)


@dataclasses.dataclass
class Part:
    name: str
    parts: list[Part] = dataclasses.field(default_factory=list)


@tool(effect="pure")
def weather(place: Place, unit: Unit = Unit.METRIC, days: Annotated[int, msgspec.Meta(ge=1, le=7)] = 1) -> Reading:
    """Return the weather.

    A second paragraph that the model does not need.

    Args:
        place: where, with
            the country code
        unit (Unit): which degrees
    """
    assert isinstance(place, Place)
    assert isinstance(unit, Unit)
    return Reading(degrees=float(len(place.city) + days))


def call(rt: Any, armed: Tool[..., Any], *answers: Any) -> str:
    """Run a function whose model calls a tool; return the run."""

    @llm_function(llm_interface=Answers(*answers, value("ok")), toolkit=[armed], runtime=rt)
    def ask(text: str) -> str:
        """Answer with the tool."""

    return ask.run("x").run_id


def one_result(tmp_path: Path, armed: Tool[..., Any], **args: Any) -> dict[str, Any]:
    with sync_runtime(tmp_path) as rt:
        run = call(rt, armed, act(armed.name, **args))
        assert rt.runs.replay(run).events == len(kinds(rt, run))
        [found] = results(rt, run, armed.name)
        return found


def test_a_tool_is_an_op_with_a_schema_from_its_hints_and_docstring():
    assert isinstance(weather, Op)
    [form] = weather.spec.forms
    assert (weather.spec.kind, weather.spec.effect, weather.spec.permission) == ("weather", "pure", "tool")
    assert weather.spec.summary == "Return the weather."
    properties = form.arguments["properties"]
    assert properties["place"]["description"] == "where, with the country code"
    assert properties["place"]["required"] == ["city"]
    assert properties["unit"] == {"enum": ["imperial", "metric"], "default": "metric", "description": "which degrees"}
    assert properties["days"] == {"type": "integer", "minimum": 1, "maximum": 7, "default": 1}
    assert form.arguments["required"] == ["kind", "place"]
    assert form.result["properties"]["result"]["properties"]["degrees"]["maximum"] == 100
    standard_ops().with_ops(weather)
    assert "`place`" in op_page(weather.spec)


def test_a_tool_can_still_be_called_as_a_function():
    assert weather(Place("Oslo"), days=2) == Reading(degrees=6)


def test_arguments_arrive_typed_and_the_result_leaves_as_json(tmp_path: Path):
    found = one_result(tmp_path, weather, place={"city": "Oslo"}, unit="imperial")
    assert found == {"kind": "weather", "status": "ok", "result": {"degrees": 5.0}}


def test_arguments_that_violate_the_schema_are_asked_for_again(tmp_path: Path):
    with sync_runtime(tmp_path) as rt:
        run = call(rt, weather, act("weather", place={"city": "Oslo"}, days=9), act("weather", place={"city": "Oslo"}))
        assert kinds(rt, run).count("validation_error") == 1
        assert len(results(rt, run, "weather")) == 1


def test_arguments_that_only_python_refuses_are_an_error_result(tmp_path: Path):
    @dataclasses.dataclass
    class Odd:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2 == 0:
                raise ValueError("the number must be odd")

    @tool
    def take(odd: Odd) -> int:
        """Take an odd number."""
        return odd.number

    found = one_result(tmp_path, take, odd={"number": 2})
    assert found["status"] == "error"
    assert "the number must be odd" in found["error"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_that_raises_is_an_error_result(tmp_path: Path, is_async: bool):
    def fail(text: str) -> str:
        """Fail."""
        raise {"v": ValueError, "s": SystemExit, "i": StopIteration, "c": asyncio.CancelledError}[text]("no")

    async def fail_async(text: str) -> str:
        """Fail."""
        return fail(text)

    armed = tool(name="fail")(fail_async if is_async else fail)
    for text in "vsic":
        found = one_result(tmp_path, armed, text=text)
        assert found["status"] == "error", found


def test_a_keyboard_interrupt_of_a_plain_tool_is_an_error_result(tmp_path: Path):
    @tool
    def fail() -> str:
        """Fail."""
        raise KeyboardInterrupt("no")

    assert "the tool raised KeyboardInterrupt: no" in one_result(tmp_path, fail)["error"]


@pytest.mark.parametrize("is_async", [False, True])
def test_functions_can_be_called_after_a_tool_raised_a_keyboard_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_async: bool
):
    monkeypatch.chdir(tmp_path)

    def fail() -> str:
        """Fail."""
        raise KeyboardInterrupt

    async def fail_async() -> str:
        """Fail."""
        raise KeyboardInterrupt

    armed = tool(name="fail", permission=None)(fail_async if is_async else fail)

    @llm_function(llm_interface=Answers(act("fail"), value("fine")), toolkit=[armed])
    def attempt() -> str:
        """Use the tool."""
        raise NotImplementedError

    assert [attempt(), attempt()] == ["fine", "fine"]


def test_a_call_in_progress_is_interrupted_when_the_runtimes_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As at the end of a process in which another thread still waits for a call."""
    monkeypatch.chdir(tmp_path)
    inside, raised = threading.Event(), []

    @tool(permission=None)
    async def hang() -> None:
        """Hang."""
        inside.set()
        await asyncio.Event().wait()

    @llm_function(llm_interface=Answers(act("hang"), value("never")), toolkit=[hang])
    def attempt() -> str:
        """Use the tool."""
        raise NotImplementedError

    def call() -> None:
        try:
            attempt()
        except (asyncio.CancelledError, RuntimeError) as error:
            raised.append(type(error))

    thread = threading.Thread(target=call)
    thread.start()
    assert inside.wait(60)
    ambient.close()
    thread.join()
    assert raised == [asyncio.CancelledError]


def test_a_hanging_tool_times_out(tmp_path: Path):
    release = threading.Event()

    @tool(timeout=0.05)
    def hang(text: str) -> str:
        """Hang."""
        release.wait(60)
        return text

    @tool(timeout=0.05)
    async def hang_async(text: str) -> str:
        """Hang."""
        await asyncio.Event().wait()
        return text

    try:
        for armed in (hang, hang_async):
            found = one_result(tmp_path, armed, text="x")
            error = f"the tool did not return within 0.05 seconds; {MAY_HAVE_EFFECT}"
            assert (found["status"], found["error"]) == ("timeout", error)
    finally:
        release.set()


def test_a_timeout_of_the_tools_own_is_an_error_of_the_tool(tmp_path: Path):
    @tool
    async def fetch(url: str) -> str:
        """Fetch."""
        raise TimeoutError("the server is slow")

    found = one_result(tmp_path, fetch, url="x")
    assert found["status"] == "error"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (object(), "without a JSON form"),
        ({"a": {1, object()}}, "without a JSON form"),
        ("text", "another type than it declares"),
        (None, "another type than it declares"),
        (float("nan"), "nan is not JSON"),
    ],
)
def test_a_tool_that_returns_something_else_than_it_declares_is_an_error_result(
    tmp_path: Path, returned: Any, message: str
):
    @tool
    def count(text: str) -> float:
        """Count."""
        return returned

    found = one_result(tmp_path, count, text="x")
    assert found["status"] == "error"
    assert message in found["error"]


def test_a_lone_surrogate_in_a_result_is_an_error_result(tmp_path: Path):
    @tool
    def broken(text: str) -> str:
        """Break."""
        return "\ud800"

    assert one_result(tmp_path, broken, text="x")["status"] == "error"


def test_at_most_so_many_calls_run_at_a_time_across_runs(tmp_path: Path):
    running = most = 0

    @tool(effect="pure", max_concurrency=2)
    async def slow(number: int) -> int:
        """Work."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return number

    async def main() -> None:
        async with async_runtime(tmp_path) as rt:
            model = Answers(act("slow", number=1), value("ok"))

            @llm_function(llm_interface=model, toolkit=[slow], runtime=rt)
            async def work(number: int) -> str:
                """Work."""

            assert await asyncio.gather(*(work(number) for number in range(8))) == ["ok"] * 8

    asyncio.run(main())
    assert most == 2


def test_a_plain_tool_that_timed_out_keeps_its_slot_until_it_returns(tmp_path: Path):
    release, ended = threading.Event(), threading.Event()

    @tool(timeout=0.05, max_concurrency=1)
    def hang(text: str) -> str:
        """Hang."""
        release.wait(60)
        ended.set()
        return text

    with sync_runtime(tmp_path, max_phase_retries=0) as rt:
        run = call(rt, hang, act("hang", text="a"), act("hang", text="b"))
        assert [one["status"] for one in results(rt, run, "hang")] == ["timeout", "timeout"]
        release.set()
        assert ended.wait(30)
        run = call(rt, hang, act("hang", text="c"))
        assert results(rt, run, "hang")[0]["status"] in ("ok", "timeout")


def test_a_plain_tool_does_not_block_the_event_loop(tmp_path: Path):
    reached = threading.Event()

    @tool(effect="pure")
    def wait(text: str) -> bool:
        """Wait for the event loop."""
        return reached.wait(30)

    async def main() -> dict[str, Any]:
        async with async_runtime(tmp_path) as rt:

            @llm_function(llm_interface=Answers(act("wait", text="x"), value("ok")), toolkit=[wait], runtime=rt)
            async def work(text: str) -> str:
                """Work."""

            call = asyncio.create_task(work.run("x"))
            while not any("wait_started" in kinds(rt, row.run_id) for row in rt.runs.all()):  # noqa: ASYNC110 - of the kernel
                await asyncio.sleep(0)
            reached.set()
            return results(rt, (await call).run_id, "wait")[0]

    assert asyncio.run(main())["result"] is True


def test_a_tool_knows_its_call(tmp_path: Path):
    @tool(effect="idempotent")
    def pay(amount: int) -> str:
        """Pay."""
        return current_call().key

    found = one_result(tmp_path, pay, amount=3)
    assert found["result"] == "run-1/1.1.1"
    with pytest.raises(LookupError):
        current_call()


# -- images ---------------------------------------------------------------------------------------------------


def test_an_image_is_recorded_by_its_hash_and_described(tmp_path: Path):
    @tool(effect="pure")
    def draw(text: str) -> tuple[str, Image]:
        """Draw."""
        return f"a drawing of {text}", Image("image/png", PNG)

    with sync_runtime(tmp_path) as rt:
        run = call(rt, draw, act("draw", text="a cat"))
        [found] = results(rt, run, "draw")
        assert found["result"] == "a drawing of a cat"
        [image] = found["images"]
        assert (image["media_type"], image["bytes"]) == ("image/png", 11)
        assert rt.runs.content(image["content"]) == b"\x89PNG pixels"
        [completed] = [event.data for event in rt.runs.events(run) if event.kind == "draw_completed"]
        assert completed["attachments"] == [image["content"]]
        assert image["content"].encode() in b"".join(rt.runs.export(run))
        rt.runs.verify(run)
        assert rt.runs.replay(run).events == len(kinds(rt, run))


@pytest.mark.parametrize(
    ("returned", "count"),
    [
        (Image("image/png", PNG), 1),
        ([Image("image/png", PNG), Image(url="https://example.com/a.png")], 2),
        (("text", [Image("image/png", PNG)]), 1),
    ],
)
def test_images_may_be_returned_alone_in_lists_and_with_text(tmp_path: Path, returned: Any, count: int):
    @tool
    def draw(text: str):
        """Draw."""
        return returned

    assert len(one_result(tmp_path, draw, text="x")["images"]) == count


def test_a_model_that_reads_images_gets_them_and_others_their_description(tmp_path: Path):
    @tool(effect="pure", permission=None)
    def draw(text: str) -> tuple[str, Image]:
        """Draw."""
        return "a cat", Image("image/png", PNG)

    class Seeing(Answers):
        reads_images = True

    for model in (Seeing(act("draw", text="x"), value("ok")), Answers(act("draw", text="x"), value("ok"))):
        with sync_runtime(tmp_path) as rt:

            @llm_function(llm_interface=model, toolkit=[draw], runtime=rt)
            def ask(text: str) -> str:
                """Ask."""

            ask("x")
        first, second = model.requests
        shown = [image for message in second.messages for image in message.images]
        assert shown == ([Image("image/png", PNG)] if isinstance(model, Seeing) else [])
        assert not any(message.images for message in first.messages)
        assert '"media_type":"image/png"' in model.prompt(1)


def test_an_argument_cannot_name_recorded_content_as_an_image(tmp_path: Path):
    class Seeing(Answers):
        reads_images = True

    model = Seeing(value("ok"))
    with sync_runtime(tmp_path) as rt:

        @llm_function(llm_interface=model, runtime=rt)
        def ask(images: list[dict[str, str]]) -> str:
            """Ask."""

        hashed = (
            rt.derive(model=model).run(ask.skill, {"images": []}, run_id="k") and next(iter(rt.runs.events("k"))).data
        )
        ask([{"content": hashed["skill_hash"]}])
    assert not any(message.images for request in model.requests for message in request.messages)


@pytest.mark.parametrize("image", [Image("image/png", "!!!"), Image("image/png", "")])
def test_an_image_without_content_is_an_error_result(tmp_path: Path, image: Image):
    @tool
    def draw(text: str) -> Image:
        """Draw."""
        return image

    assert "invalid image" in one_result(tmp_path, draw, text="x")["error"]


# -- permissions ----------------------------------------------------------------------------------------------


def test_a_function_grants_its_own_tools_and_a_rule_that_denies_wins(tmp_path: Path):
    with sync_runtime(tmp_path) as rt:
        run = call(rt, weather, act("weather", place={"city": "Oslo"}))
        [started] = [event.data for event in rt.runs.events(run) if event.kind == "weather_started"]
        assert started["rule"] == "permissions.tool: allow weather (skill ask)"
    with sync_runtime(tmp_path, permissions={"tool": [{"deny": "weather"}]}) as rt:
        run = call(rt, weather, act("weather", place={"city": "Oslo"}))
        assert "permission_denied" in kinds(rt, run)
        assert "weather_started" not in kinds(rt, run)


def test_a_skill_needs_a_request_and_a_grant_for_a_tool(tmp_path: Path):
    keys = "permissions: {tool: [weather]}\n"
    write_skill(tmp_path, "trip", {"plan": ["end"]}, ops={"plan": "weather"}, skill_keys=keys)
    answers = (act("weather", place={"city": "Oslo"}), skill_finish())
    with sync_runtime(tmp_path, *answers, ops=[weather]) as rt:
        assert rt.run("trip", {"text": "x"}, run_id="k").ok
        assert "permission_denied" in kinds(rt, "k")
    with sync_runtime(tmp_path, *answers, ops=[weather], permissions={"tool": "allow"}) as rt:
        assert rt.run("trip", {"text": "x"}, run_id="k").ok
        assert results(rt, "k", "weather")[0]["result"] == {"degrees": 5.0}


def test_a_run_with_a_tool_that_the_process_lacks_cannot_be_resumed_and_can_be_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Interrupting(Answers):
        async def complete(self, request):
            if request.answered:
                raise asyncio.CancelledError
            return await super().complete(request)

    with sync_runtime(tmp_path) as rt:
        model = Interrupting(act("weather", place={"city": "Oslo"}))

        @llm_function(llm_interface=model, toolkit=[weather], runtime=rt)
        def ask(text: str) -> str:
            """Ask."""

        with pytest.raises(asyncio.CancelledError):
            ask.options(run_id="k")("x")
        assert rt.runs.replay("k").missing_ops == ("weather",)
        monkeypatch.setattr(function_tools, "_functions", {})  # as in another process
        with pytest.raises(OpMissing, match="weather"):
            rt.resume("k")
        other = rt.derive(ops=[weather], model=Answers(act("x"), value("ok")))
        assert other.resume("k").ok


# -- definitions ----------------------------------------------------------------------------------------------


def test_what_cannot_be_a_tool_is_refused_when_it_is_defined():
    with pytest.raises(FunctionInvalid, match="has no description"):

        @tool
        def silent(x: int) -> int: ...

    with pytest.raises(FunctionInvalid, match="`kind` is reserved"):

        @tool
        def reserved(kind: str) -> str:
            """Do."""

    with pytest.raises(FunctionInvalid, match="the default of `x` has no JSON form"):

        @tool
        def default(x: Any = object()) -> str:  # noqa: B008 - what is tested
            """Do."""

    with pytest.raises(FunctionInvalid, match="no example fits its types"):

        @tool
        def patterned(code: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")]) -> str:
            """Do."""

    @tool(example={"code": "ABC"})
    def helped(code: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")]) -> str:
        """Do."""

    assert helped.spec.forms[0].example == {"kind": "helped", "code": "ABC"}
    with pytest.raises(FunctionInvalid, match="`timeout` is 0"):
        tool(timeout=0)(helped.function)
    for options in (
        {"timeout": "5"},
        {"timeout": float("nan")},
        {"max_concurrency": "2"},
        {"max_concurrency": True},
        {"effect": "harmless"},
    ):
        with pytest.raises(FunctionInvalid, match=f"`{next(iter(options))}` is "):
            tool(**options)(lambda: None)
    with pytest.raises(FunctionInvalid, match="`max_concurrency` is 0"):
        tool(max_concurrency=0)(helped.function)


@pytest.mark.parametrize("name", ["file", "run", "Upper", "web_search", "two words", "", 5])
def test_a_tool_cannot_take_the_name_of_another_op_or_event(name: Any):
    with pytest.raises(FunctionInvalid):

        @tool(name=name)
        def other(x: int) -> int:
            """Do."""


@pytest.mark.parametrize(
    "options",
    [
        {"permission": "toll"},
        {"permission": 5},
        {"description": 5},
        {"description": " "},
        {"example": 5},
        {"best_practices": 5},
    ],
)
def test_an_option_of_another_type_is_refused_when_the_tool_is_defined(options: dict):
    with pytest.raises(FunctionInvalid, match=f"`{next(iter(options))}` is "):

        @tool(**options)
        def other(x: int) -> int:
            """Do."""


class Searcher:
    """Search for a text."""

    async def __call__(self, text: str, most: int = 3) -> list[str]:
        return [text] * most

    def find(self, text: str) -> str:
        """Find a text."""
        return f"found {text}"


def test_a_tool_may_be_a_partial_a_bound_method_or_an_object(tmp_path: Path):
    def scale(value: int, factor: int, unit: str = "kg") -> str:
        """Scale a value.

        Args:
            value: The value.
        """
        return f"{value * factor} {unit}"

    scaled = tool(functools.partial(scale, factor=3))
    found = tool(functools.partial(Searcher().find))
    called = tool(Searcher())
    assert {*scaled.spec.forms[0].arguments["properties"]} == {"kind", "value", "unit"}
    assert [scaled.spec.kind, found.spec.kind, called.spec.kind] == ["scale", "find", "searcher"]
    assert called.spec.summary == "Search for a text."
    for one, arguments, expected in (
        (scaled, {"value": 2}, "6 kg"),
        (found, {"text": "x"}, "found x"),
        (called, {"text": "x", "most": 2}, ["x", "x"]),
    ):
        assert one_result(tmp_path, one, **arguments)["result"] == expected


def test_what_returns_more_than_one_value_is_no_tool():
    async def stream(text: str) -> AsyncIterator[str]:
        """Stream."""
        yield text

    def lines(text: str) -> Iterator[str]:
        """Split."""
        yield text

    for generator in (stream, lines, functools.partial(stream, "x")):
        with pytest.raises(FunctionInvalid, match="is a generator"):
            tool(generator)


def test_methods_classes_and_values_are_no_tools():
    for wrong, words in (
        (Searcher.find, "the method `Searcher.find`"),
        (Searcher, "the class `Searcher`"),
        (5, "not a int"),
        (staticmethod(len), "applied to a staticmethod"),
    ):
        with pytest.raises(FunctionInvalid, match=words):
            tool(wrong)


def test_recursive_and_shared_types_of_arguments_validate_inside_the_answer(tmp_path: Path):
    @tool(effect="pure")
    def build(first: Part, second: Part) -> int:
        """Build."""
        return len(first.parts) + len(second.parts)

    found = one_result(tmp_path, build, first={"name": "a", "parts": [{"name": "b"}]}, second={"name": "c"})
    assert found["result"] == 1
