"""Callers that attach to a run in progress: they get its events, and the run ends with the last of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, llm_chat
from reyn.errors import RunBusy, RunIdTaken
from reyn.functions import tool
from reyn.journal import Event, MemoryJournal
from reyn.models import ModelAnswer, ToolCall
from tests.support import act, finish, go, write_skill


class Script:
    """Answers by phase; each answer waits until `go` is set."""

    name, answer_form, takes_time = "script", "full", True

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def complete(self, request: Any) -> ModelAnswer:
        self.asked.set()
        await self.go.wait()
        text = "\n".join(message.text for message in request.messages)
        call = act({"kind": "run_skill", "skill": "lower", "input": {"text": "x"}})
        outer = finish("end") if "from below" in text else call
        return ModelAnswer(
            json.dumps({"outer": outer, "lower": go("last"), "last": finish("from below")}[request.phase])
        )


def open_project(root: Path, script: Script, journal: Any = None) -> OSRuntime:
    write_skill(root, "upper", {"outer": ["end"]}, ops={"outer": "run_skill"})
    write_skill(root, "lower", {"lower": ["last"], "last": ["end"]})
    return OSRuntime.open(root, model=script, journal=journal, trust=True)


IN = {"text": "in"}


async def stream_of(rt: OSRuntime, events: list[Event]) -> Any:
    stream = rt.stream("upper", IN, run_id="u")
    events.extend([event async for event in stream])
    return stream.result


@pytest.mark.parametrize("place", ["same runtime", "derived", "other runtime"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_caller_that_attaches_gets_all_events_of_the_run_and_of_its_sub_runs(tmp_path: Path, place: str, after: int):
    async def scenario() -> None:
        script, first = Script(), list[Event]()
        async with open_project(tmp_path, script) as rt, open_project(tmp_path, script) as second:
            other = {"same runtime": rt, "derived": rt.derive(strict=True), "other runtime": second}[place]
            running = asyncio.create_task(rt.run("upper", IN, run_id="u", listener=first.append))
            await script.asked.wait()
            heard, streamed = list[Event](), list[Event]()
            more = [
                asyncio.create_task(other.run("upper", IN, run_id="u", listener=heard.append)),
                asyncio.create_task(stream_of(other, streamed)),
            ]
            while after and not heard:  # noqa: ASYNC110 - nothing else reports it
                await asyncio.sleep(0)
            script.go.set()
            assert [result.status for result in await asyncio.gather(running, *more)] == ["finished"] * 3
            assert {event.run_id for event in first} > {"u"}
            assert heard == streamed == first

    asyncio.run(scenario())


def test_a_listener_that_fails_while_it_follows_a_run_is_dropped(tmp_path: Path):
    def fail(_: Event) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        script = Script()
        async with open_project(tmp_path, script, MemoryJournal()) as rt:
            running = asyncio.create_task(rt.run("upper", IN, run_id="u"))
            await script.asked.wait()
            attached = asyncio.create_task(rt.run("upper", IN, run_id="u", listener=fail))
            script.go.set()
            assert (await running).warnings == ()
            assert [warning.partition(" and ")[0] for warning in (await attached).warnings] == ["the listener failed"]

    asyncio.run(scenario())


async def run(rt: OSRuntime) -> Any:
    return await rt.run("upper", IN, run_id="u")


async def resume(rt: OSRuntime) -> Any:
    return await rt.resume("u")


async def stream(rt: OSRuntime) -> Any:
    return await stream_of(rt, [])


@pytest.mark.parametrize("first", [run, resume, stream])
@pytest.mark.parametrize("second", [run, stream])
@pytest.mark.parametrize("is_derived", [False, True])
def test_a_run_goes_on_for_those_who_wait_when_its_first_caller_leaves(
    tmp_path: Path, first: Callable[..., Any], second: Callable[..., Any], is_derived: bool
):
    async def scenario() -> None:
        script = Script()
        async with open_project(tmp_path, script, MemoryJournal()) as rt:
            if first is resume:
                begun = asyncio.create_task(run(rt))
                await script.asked.wait()
                begun.cancel()
                await asyncio.wait([begun])
                script.asked.clear()
            leaving = asyncio.create_task(first(rt))
            await script.asked.wait()
            staying = asyncio.create_task(second(rt.derive() if is_derived else rt))
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.wait([leaving])
            await asyncio.sleep(0)
            script.go.set()
            assert (await staying).ok
            kinds = [event.kind for event in rt.runs.events("u")]
            assert kinds.count("run_resumed") == (first is resume)

    asyncio.run(scenario())


def test_a_reply_goes_on_for_those_who_wait_when_its_first_reader_leaves(tmp_path: Path):
    done: list[str] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="unsafe", permission=None)
    async def post(letter: str) -> str:
        """Post a letter."""
        begun.set()
        await go_on.wait()
        done.append(letter)
        return "posted"

    class Clerk:
        name, answer_form = "clerk", "tools"

        async def complete(self, request: Any) -> ModelAnswer:
            if request.messages[-1].role == "tool":
                return ModelAnswer("It is posted.")
            return ModelAnswer("", tool_calls=(ToolCall("c", "post", '{"letter": "l"}'),))

    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, model=Clerk(), journal=MemoryJournal()) as rt:

            @llm_chat(runtime=rt, toolkit=[post])
            async def clerk(message: str) -> None:
                """Post letters."""

            call = clerk.options(run_id="c")

            async def leave() -> None:
                async for _ in held:
                    await begun.wait()
                    await ready.wait()
                    break

            held, ready = call("post it"), asyncio.Event()
            leaving = asyncio.create_task(leave())
            await begun.wait()
            staying = asyncio.create_task(rest(call("post it")))
            await asyncio.sleep(0)
            ready.set()
            await leaving
            await held.aclose()
            assert not done
            go_on.set()
            items = await staying
            assert (items[-1].status, items[-1].text, done) == ("replied", "It is posted.", ["l"])
            assert [type(item).__name__ for item in items] == ["OpRequested", "OpFinished", "ReplyDelta", "ChatReply"]

    asyncio.run(scenario())


async def rest(stream: Any) -> list[Any]:
    return [item async for item in stream]


@pytest.mark.parametrize("place", ["same runtime", "derived", "other runtime"])
def test_resuming_a_run_that_this_process_executes_says_so(tmp_path: Path, place: str):
    async def scenario() -> None:
        script = Script()
        async with open_project(tmp_path, script) as rt, open_project(tmp_path, script) as second:
            other = {"same runtime": rt, "derived": rt.derive(), "other runtime": second}[place]
            running = asyncio.create_task(run(rt))
            await script.asked.wait()
            with pytest.raises(RunBusy, match="executed by another call in this process"):
                await other.resume("u")
            script.go.set()
            assert (await running).ok
            assert (await other.resume("u")).ok

    asyncio.run(scenario())


@pytest.mark.parametrize("wait", [True, False])
def test_another_input_is_an_error_also_while_the_run_is_executed(tmp_path: Path, wait: bool):
    async def scenario() -> None:
        script = Script()
        async with open_project(tmp_path, script, MemoryJournal()) as rt:
            running = asyncio.create_task(run(rt))
            await script.asked.wait()
            other = asyncio.create_task(rt.run("upper", {"text": "other"}, run_id="u", wait=wait))
            if wait:
                await asyncio.sleep(0)
                script.go.set()
            with pytest.raises(RunIdTaken):
                await other
            script.go.set()
            assert (await running).ok

    asyncio.run(scenario())
