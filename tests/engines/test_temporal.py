"""Temporal as the engine: the conformance suite on the development server, which starts without a network."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from reyn.engines import Dispatcher, Serving, open_engine
from reyn.engines.temporal import Temporal, TemporalAddress
from reyn.errors import EngineUnavailable
from reyn.journal import Journal, MemoryJournal, Wake
from reyn.testing import DispatcherConformance
from reyn.testing.journal_suite import begin
from tests.engines.temporal_server import development_server, free_port
from tests.kernel.test_fan_out import write_report
from tests.runtime.test_submitted_branches import EACH, Together, open_project, share_branches

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with development_server(free_port()) as started:
        yield started


class TestTemporal(DispatcherConformance):
    @pytest.fixture(autouse=True)
    def _with_server(self, address: str) -> None:
        self._address = address
        self._project = uuid4().hex

    def make_journal(self, folder: Path) -> Journal:
        return MemoryJournal()

    def make_dispatcher(self, journal: Journal) -> Dispatcher:
        return Temporal(journal, TemporalAddress(self._address), self._project, lease=1)

    def lose_wakes(self, journal: Journal) -> None:
        self._project = uuid4().hex  # for Temporal, another project
        super().lose_wakes(journal)


def test_wakes_wait_while_the_server_is_away_and_the_reason_is_reported():
    async def scenario() -> None:
        journal, serving, driven, port = MemoryJournal(), Serving(queues=("default",)), list[str](), free_port()
        begin(journal, "a")
        begin(journal, "b")

        async def drive(run_id: str) -> None:
            driven.append(run_id)

        with ExitStack() as running:
            address = await asyncio.to_thread(running.enter_context, development_server(port))
            worker = asyncio.create_task(Temporal(journal, TemporalAddress(address), "away").serve(drive, serving))
            journal.append("a", 1, [], [], [Wake("a", queue="default")])
            await _until(lambda: driven == ["a"])
        journal.append("b", 1, [], [], [Wake("b", queue="default")])
        await _until(lambda: serving.refusals.get("b", "").startswith("RYN444: "))
        with ExitStack() as running:
            await asyncio.to_thread(running.enter_context, development_server(port))
            await _until(lambda: not journal.wakes())
        assert driven == ["a", "b"]
        assert not serving.refusals
        serving.stop.set()
        await worker

    asyncio.run(scenario())


async def _until(condition) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - a state of another program
            await asyncio.sleep(0.05)


def test_a_server_that_is_not_reached_is_an_error_that_shows_no_key():
    url = f"temporal://127.0.0.1:{free_port()}/default?api_key=hidden-key&tls=false"
    for call in (lambda engine: engine.inspect(), lambda engine: asyncio.run(engine.serve(_nothing, _default()))):
        with pytest.raises(EngineUnavailable) as caught:
            call(open_engine(url, MemoryJournal(), "p", str))
        assert "hidden-key" not in str(caught.value)
        assert "127.0.0.1" in caught.value.message


async def _nothing(run_id: str) -> None:
    return None


def _default() -> Serving:
    return Serving(queues=("default",))


def test_a_namespace_that_does_not_exist_is_an_error_at_the_start(address: str):
    engine = Temporal(MemoryJournal(), TemporalAddress(address.replace("default", "nowhere")), "p")
    with pytest.raises(EngineUnavailable, match="nowhere"):
        asyncio.run(engine.serve(_nothing, _default()))


@pytest.mark.parametrize("url", ["temporal://", "temporal://u:p@h:1/n", "temporal://h:1/n?key=1", "http://h:1"])
def test_another_address_is_refused(url: str):
    with pytest.raises(EngineUnavailable):
        open_engine(url, MemoryJournal(), "p", str)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "temporalio", None)
    monkeypatch.delitem(sys.modules, "reyn.engines.temporal", raising=False)
    with pytest.raises(EngineUnavailable) as caught:
        open_engine("temporal://127.0.0.1:7233/default", MemoryJournal(), "p", str)
    assert caught.value.hint == "pip install 'reyn[temporal]'"


def test_workers_execute_the_branches_of_a_run(address: str, tmp_path: Path):
    journal, model, project = MemoryJournal(), Together(2), uuid4().hex
    write_report(tmp_path, EACH)

    def dispatcher() -> Dispatcher:
        return Temporal(journal, TemporalAddress(address), project, lease=1)

    async def scenario() -> None:
        async with open_project(tmp_path, model, journal) as one, open_project(tmp_path, model, journal) as two:
            await share_branches(one, two, (dispatcher(), dispatcher()))

    asyncio.run(scenario())
