"""Workers on PostgreSQL: the conformance suite of dispatchers, and a run from one project folder to another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reyn import OSRuntime
from reyn.engines import Dispatcher, Outbox
from reyn.journal import Journal
from reyn.journal.postgres.address import JournalAddress
from reyn.journal.postgres.journal import PostgresJournal
from reyn.journal.wakes import microseconds
from reyn.journal.workers import WorkerReport
from reyn.runtime.workers import is_lost
from reyn.testing import DispatcherConformance, ScriptedModel
from tests.postgres.server import Server
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
