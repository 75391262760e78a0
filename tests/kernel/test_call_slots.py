"""`concurrency` of an endpoint holds for all processes that share a journal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from reyn.journal import Journal, MemoryJournal
from reyn.journal.sqlite import SqliteJournal
from reyn.kernel.world import call_slots
from reyn.kernel.world.call_slots import call_slot

FAR = "https://api.far.example/v1"


@pytest.fixture(params=["memory", "sqlite", "remote"])
def open_journal(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Journal]:
    memory = MemoryJournal()
    if request.param == "remote":
        memory.is_remote = True  # calls happen in threads
    return (lambda: SqliteJournal(tmp_path)) if request.param == "sqlite" else (lambda: memory)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_processes_together_never_make_more_calls_at_once(open_journal: Callable[[], Journal], count: int):
    active, most, waits = 0, 0, list[int]()

    async def call(journal: Journal, number: int) -> None:
        nonlocal active, most

        async def on_wait() -> None:
            waits.append(number)

        async with call_slot(journal, FAR, count, on_wait):
            active += 1
            most = max(most, active)
            for _ in range(5):
                await asyncio.sleep(0)
            active -= 1

    async def scenario() -> None:
        with ExitStack() as opened:
            journals = [opened.enter_context(closing(open_journal())) for _ in range(3)]
            await asyncio.gather(*(call(journals[number % 3], number) for number in range(9)))
            assert journals[0].claimed([f"{_key()}:{number}" for number in range(count)]) == set()

    asyncio.run(scenario())
    assert most <= count
    assert len(waits) == len(set(waits)) <= 9 - count


def test_without_a_limit_nothing_is_claimed(open_journal: Callable[[], Journal]):
    async def scenario() -> None:
        with closing(open_journal()) as journal:
            async with call_slot(journal, FAR, None, _unexpected):
                assert journal.claimed([f"{_key()}:0"]) == set()

    asyncio.run(scenario())


def test_a_cancelled_wait_and_a_cancelled_call_leave_no_claim(open_journal: Callable[[], Journal]):
    async def scenario() -> None:
        with closing(open_journal()) as journal:
            waiting, entered = asyncio.Event(), asyncio.Event()

            async def on_wait() -> None:
                waiting.set()

            async def call() -> None:
                async with call_slot(journal, FAR, 1, on_wait):
                    entered.set()
                    await asyncio.Event().wait()

            first = asyncio.create_task(call())
            await entered.wait()
            second = asyncio.create_task(call())
            await waiting.wait()
            for task in (second, first):
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
            assert journal.claimed([f"{_key()}:0"]) == set()

    asyncio.run(scenario())


def test_the_slot_of_a_process_that_was_killed_is_free(tmp_path: Path):
    with closing(SqliteJournal(tmp_path)):
        pass
    child = os.fork()
    if not child:
        journal = SqliteJournal(tmp_path)
        claim = journal.claim(f"{_key()}:0")
        claim.__enter__()
        os._exit(9)  # as a kill: nothing is released
    os.waitpid(child, 0)

    async def scenario() -> None:
        with closing(SqliteJournal(tmp_path)) as journal:
            async with call_slot(journal, FAR, 1, _unexpected):
                assert journal.claimed([f"{_key()}:0"])

    asyncio.run(scenario())


async def _unexpected() -> None:
    raise AssertionError("nothing is to wait for")


def _key() -> str:
    return call_slots.limit_key("endpoint", call_slots.digest(FAR.encode())[:16])
