"""Workers on PostgreSQL together never start more calls a minute than their endpoint allows."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing

import pytest

from reyn.journal.postgres.address import JournalAddress
from reyn.journal.postgres.journal import PostgresJournal
from reyn.journal.rates import RateLimits, RateNeed, RateSlice
from reyn.kernel.world.call_rates import CallRate
from tests.postgres.server import Server, database_of

pytestmark = pytest.mark.sockets

WORKERS, CALLS = 4, 100


class Refused(Exception):
    pass


@pytest.mark.parametrize(("limits", "most"), [(RateLimits(50, None), 50), (RateLimits(None, 777), 25)])
def test_four_workers_never_exceed_a_limit_and_use_all_of_it(address: JournalAddress, limits: RateLimits, most: int):
    started, begin, lock = 0, threading.Barrier(WORKERS), threading.Lock()

    async def refuse(reason: str, ahead: int) -> None:
        raise Refused

    async def calls(journal: PostgresJournal) -> None:
        nonlocal started
        rate = CallRate(journal, "e")
        for _ in range(CALLS):
            async with rate.call(31 if limits.tokens else 0, limits, refuse):
                with lock:
                    started += 1

    def work() -> None:
        with closing(PostgresJournal(address)) as journal:
            begin.wait(60)
            with pytest.raises(Refused):
                asyncio.run(calls(journal))

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert 0.75 * most <= started <= most


def test_a_lost_connection_gives_nothing_back_twice(address: JournalAddress, server: Server):
    with closing(PostgresJournal(address)) as journal:
        for number in range(10):
            assert isinstance(journal.take_rate("e", RateNeed("a", RateLimits(10, None))), RateSlice)
            if number % 3 == 0:
                server.kill_connections(database_of(address))
        assert not isinstance(journal.take_rate("e", RateNeed("b", RateLimits(10, None))), RateSlice)
