"""Workers on PostgreSQL: the conformance suite of dispatchers, and a run from one project folder to another."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.engines import Dispatcher, Outbox, Serving, open_engine, start_engine
from reyn.engines.absurd import Absurd
from reyn.errors import AppendConflict, EngineUnavailable
from reyn.journal import Journal, Wake
from reyn.journal.postgres.address import JournalAddress
from reyn.journal.postgres.journal import PostgresJournal
from reyn.journal.wakes import microseconds
from reyn.journal.workers import WorkerReport
from reyn.runtime.workers import is_lost
from reyn.testing import DispatcherConformance, ScriptedModel
from reyn.testing.journal_suite import begin
from tests.kernel.test_fan_out import write_report
from tests.postgres.server import Server, database_of
from tests.runtime.test_submitted_branches import EACH, Together, share_branches
from tests.support import finish, go, two_phases

pytestmark = pytest.mark.sockets


class TestOutboxOfPostgres(DispatcherConformance):
    @pytest.fixture(autouse=True)
    def _new_database(self, server: Server) -> Iterator[None]:
        with server.database() as self._address:
            yield

    def make_journal(self, folder: Path) -> Journal:
        return PostgresJournal(self._address)

    def make_dispatcher(self, journal: Journal) -> Dispatcher:
        return Outbox(journal, lease=0.5)


class TestAbsurd(TestOutboxOfPostgres):
    @pytest.fixture(autouse=True)
    def _with_server(self, server: Server) -> None:
        self._execute = partial(server.execute, database=database_of(self._address))

    def make_dispatcher(self, journal: Journal) -> Dispatcher:
        return Absurd(journal, lease=1)

    def lose_wakes(self, journal: Journal) -> None:
        tasks = [name for (name,) in self._execute("SELECT queue_name FROM absurd.queues")]
        assert tasks
        for name in tasks:
            assert len(self._execute(f"DELETE FROM absurd.\"t_{name}\" WHERE state = 'pending' RETURNING 1")) == 2
            self._execute(f'DELETE FROM absurd."r_{name}"')
        super().lose_wakes(journal)


def test_a_wake_is_spawned_in_the_transaction_that_stores_it(server: Server, address: JournalAddress):
    journal = PostgresJournal(address)
    execute = partial(server.execute, database=database_of(address))

    def tasks() -> list[str]:
        names = [name for (name,) in execute("SELECT queue_name FROM absurd.queues ORDER BY queue_name")]
        return [row for name in names for (row,) in execute(f'SELECT idempotency_key FROM absurd."t_{name}"')]

    with closing(journal):
        begin(journal, "a")
        Absurd(journal).install(["default"])
        with pytest.raises(AppendConflict):
            journal.append("a", 9, [], [], [Wake("a", queue="default")])
        assert tasks() == []
        journal.append("a", 1, [], [], [Wake("a", queue="default")])
        journal.append("a", 1, [], [], [Wake("a", queue="other")])
        held, left = journal.wakes()
        assert tasks() == [f"a:{held.seq}"]
        assert held.held_until > 0 == left.held_until
        execute("DROP SCHEMA absurd CASCADE")
        journal.append("a", 1, [], [], [Wake("a", queue="default")])
        assert journal.wakes()[2].held_until == 0


def test_absurd_delivers_levels_of_priority_in_order(address: JournalAddress):
    async def scenario() -> None:
        order: list[str] = []

        async def drive(run_id: str) -> None:
            order.append(run_id)

        with closing(PostgresJournal(address)) as journal:
            for name, priority in {"low": -5, "last": -900, "usual": 0, "high": 7, "first": 500}.items():
                begin(journal, name)
                journal.append(name, 1, [], [], [Wake(name, queue="default", priority=priority)])
            serving = Serving(queues=("default",), concurrency=1, is_once=True)
            await Absurd(journal).serve(drive, serving)
        assert order == ["first", "high", "usual", "low", "last"]

    asyncio.run(scenario())


async def _unexpected(run_id: str) -> None:
    raise AssertionError(f"{run_id} is delivered")


@pytest.mark.parametrize(
    "statement",
    ["DROP SCHEMA absurd CASCADE", 'DROP TABLE absurd."t_reyn.default.3" CASCADE', "DELETE FROM absurd.queues"],
)
def test_a_worker_installs_absurd_again_if_it_is_removed_while_it_serves(
    server: Server, address: JournalAddress, statement: str
):
    async def scenario() -> None:
        driven: list[str] = []
        serving = Serving(queues=("default",), concurrency=2)

        async def drive(run_id: str) -> None:
            driven.append(run_id)
            if driven == ["a"]:  # its task is lost, and another one comes
                await asyncio.to_thread(server.execute, statement, database=database_of(address))
                journal.append("b", 1, [], [], [Wake("b", queue="default")])
            elif "b" in driven:
                serving.stop.set()

        with closing(PostgresJournal(address)) as journal:
            begin(journal, "a")
            begin(journal, "b")
            Absurd(journal).install(["default"])
            journal.append("a", 1, [], [], [Wake("a", queue="default")])
            async with asyncio.timeout(60):
                await Absurd(journal, lease=1).serve(drive, serving)
            assert {*driven} == {"a", "b"}

    asyncio.run(scenario())


def test_an_absurd_that_lacks_a_function_is_an_error_that_names_it(server: Server, address: JournalAddress):
    with closing(PostgresJournal(address)) as journal:
        Absurd(journal).install(["default"])
        server.execute("DROP FUNCTION absurd.claim_task CASCADE", database=database_of(address))
        with pytest.raises(EngineUnavailable, match=r"is damaged: function absurd\.claim_task") as caught:
            asyncio.run(Absurd(journal).serve(_unexpected, Serving(queues=("default",), concurrency=1)))
        assert "no wake is lost" in caught.value.hint


def test_another_engine_takes_over_what_absurd_has(address: JournalAddress):
    async def scenario() -> None:
        driven: list[str] = []

        async def drive(run_id: str) -> None:
            driven.append(run_id)

        with closing(PostgresJournal(address)) as journal:
            begin(journal, "a")
            begin(journal, "b")
            Absurd(journal).install(["default"])
            journal.append("a", 1, [], [], [Wake("a", queue="default")])
            outbox = start_engine("outbox", journal, "tests", str)
            journal.append("b", 1, [], [], [Wake("b", queue="default")])
            await outbox.serve(drive, Serving(queues=("default",), is_once=True))
            assert sorted(driven) == ["a", "b"]
            assert isinstance(open_engine("", journal, "tests", str), Absurd)

    asyncio.run(scenario())


def test_an_old_absurd_is_refused(server: Server, address: JournalAddress):
    server.execute("CREATE SCHEMA absurd", database=database_of(address))
    old = "CREATE FUNCTION absurd.get_schema_version() RETURNS text LANGUAGE sql AS $$ SELECT '0.4.0'::text $$"
    server.execute(old, database=database_of(address))
    with closing(PostgresJournal(address)) as journal, pytest.raises(EngineUnavailable, match=r"0\.4\.0"):
        Absurd(journal).install(["default"])


def test_without_the_extra_the_error_names_it(address: JournalAddress, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "absurdctl", None)
    with closing(PostgresJournal(address)) as journal, pytest.raises(EngineUnavailable) as caught:
        Absurd(journal).install(["default"])
    assert caught.value.hint == "pip install 'reyn[postgres]'"


def test_a_run_is_submitted_in_one_folder_and_executed_from_another(tmp_path: Path, address: JournalAddress):
    def open_folder(name: str) -> OSRuntime:
        (tmp_path / name).mkdir()
        model = ScriptedModel([go("second"), finish("done")])
        return OSRuntime.open(tmp_path / name, model=model, journal=PostgresJournal(address), trust=True)

    async def scenario() -> None:
        async with open_folder("one") as submitting, open_folder("two") as working:
            two_phases(tmp_path / "one")
            row = submitting.submit("pair", {"text": "in"}, run_id="a")
            assert submitting.workers.reason(row) == "no worker serves the queue `default`"
            watched = asyncio.create_task(_kinds(submitting))
            await working.workers.serve(once=True)
            assert (await watched)[-1] == "skill_completed"
            assert submitting.runs.result("a").status == "finished"

    asyncio.run(scenario())


@pytest.mark.parametrize("engine", [Absurd, Outbox])
def test_workers_in_two_folders_execute_the_branches_of_a_run(tmp_path: Path, address: JournalAddress, engine: Any):
    model = Together(2)

    def open_folder(name: str) -> OSRuntime:
        (tmp_path / name).mkdir()
        return OSRuntime.open(tmp_path / name, model=model, journal=PostgresJournal(address), trust=True)

    async def scenario() -> None:
        async with open_folder("one") as one, open_folder("two") as two:
            write_report(tmp_path / "one", EACH)
            await share_branches(one, two, (engine(one.services.journal), engine(two.services.journal)))
            assert (await one.runs.replay("k")).events == one.runs.find("k").seq

    asyncio.run(scenario())


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_worker_is_alive_for_a_machine_whose_clock_differs(
    hours: int, address: JournalAddress, monkeypatch: pytest.MonkeyPatch
):
    with closing(PostgresJournal(address)) as journal:
        now = microseconds() + hours * 3_600_000_000
        monkeypatch.setattr("reyn.journal.postgres.journal.microseconds", lambda: now)
        journal.report_worker(WorkerReport("w", "host", 1, ("default",), 1, now))
        [report] = journal.workers()
        assert not is_lost(report, now)


async def _kinds(runtime: OSRuntime) -> list[str]:
    return [event.kind async for event in runtime.runs.watch("a")]
