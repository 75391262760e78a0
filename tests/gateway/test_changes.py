"""The feed of changes: from the commit of an event to all pages, whichever process committed it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from reyn.gateway import changes
from reyn.gateway.changes import ChangeFeed, DeltaArrived, FeedReader, RunChanged
from reyn.models import Delta
from tests.gateway.support import QUESTION, ended, run_async, serving
from tests.support import finish, go


async def until(reader: FeedReader, run: str, seq: int) -> list[RunChanged]:
    """Return the notes about runs until the feed has an event of one of them."""
    found: list[RunChanged] = []
    async for arrived in reader.read():
        found += [one for one in arrived if isinstance(one, RunChanged)]
        if any(one.run_id == run and one.seq >= seq for one in found):
            return found
    raise AssertionError("the feed has ended")


def test_events_of_this_process_arrive_without_a_look_at_the_journal(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(changes, "LOOK_SECONDS", 10_000)
    monkeypatch.setattr(ChangeFeed, "look", lambda _: None)

    async def work() -> None:
        async with (
            serving(tmp_path, [go("second"), finish("x")]) as served,
            served.http(served.token()) as http,
            served.site.changes.reading() as reader,
        ):
            await http.post("/api/runs", json={"skill": "pair", "input": {"text": "in"}, "run_id": "k"})
            last = (await ended(http, "k"))["run"]["seq"]
            numbers = [one.seq for one in await until(reader, "k", last)]
            assert numbers == sorted(set(numbers))

    run_async(work)


def test_events_of_another_process_arrive_and_what_is_known_does_not(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, [QUESTION, go("second"), finish("x")]) as served:
            runtime = served.site.runtime
            await runtime.run("asker", {"text": "in"}, run_id="before")
            async with served.site.changes.reading() as reader:
                await runtime.run("pair", {"text": "in"}, run_id="k")
                served.site.changes.look()
                found = await until(reader, "k", runtime.runs.find("k").seq)
                assert {one.run_id for one in found} == {"k"}

    run_async(work)


def test_a_reader_that_reads_nothing_is_ended_and_misses_deltas_first(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, []) as served, served.site.changes.reading() as reader:
            feed = served.site.changes
            for _ in range(2 * changes._MAX_QUEUED):
                feed.publish_delta("k", Delta("k", "call", "text"))
            for number in range(3):
                feed.publish_item("k", {"n": number})
            async with asyncio.timeout(60):
                found = [change async for arrived in reader.read() for change in arrived]
            assert len(found) == changes._MAX_QUEUED
            assert all(isinstance(one, DeltaArrived) for one in found)

    run_async(work)
