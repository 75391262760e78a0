"""Whole fan-outs against the small model of a join: every order of ends, failures, limits and needs."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reyn.journal import MemoryJournal
from reyn.models import ModelAnswer, ModelRequest
from reyn.runtime import OSRuntime
from reyn.testing import CountingIds, SteppingClock
from tests.kernel.test_fan_out import items, write_report
from tests.kernel.test_joins import NEEDS, ON_ERROR, expected
from tests.properties import examples
from tests.support import finish


class Racers:
    """A model that answers one waiting branch at a time, by priority. Some branches fail a number of times."""

    name, takes_time = "racers", True

    def __init__(self, priorities: list[int], failures: list[int]) -> None:
        self._priorities, self._failures = priorities, [*failures]
        self._waiting: dict[int, asyncio.Event] = {}
        self._releasing: asyncio.Task[None] | None = None
        self.most = 0

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if request.phase == "assemble":
            return ModelAnswer(json.dumps(finish("all")))
        branch = int(request.input["data"]["text"])
        event = self._waiting[branch] = asyncio.Event()
        self.most = max(self.most, len(self._waiting))
        self._releasing = self._releasing or asyncio.ensure_future(self._release())
        await event.wait()
        self._failures[branch] -= 1
        return ModelAnswer("no JSON" if self._failures[branch] >= 0 else json.dumps(finish(f"did {branch}")))

    async def _release(self) -> None:
        while self._waiting:
            for _ in range(20):  # others may begin meanwhile
                await asyncio.sleep(0)
            first = min(self._waiting, key=self._priorities.__getitem__)
            self._waiting.pop(first).set()
        self._releasing = None


async def race(root: Path, model: Racers, count: int) -> tuple[Any, list[Any]]:
    """Run the skill, replay it, and return its result and its events."""
    ports: dict[str, Any] = {"journal": MemoryJournal(), "ids": CountingIds(), "clock": SteppingClock()}
    async with OSRuntime.open(root, model=model, trust=True, max_phase_retries=0, **ports) as runtime:
        runtime.services.polling.busy_seconds = 0.001  # cancelled calls are left at once
        result = await runtime.run("report", items(*map(str, range(count))), run_id="k")
        await runtime.runs.replay("k")
        return result, [event async for event in runtime.runs.watch("k")]


@examples(40)
@given(
    st.integers(0, 5), NEEDS, ON_ERROR, st.permutations(range(5)), st.lists(st.integers(0, 3), min_size=5), st.data()
)
def test_a_fan_out_does_what_the_model_of_its_join_says(
    count: int, need: Any, on_error: str, priorities: list[int], failures: list[int], data: Any
):
    parallel = data.draw(st.integers(1, 5))
    node = (
        f"{{each: {{in: data.items, do: write, output: note, max_parallel: {parallel}}},"
        f" need: {need}, on_item_error: {on_error}, as: drafts}}"
    )
    model = Racers(priorities, failures)
    with tempfile.TemporaryDirectory() as folder:
        write_report(Path(folder), node)
        result, events = asyncio.run(race(Path(folder), model, count))
    started = [event.data["call"] for event in events if event.kind == "child_started"]
    ended = [event.data for event in events if event.kind == "child_ended"]
    assert sorted(started) == sorted(one["call"] for one in ended), "the end of every branch is an event"
    assert model.most <= parallel
    own = [one for one in ended if one.get("state") != "canceled"]
    ends = [(int(one["call"].split(".")[1].split("r")[0]) - 1, "artifact" in one) for one in own]
    verdict, done = expected(count, need, on_error, ends)
    [join] = [event.data for event in events if event.kind == "branches_joined"]
    assert join["verdict"] == verdict
    assert join["completed"] == len(done)
    used = next(n for n in range(len(ends) + 1) if expected(count, need, on_error, ends[:n])[0] == verdict)
    assert join["cancelled"] == len(ended) - used, "one that is not needed is cancelled, or ends before it notices"
    assert result.ok == (verdict == "met"), result.reason
    if result.ok:
        stored = [event.data["artifact"]["type"] for event in events if event.kind == "artifact_stored"]
        assert stored[0] == "drafts"
