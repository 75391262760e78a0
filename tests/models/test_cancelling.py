"""Cancellation at critical moments and during calls of a fallback model."""

from __future__ import annotations

import asyncio
import threading

import pytest
import yaml

from reyn.journal.sqlite import SqliteJournal
from reyn.kernel.world.cancellation import Cancellation
from tests.models.calling import IN, ONE, TIMEOUT_SECONDS, Caller, until
from tests.models.fake_server import FakeServer, silence, status

pytestmark = pytest.mark.sockets


def test_cancelling_stops_a_call_of_a_fallback_model(far: Caller, server: FakeServer):
    """The first model is instant, its fallback is not."""
    (far.root / "nothing.jsonl").write_text("")
    config = yaml.safe_load((far.root / "reyn.yaml").read_text())
    config["models"]["first"] = {"model": "scripted:nothing.jsonl", "fallback": ["far"]}
    (far.root / "reyn.yaml").write_text(yaml.safe_dump(config | {"model": "first"}))
    server.then(silence)

    async def main():
        async with far.runtime() as rt:
            running = asyncio.ensure_future(rt.run(ONE, IN, run_id="k"))
            await until(lambda: server.requests)
            rt.cancel("k")
            assert (await asyncio.wait_for(running, TIMEOUT_SECONDS)).status == "cancelled"

    asyncio.run(main())


def test_cancelling_while_a_retry_is_being_committed(far: Caller, server: FakeServer, monkeypatch: pytest.MonkeyPatch):
    """Concurrent runs share commits, so a flush can be interrupted and still reach the disk."""
    append, is_cancelled = SqliteJournal.append_many, Cancellation.is_requested
    is_committing, is_cancellation_seen = threading.Event(), threading.Event()

    def append_once_cancelled(journal, batches):
        if any(event.kind == "model_retried" for batch in batches for event in batch.events):
            is_committing.set()
            assert is_cancellation_seen.wait(TIMEOUT_SECONDS)
        return append(journal, batches)

    def notice(world, state):
        result = is_cancelled(world, state)
        if result:
            is_cancellation_seen.set()
        return result

    monkeypatch.setattr(SqliteJournal, "append_many", append_once_cancelled)
    monkeypatch.setattr(Cancellation, "is_requested", notice)
    server.then(silence, status(503), silence)

    async def main():
        async with far.runtime() as rt:
            other = asyncio.ensure_future(rt.run(ONE, IN, run_id="other"))
            await until(lambda: len(server.requests) == 1)
            running = asyncio.ensure_future(rt.run(ONE, IN, run_id="k"))
            await until(is_committing.is_set)
            rt.cancel("k")
            assert (await running).status == "cancelled"
            other.cancel()

    asyncio.run(main())
    assert far.codes() == ["RYN506"]
