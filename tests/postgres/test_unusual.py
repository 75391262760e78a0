"""What is unusual and no fault: other rules, other clocks, large content, two projects, a lease shorter than usual."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.engines import Outbox, Serving, open_engine
from reyn.engines.absurd import Absurd
from reyn.journal import Blob, Cancel, Wake
from reyn.journal.postgres import link
from reyn.journal.postgres.address import JournalAddress
from reyn.journal.postgres.journal import PostgresJournal
from reyn.kernel import versions
from reyn.testing import ScriptedModel, SteppingClock
from reyn.testing.fixtures import NOTE, events_after, run_started
from tests.postgres.server import Server, database_of
from tests.support import finish, go, two_phases

pytestmark = pytest.mark.sockets

IN = {"text": "in"}
HOUR = 3_600_000_000


def open_folder(folder: Path, address: JournalAddress, **options: Any) -> OSRuntime:
    folder.mkdir(exist_ok=True)
    two_phases(folder)
    model = ScriptedModel([go("second"), finish("done")])
    return OSRuntime.open(folder, model=model, journal=PostgresJournal(address), trust=True, **options)


async def work(rt: OSRuntime) -> Serving:
    serving = Serving(queues=("default",), is_once=True)
    await rt.workers.serve(serving=serving, dispatcher=Outbox(rt.services.journal))
    return serving


def test_a_worker_with_other_rules_leaves_a_run_to_those_that_have_its_rules(
    tmp_path: Path, address: JournalAddress, monkeypatch: pytest.MonkeyPatch
):
    async def scenario() -> None:
        async with open_folder(tmp_path / "one", address) as rt:
            rt.submit("pair", IN, run_id="a")
            before = rt.runs.find("a").seq
            with monkeypatch.context() as other:
                other.setattr(versions, "SUPPORTED_RULES", frozenset({999}))
                serving = await work(rt)
                assert serving.refusals["a"].startswith("RYN411: run `a` follows rules")
                assert rt.runs.find("a").seq == before
            rt.services.journal.hold_wakes([one.seq for one in rt.services.journal.wakes()], 0)
            await work(rt)
            assert rt.runs.find("a").status == "finished"

    asyncio.run(scenario())


@pytest.mark.parametrize("hours", [-1, 1])
def test_machines_whose_clocks_differ_by_an_hour_execute_a_run(tmp_path: Path, address: JournalAddress, hours: int):
    async def scenario() -> None:
        now = SteppingClock().now()
        clocks = [SteppingClock(now + offset) for offset in (0, hours * HOUR)]
        async with (
            open_folder(tmp_path / "one", address, clock=clocks[0]) as submitting,
            open_folder(tmp_path / "two", address, clock=clocks[1]) as working,
        ):
            submitting.submit("pair", IN, run_id="a")
            await work(working)
            assert submitting.runs.find("a").status == "finished"
            times = [event.ts for event in submitting.runs.events("a")]
            assert times == sorted(times)
            submitting.runs.verify("a")

    asyncio.run(scenario())


@pytest.mark.parametrize("hours", [-1, 1])
def test_how_long_a_wake_is_held_does_not_depend_on_the_clock_of_a_machine(
    address: JournalAddress, monkeypatch: pytest.MonkeyPatch, hours: int
):
    with closing(PostgresJournal(address)) as journal:
        journal.post("a", Cancel(), [Wake("a", queue="default"), Wake("b", queue="default")])
        journal.take_wakes(["default"], 1, 600)
        shifted = 2**50 + hours * HOUR
        monkeypatch.setattr("reyn.journal.postgres.journal.microseconds", lambda: shifted)
        held, free = journal.first_wakes("default", 9)
        assert 0 < held.held_until - shifted <= 600_000_000
        assert free.held_until == 0


def test_content_of_64_mb_is_stored_and_read(address: JournalAddress):
    content = b"0123456789abcdef" * 4_000_000
    blob = Blob.of(content)
    with closing(PostgresJournal(address)) as journal:
        journal.append("a", 0, events_after("a", [run_started("a")]), [NOTE, blob])
        assert journal.blob(blob.hash) == content


def test_two_projects_of_one_database_share_nothing(server: Server, tmp_path: Path):
    async def scenario() -> None:
        with server.database() as first:
            second = JournalAddress(f"{server.url(database_of(first))}&schema=second", "tests")
            async with open_folder(tmp_path / "one", first) as one, open_folder(tmp_path / "two", second) as two:
                one.submit("pair", IN, run_id="a")
                two.submit("pair", IN, run_id="a")
                await work(one)
                assert one.runs.find("a").status == "finished"
                assert two.runs.display_status(two.runs.find("a")) == "queued"
                assert [run.run_id for run in two.workers.queued()] == ["a"]

    asyncio.run(scenario())


@pytest.mark.parametrize(("lease", "held"), [(2, 2), (30, 5)])
def test_a_wake_is_held_no_longer_than_a_claim(server: Server, lease: int, held: float):
    with server.database(lease=lease) as address, closing(PostgresJournal(address)) as journal:
        engine = open_engine("", journal, "tests", str)
        assert isinstance(engine, Absurd)
        outbox = open_engine("outbox", journal, "tests", str)
        assert isinstance(outbox, Outbox)
        assert engine.lease == outbox.lease == held


def test_a_free_claim_is_taken_in_one_round_trip(address: JournalAddress, monkeypatch: pytest.MonkeyPatch):
    with closing(PostgresJournal(address)) as journal, closing(PostgresJournal(address)) as other:
        journal.append("a", 0, events_after("a", [run_started("a")]), [NOTE])
        with journal.claim("warm"):
            pass
        statements = []
        monkeypatch.setattr(
            "reyn.journal.postgres.leases.fetch", lambda *given: statements.append(given[1]) or link.fetch(*given)
        )
        with journal.claim("a"):
            taken = [one for one in statements if "claims" in one and "JOIN" not in one]
            assert len([one for one in taken if "INSERT INTO claims" in one]) == 1
            assert not [one for one in statements if "FOR UPDATE" in one]
            assert other.is_claimed("a")
        assert not other.is_claimed("a")
