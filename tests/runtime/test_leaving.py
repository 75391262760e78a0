"""A stream ends with its reader, however that leaves it, and before anything else begins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, SyncRuntime, llm_chat, tool
from reyn.errors import ReynError
from reyn.functions import OpenAICompatible
from reyn.journal import MemoryJournal
from reyn.models import ModelAnswer, ToolCall
from tests.support import go, write_skill

KEPT: list[BaseException] = []
"""Exceptions that a program keeps, with their tracebacks."""


class Cook:
    """Bakes one cake after the other, without end, in the form that it is asked for."""

    name = "cook"

    def __init__(self, form: str, *, takes_time: bool) -> None:
        self.answer_form, self.takes_time = form, takes_time
        self.cakes = 0

    async def complete(self, request: Any) -> ModelAnswer:
        if any("stop" in message.text for message in request.messages if message.role == "user"):
            answer = json.dumps(go(request.phase, "ok", type="reply"))
            return ModelAnswer(answer if self.answer_form == "full" else "ok")
        self.cakes += 1
        if self.answer_form == "tools":
            call = ToolCall(f"c{self.cakes}", "bake", f'{{"cake": {self.cakes}}}')
            return ModelAnswer("", tool_calls=(call,))
        return ModelAnswer(f'{{"control_ir": [{{"kind": "bake", "cake": {self.cakes}}}]}}')


class Kitchen:
    """A runtime with an unsafe tool `bake`; `baked` are the cakes that were begun."""

    def __init__(self, root: Path, form: str, *, takes_time: bool = False) -> None:
        self.baked: list[int] = []

        @tool(effect="unsafe", permission=None)
        async def bake(cake: int) -> str:
            """Bake a cake."""
            self.baked.append(cake)
            await asyncio.sleep(0)
            return f"cake {cake}"

        (root / "reyn" / "agents").mkdir(parents=True, exist_ok=True)
        (root / "reyn" / "agents" / "baker.md").write_text(
            "---\ntype: agent\nname: baker\ndescription: bakes\nallowed_ops: [bake]\n---\nBake.\n"
        )
        keys = {"oven": "max_act_turns: 100000\n"}  # a slow reader leaves before they are used up
        write_skill(
            root, "bakery", {"oven": ["end"]}, inputs={"oven": "user_message"}, ops={"oven": "bake"}, phase_keys=keys
        )
        self.model = Cook(form, takes_time=takes_time)
        ports: dict[str, Any] = {"model": self.model, "journal": MemoryJournal(), "ops": [bake], "trust": True}
        self.rt = OSRuntime.open(root, **ports, max_act_turns=10_000)

        @llm_chat(runtime=self.rt, toolkit=[bake], max_act_turns=10_000)
        async def oven(message: str, history: Any = None) -> None:
            """Bake."""

        self.oven = oven


async def settled(rt: OSRuntime) -> None:
    """Wait until no run is executed."""
    while rt.services.executing:  # noqa: ASYNC110 - nothing reports it
        await asyncio.sleep(0)


async def by_break(stream: Any, is_time: Callable[[], bool]) -> None:
    async for _ in stream:
        if is_time():
            break


async def by_error(stream: Any, is_time: Callable[[], bool]) -> None:
    try:
        async for _ in stream:
            if is_time():
                raise ZeroDivisionError
    except ZeroDivisionError as error:
        KEPT.append(error)


async def by_generator(stream: Any, is_time: Callable[[], bool]) -> None:
    async def items() -> AsyncIterator[Any]:
        async for item in stream:
            yield item

    async with aclosing(items()) as found:
        async for _ in found:
            if is_time():
                break


async def by_cancellation(stream: Any, is_time: Callable[[], bool]) -> None:
    async def read() -> None:
        async for _ in stream:
            if is_time():
                asyncio.current_task().cancel()  # type: ignore[union-attr]
                await asyncio.sleep(0)

    with suppress(asyncio.CancelledError):
        await asyncio.ensure_future(read())


async def by_closing(stream: Any, is_time: Callable[[], bool]) -> None:
    while not is_time():
        await anext(stream)
    await stream.aclose()


WAYS = [by_break, by_error, by_generator, by_cancellation, by_closing]


@pytest.mark.parametrize("leave", WAYS)
@pytest.mark.parametrize("form", ["tools", "full"])
@pytest.mark.parametrize("stream", ["chat", "key", "agent"])
def test_no_tool_begins_after_the_reader_of_a_reply_has_left(
    tmp_path: Path, stream: str, form: str, leave: Callable[..., Any]
):
    async def scenario() -> None:
        kitchen = Kitchen(tmp_path, form, takes_time=stream == "key")
        async with kitchen.rt as rt, rt.chat("baker") as chat:
            streams: dict[str, Callable[[str], Any]] = {
                "chat": kitchen.oven,
                "key": kitchen.oven.options(key="k"),
                "agent": chat.stream,
            }
            held = streams[stream]("go")  # the variable keeps the stream
            await leave(held, lambda: len(kitchen.baked) >= 2)
            begun = [*kitchen.baked]
            if stream != "chat":
                found = [item async for item in streams[stream]("stop")]
                assert found[-1].text == "ok"
            else:
                await settled(rt)
            assert kitchen.baked == begun
            with pytest.raises(StopAsyncIteration):
                await anext(held)

    asyncio.run(scenario())
    KEPT.clear()


@pytest.mark.parametrize("stream", ["chat", "key", "agent", "run"])
def test_a_stream_that_is_dropped_ends_without_a_garbage_collection(tmp_path: Path, stream: str):
    async def scenario() -> None:
        kitchen = Kitchen(tmp_path, "full")
        async with kitchen.rt as rt, rt.chat("baker") as chat:
            streams: dict[str, Callable[[str], Any]] = {
                "chat": kitchen.oven,
                "key": kitchen.oven.options(key="k"),
                "agent": chat.stream,
                "run": lambda text: rt.stream("bakery", text),
            }
            held = streams[stream]("go")
            while not kitchen.baked:
                await anext(held)
            del held
            if stream == "agent":
                assert (await chat.say("stop")).text == "ok"
            else:
                await settled(rt)

    asyncio.run(scenario())


@pytest.mark.parametrize("leave", WAYS)
def test_leaving_the_events_of_a_run_interrupts_it(tmp_path: Path, leave: Callable[..., Any]):
    async def scenario() -> None:
        kitchen = Kitchen(tmp_path, "full")
        async with kitchen.rt as rt:
            stream = rt.stream("bakery", "go", run_id="b")
            await leave(stream, lambda: len(kitchen.baked) >= 2)
            await settled(rt)
            assert rt.runs.display_status(rt.runs.find("b")) == "running (interrupted)"
            await stream.aclose()
            with pytest.raises(ReynError, match="left before the run ended"):
                _ = stream.result

    asyncio.run(scenario())
    KEPT.clear()


@pytest.mark.parametrize("is_run", [True, False])
def test_leaving_a_loop_of_synchronous_code_ends_the_stream(tmp_path: Path, is_run: bool):
    kitchen = Kitchen(tmp_path, "full")
    with SyncRuntime(kitchen.rt) as rt, rt.chat("baker") as chat:
        stream: Any = rt.stream("bakery", "go", run_id="b") if is_run else chat.stream("go")
        for _ in stream:
            if kitchen.baked:
                break
        begun = [*kitchen.baked]
        if is_run:
            assert rt.runs.display_status(rt.runs.find("b")) == "running (interrupted)"
        else:
            assert chat.say("stop").text == "ok"
        assert kitchen.baked == begun
        if not is_run:  # a run has the events that were recorded before
            with pytest.raises(StopIteration):
                next(stream)


def test_an_abort_is_sent_once(tmp_path: Path):
    async def scenario() -> None:
        kitchen = Kitchen(tmp_path, "full")
        async with kitchen.rt as rt, rt.chat("baker") as chat:
            async for _ in chat.stream("go"):
                if kitchen.baked:
                    chat.abort("first")
                    chat.abort("second")
                    break
            assert (await chat.say("stop")).text == "ok"
            kinds = [event.kind for event in rt.runs.events(chat.run_id)]
            assert kinds.count("turn_aborted") == 1
            assert "message_refused" not in kinds

    asyncio.run(scenario())


def test_closing_a_stream_that_was_left_waits_for_its_end(tmp_path: Path):
    async def scenario() -> None:
        kitchen = Kitchen(tmp_path, "full")
        async with kitchen.rt as rt:
            stream = kitchen.oven.options(run_id="b")("go")
            await by_break(stream, lambda: bool(kitchen.baked))
            await asyncio.gather(stream.aclose(), stream.aclose())
            assert not rt.services.journal.is_claimed("b")

    asyncio.run(scenario())


def test_leaving_the_stream_of_a_model_closes_it():
    closed = asyncio.Event()

    class Endless(OpenAICompatible):
        async def _chunks(self, *_: Any) -> Any:
            try:
                while True:
                    yield "piece"
            finally:
                closed.set()

    async def scenario() -> None:
        stream = Endless("any").chat_stream([])
        async for _ in stream:
            break
        await closed.wait()

    asyncio.run(scenario())
