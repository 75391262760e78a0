"""Watching a run: its events from any sequence number, whichever process executes it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn import OSRuntime, SyncRuntime
from reyn.errors import RunNotFound
from reyn.journal import Event, MemoryJournal
from reyn.kernel.world.watchers import Watcher
from reyn.models import ModelAnswer
from tests.runtime.test_attached import IN, Script, open_project
from tests.support import question, two_phases, write_skill


async def listed(events: Any) -> list[Event]:
    return [event async for event in events]


def ask_then_finish(root: Path) -> list[Any]:
    write_skill(root, "asking", {"ask": ["end"]}, ops={"ask": "ask_user"})
    from tests.support import act, finish

    return [act(question("which?")), finish("done")]


def open_asking(root: Path, journal: Any = None) -> OSRuntime:
    from reyn.testing import ScriptedModel

    return OSRuntime.open(root, model=ScriptedModel(ask_then_finish(root)), journal=journal, trust=True)


@pytest.mark.parametrize("place", ["same runtime", "derived", "other runtime"])
def test_a_watch_yields_every_event_from_a_number_on_and_ends_with_the_run(tmp_path: Path, place: str):
    async def scenario() -> None:
        script, first = Script(), list[Event]()
        async with open_project(tmp_path, script) as rt, open_project(tmp_path, script) as second:
            other = {"same runtime": rt, "derived": rt.derive(strict=True), "other runtime": second}[place]
            running = asyncio.create_task(rt.run("upper", IN, run_id="u", listener=first.append))
            await script.asked.wait()
            watches = [
                listed(other.runs.watch("u", with_children=True)),
                listed(other.runs.watch("u")),
                listed(other.runs.watch("u", 3)),
                listed(other.runs.watch("u", follow=True)),
                listed(other.runs.watch("u", 10**9)),
            ]
            tasks = [asyncio.create_task(one) for one in watches]
            script.go.set()
            await running
            everything, own, rest, followed, nothing = await asyncio.gather(*tasks)
            assert everything == first
            assert own == followed == [event for event in first if event.run_id == "u"]
            assert rest == own[3:]
            assert nothing == []

    asyncio.run(scenario())


def test_a_watch_of_children_from_a_number_on_repeats_none_that_have_ended(tmp_path: Path):
    async def scenario() -> None:
        script, first = Script(), list[Event]()
        script.go.set()
        async with open_project(tmp_path, script, MemoryJournal()) as rt:
            await rt.run("upper", IN, run_id="u", listener=first.append)
            own = [event for event in first if event.run_id == "u"]
            for event in own:
                found = await listed(rt.runs.watch("u", event.seq, with_children=True))
                place = first.index(event)
                in_progress = {one.run_id for one in first[:place]} & {one.run_id for one in first[place:]}
                assert found == [one for at, one in enumerate(first) if at > place or one.run_id in in_progress - {"u"}]

    asyncio.run(scenario())


def test_a_watch_ends_where_a_run_waits_and_with_follow_goes_on(tmp_path: Path):
    async def scenario() -> None:
        journal = MemoryJournal()
        async with open_asking(tmp_path, journal) as rt:
            stopped = await rt.run("asking", IN, run_id="r")
            assert stopped.status == "waiting"
            assert (await listed(rt.runs.watch("r")))[-1].kind == "wait_opened"
            following = asyncio.create_task(listed(rt.runs.watch("r", follow=True)))
            assert stopped.question is not None
            await rt.resume_answered(rt.answer("r", stopped.question.id, "this"))
            assert [event.seq for event in await following] == [event.seq for event in rt.runs.events("r")]
            assert (await listed(rt.runs.watch("r", follow=True)))[-1].kind == "skill_completed"

    asyncio.run(scenario())


def test_leaving_a_watch_leaves_the_run_alone(tmp_path: Path):
    async def scenario() -> None:
        script = Script()
        async with open_project(tmp_path, script, MemoryJournal()) as rt:
            running = asyncio.create_task(rt.run("upper", IN, run_id="u"))
            await script.asked.wait()
            async for _ in rt.runs.watch("u"):
                break
            watch = rt.runs.watch("u", follow=True)
            await anext(watch)
            await watch.aclose()
            script.go.set()
            assert (await running).status == "finished"

    asyncio.run(scenario())


class Streaming(Script):
    async def complete(self, request: Any) -> ModelAnswer:
        answer = await super().complete(request)
        if request.on_delta is not None:
            request.on_delta(answer.text[:5])
            request.on_delta(answer.text[5:])
        return answer


def test_a_watch_in_the_process_of_the_run_gets_deltas_from_the_next_call_on(tmp_path: Path):
    async def scenario() -> None:
        script = Streaming()
        async with open_project(tmp_path, script, MemoryJournal()) as rt:
            running = asyncio.create_task(rt.run("upper", IN, run_id="u"))
            await script.asked.wait()
            own, everything, failed = list[str](), list[str](), list[str]()

            def fail(delta: Any) -> None:
                failed.append(delta.text)
                raise ZeroDivisionError

            watches = [
                asyncio.create_task(listed(rt.runs.watch("u", on_delta=lambda delta: own.append(delta.run_id)))),
                asyncio.create_task(
                    listed(
                        rt.runs.watch("u", with_children=True, on_delta=lambda delta: everything.append(delta.run_id))
                    )
                ),
                asyncio.create_task(listed(rt.runs.watch("u", with_children=True, on_delta=fail))),
            ]
            await asyncio.sleep(0)
            script.go.set()
            await asyncio.gather(running, *watches)
            assert set(own) == {"u"}
            assert {"u"} < set(everything)
            assert everything.count("u") == len(own)
            assert len(failed) == 1

    asyncio.run(scenario())


def test_a_run_that_is_deleted_while_it_is_watched_is_not_found(tmp_path: Path):
    async def scenario() -> None:
        async with open_asking(tmp_path, MemoryJournal()) as rt:
            await rt.run("asking", IN, run_id="r")
            watch = rt.runs.watch("r", follow=True)
            await anext(watch)
            rt.runs.delete(["r"])
            with pytest.raises(RunNotFound, match="was deleted"):
                await listed(watch)
            with pytest.raises(RunNotFound):
                rt.runs.watch("r")

    asyncio.run(scenario())


_RUN = """
import sys
from reyn import SyncRuntime
with SyncRuntime.open(sys.argv[1], model="scripted:" + sys.argv[2]) as rt:
    def hold(event):
        if event.kind == "run_started":
            print("started", flush=True)
            sys.stdin.readline()
    print(rt.run("pair", {"text": "in"}, run_id="b", listener=hold).status)
