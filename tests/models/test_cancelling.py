"""A run that is cancelled at the wrong moment, or while another model than its own is at work."""

from __future__ import annotations

import asyncio
import threading

import pytest
import yaml

from reyn.journal.sqlite import SqliteJournal
from reyn.kernel.live import LiveWorld
from tests.models.calling import HANGS, IN, ONE, Caller, until
from tests.models.fake_server import FakeServer, silence, status

pytestmark = pytest.mark.sockets


def test_a_model_that_took_over_is_left_too(far: Caller, server: FakeServer):
    """The run's own model takes no time; the one in its place does."""
    (far.root / "nothing.jsonl").write_text("")
    written = yaml.safe_load((far.root / "reyn.yaml").read_text())
    written["models"]["first"] = {"model": "scripted:nothing.jsonl", "fallback": ["far"]}
    (far.root / "reyn.yaml").write_text(yaml.safe_dump(written | {"model": "first"}))
    server.then(silence)

    async def main():
        async with far.runtime() as rt:
            running = asyncio.ensure_future(rt.run(ONE, IN, run_id="k"))
            await until(lambda: server.asked)
            rt.cancel("k")
            assert (await asyncio.wait_for(running, HANGS)).status == "cancelled"

    asyncio.run(main())


def test_a_run_is_cancelled_while_a_retry_is_on_its_way_to_the_disk(
    far: Caller, server: FakeServer, monkeypatch: pytest.MonkeyPatch
):
    """With another run beside it commits are shared, and a flush can be interrupted that lands all the same."""
    append, is_cancelled = SqliteJournal.append_many, LiveWorld._is_cancelled
    is_on_its_way, is_noticed = threading.Event(), threading.Event()

    def append_once_cancelled(journal, batches):
        if any(event.kind == "model_retried" for batch in batches for event in batch.events):
            is_on_its_way.set()
            assert is_noticed.wait(HANGS)
        return append(journal, batches)

    def notice(world, state):
        result = is_cancelled(world, state)
        if result:
            is_noticed.set()
        return result

    monkeypatch.setattr(SqliteJournal, "append_many", append_once_cancelled)
    monkeypatch.setattr(LiveWorld, "_is_cancelled", notice)
    server.then(silence, status(503), silence)

    async def main():
        async with far.runtime() as rt:
            other = asyncio.ensure_future(rt.run(ONE, IN, run_id="other"))
            await until(lambda: len(server.asked) == 1)
            running = asyncio.ensure_future(rt.run(ONE, IN, run_id="k"))
            await until(is_on_its_way.is_set)
            rt.cancel("k")
            assert (await running).status == "cancelled"
            other.cancel()

    asyncio.run(main())
    assert far.codes() == ["RYN506"]
