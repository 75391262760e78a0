"""Shared commits: every append gets a result, also when tasks are cancelled or the runtime is closed."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from reyn import OSRuntime
from reyn.journal import commits
from reyn.journal.sqlite import SqliteJournal
from reyn.testing import MemoryJournal, ScriptedModel
from tests.support import finish, go, write_skill

IN = {"text": "in"}


class GatedJournal(SqliteJournal):
    """Holds the commit with a given number in its worker thread until the test continues."""

    def __init__(self, folder: Path, held: int) -> None:
        super().__init__(folder)
        self._held = held
        self._commits_begun = 0
        self._is_reached = threading.Event()
        self._may_continue = threading.Event()

    def append_many(self, batches):
        self._commits_begun += 1
        if self._commits_begun >= self._held and threading.current_thread() is not threading.main_thread():
            self._is_reached.set()
            self._may_continue.wait(60)
        return super().append_many(batches)

    async def reached(self) -> None:
        """Return while the commit is in progress; it goes on whenever its thread is scheduled."""
        await asyncio.to_thread(self._is_reached.wait, 60)
        asyncio.get_running_loop().call_soon(self._may_continue.set)


@pytest.fixture
def spin(tmp_path: Path) -> Path:
    write_skill(tmp_path, "spin", {"turn": ["turn", "end"]})
    return tmp_path


def endless(root: Path, journal=None) -> OSRuntime:
    model = ScriptedModel([go("turn", str(number)) for number in range(2_000)] + [finish()])
    return OSRuntime.open(root, model=model, journal=journal, max_phase_visits=10_000)


async def drive_all(rt: OSRuntime, count: int = 6) -> list:
    return await asyncio.gather(*(rt.run("spin", IN, run_id=f"r{number}") for number in range(count)))


def check_all(root: Path, count: int = 6) -> None:
    async def main():
        async with endless(root) as rt:
            for number in range(count):
                if rt.services.journal.find(f"r{number}") is not None:
                    rt.runs.verify(f"r{number}")
                    await rt.runs.replay(f"r{number}")

    asyncio.run(main())


def test_a_failing_task_can_close_the_runtime_during_commits(spin: Path):
    async def fail(journal: GatedJournal):
        await journal.reached()
        raise ValueError("sibling")

    async def main(held: int):
        journal = GatedJournal(spin / ".reyn", held)
        async with endless(spin, journal) as rt:
            await asyncio.gather(drive_all(rt), fail(journal))

    for held in (1, 3, 10):
        with pytest.raises(ValueError, match="sibling"):
            asyncio.run(main(held))
    check_all(spin)


@pytest.mark.slow
def test_background_runs_do_not_block_the_end_of_the_loop(spin: Path):
    async def main():
        journal = GatedJournal(spin / ".reyn", 5)
        rt = endless(spin, journal)
        tasks = [asyncio.create_task(rt.run("spin", IN, run_id=f"r{number}")) for number in range(4)]
        await journal.reached()
        return journal, tasks  # still running: the loop cancels them when it ends

    journal, _ = asyncio.run(asyncio.wait_for(main(), 60))
    journal.close()
    check_all(spin, 4)


@pytest.mark.slow
@pytest.mark.parametrize("held", [1, 2, 3, 5, 10])
def test_a_run_whose_task_is_cancelled_during_any_commit_can_be_resumed(spin: Path, held: int):
    async def main():
        journal = GatedJournal(spin / ".reyn", held)
        async with endless(spin, journal) as rt:
            others = asyncio.create_task(drive_all(rt, 3))
            run = asyncio.create_task(rt.run("spin", IN, run_id="r9"))
            await journal.reached()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            others.cancel()
            with pytest.raises(asyncio.CancelledError):
                await others

    asyncio.run(main())
    check_all(spin, 10)


def test_every_waiting_run_gets_the_error_of_the_journal(spin: Path):
    class Breaking(MemoryJournal):
        def append_many(self, batches):
            raise MemoryError("no room")

    async def main():
        async with endless(spin, Breaking()) as rt:
            return await asyncio.gather(*(rt.run("spin", IN) for _ in range(5)), return_exceptions=True)

    results = asyncio.run(asyncio.wait_for(main(), 60))
    assert all(isinstance(result, MemoryError) for result in results)


def test_closing_twice_is_allowed(tmp_path: Path):
    journal = SqliteJournal(tmp_path)
    journal.close()
    journal.close()


def test_a_single_run_yields_to_the_event_loop(spin: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(commits, "_YIELD_SECONDS", -1.0)  # after every commit, however fast the machine is
    ticks = []

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0)

    async def main():
        model = ScriptedModel([go("turn", str(number)) for number in range(300)] + [finish()])
        async with OSRuntime.open(spin, model=model, journal=MemoryJournal(), max_phase_visits=10_000) as rt:
            other = asyncio.create_task(tick())
            assert (await rt.run("spin", IN)).ok
            other.cancel()

    asyncio.run(main())
    assert len(ticks) >= 300