"""


def test_a_synchronous_watch_follows_a_run_of_another_process(tmp_path: Path):
    from tests.cli.support import write_answers
    from tests.support import finish, go

    two_phases(tmp_path)
    write_answers(tmp_path, go("second"), finish("done"))
    with SyncRuntime.open(tmp_path, trust=True, model=f"scripted:{tmp_path}/answers.jsonl") as rt:
        rt.run("pair", {"text": "in"}, run_id="a")  # the journal exists, and is trusted
        with subprocess.Popen(
            [sys.executable, "-c", _RUN, str(tmp_path), str(tmp_path / "answers.jsonl")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            assert other.stdout.readline() == "started\n"
            watch = rt.runs.watch("b")
            events = [next(watch)]
            print(file=other.stdin, flush=True)
            events += list(watch)
            assert events[-1].kind == "skill_completed"
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert other.stdout.read() == "finished\n"


@given(first=st.integers(1, 9), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5), after=st.integers(0, 30))
def test_a_reader_takes_what_was_committed_here_whatever_it_has_read_meanwhile(
    first: int, sizes: list[int], after: int
):
    """From the journal: so no event is read twice, and none is missing."""

    async def scenario() -> None:
        watcher, seq = Watcher(None, has_children=False), first
        for size in sizes:
            watcher.wake("u", [Event(seq + n, "u", 0, "k", 1, b"{}", "", "") for n in range(size)])
            seq += size
        expected = range(after + 1, seq) if after + 1 >= first else range(0)
        assert [event.seq for event in watcher.take("u", after)] == list(expected)
        assert watcher.take("u", after) == []

    asyncio.run(scenario())
