"""Lost connections, restarts of the server, paused processes: no event is lost, doubled, or written by two drivers."""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import psycopg
import pytest

from reyn.errors import AppendConflict, BudgetExceeded, ClaimLost, RunBusy, StoreUnavailable
from reyn.journal import Batch, Cancel, Wake
from reyn.journal.commits import SharedCommits
from reyn.journal.postgres import link
from reyn.journal.postgres.address import JournalAddress
from reyn.journal.postgres.journal import PostgresJournal
from reyn.testing.fixtures import NOTE, budget_reserved, budget_settled, events_after, phase_started, run_started
from tests.postgres.server import Server, database_of
from tests.properties import ALL_CASES

pytestmark = pytest.mark.sockets


@pytest.fixture
def journal(address: JournalAddress) -> Iterator[PostgresJournal]:
    with closing(PostgresJournal(address)) as opened:
        yield opened


def expire(server: Server, address: JournalAddress) -> None:
    """End all leases, as if their processes had been gone for long; no clock is waited for."""
    server.execute(
        "UPDATE reyn.owners SET lease_until = lease_until - interval '1 day', host = ''", database=database_of(address)
    )


class Zombie:
    """A journal whose process is paused beyond its lease while it holds claims."""

    def __init__(self, address: JournalAddress, server: Server) -> None:
        self.journal = PostgresJournal(address)
        self._server, self._address = server, address

    def pause(self) -> None:
        self.journal._keeper.close()  # its thread does not run either
        self.journal._leases._until = 0.0
        expire(self._server, self._address)


@pytest.fixture
def zombie(address: JournalAddress, server: Server) -> Iterator[Zombie]:
    found = Zombie(address, server)
    yield found
    found.journal.close()


# -- lost connections -----------------------------------------------------------------------------------------


class CutConnection:
    """Loses the connection of a journal at one statement: before it is sent, or after it was committed."""

    def __init__(self, journal: PostgresJournal, at: int, *, after: bool) -> None:
        self.statements = 0
        self._at, self._after = at, after
        self._link = journal._writer
        self._connect, self._link._connect = self._link._connect, self.connect
        if self._link._connection is not None:
            self.wrap(self._link._connection)

    def connect(self) -> Any:
        connection = self._connect()
        self.wrap(connection)
        return connection

    def wrap(self, connection: Any) -> None:
        execute = connection.execute

        def cut(*args: Any, **kwargs: Any) -> Any:
            self.statements += 1
            is_cut = self.statements == self._at
            if is_cut and not self._after:
                connection.close()
            cursor = execute(*args, **kwargs)
            if is_cut:
                connection.close()
                raise psycopg.OperationalError("consuming input failed: server closed the connection unexpectedly")
            return cursor

        connection.execute = cut


def spend(number: int) -> list[Any]:
    return [budget_reserved(f"1.{number}", 10, cap=1000), budget_settled(f"1.{number}", 4)]


MAX_CUTS = 1_000 if ALL_CASES else 5
"""The number of statements of an action at which the connection is lost."""
ACTIONS: dict[str, Callable[[PostgresJournal], object]] = {
    "a new run": lambda journal: journal.append("n", 0, events_after("n", [run_started("n")]), [NOTE], [Wake("n")]),
    "a message": lambda journal: journal.post("a", Cancel(), [Wake("a")]),
    "spending": lambda journal: journal.append(
        "a", 1, events_after("a", spend(1), events_after("a", [run_started("a")]))
    ),
    "two runs": lambda journal: journal.append_many(
        [
            Batch("n", 0, events_after("n", [run_started("n")]), [NOTE], [Wake("n")]),
            Batch("a", 1, events_after("a", spend(1), events_after("a", [run_started("a")])), [NOTE]),
        ]
    ),
    "an import": lambda journal: journal.import_runs(
        [Batch("n", 0, events_after("n", [run_started("n")]), [NOTE])], "x"
    ),
    "an approval": lambda journal: journal.revoke(1),
    "a deletion": lambda journal: journal.delete(["a"]),
}


def contents(address: JournalAddress) -> list[Any]:
    """Everything that the tables hold, but tokens and the shares' owners."""
    queries = (
        "SELECT run_id, seq, hash, state FROM reyn.runs ORDER BY 1",
        "SELECT r.run_id, c.seq, c.events FROM reyn.commits c JOIN reyn.runs r ON r.id = c.run ORDER BY 1, 2",
        "SELECT hash FROM reyn.blobs ORDER BY 1",
        "SELECT run_id, id, payload FROM reyn.inbox ORDER BY 1, 2",
        "SELECT run_id, due FROM reyn.wakes ORDER BY 1",
        "SELECT account, sum(tokens), sum(reserved_tokens) FROM reyn.shares GROUP BY 1 ORDER BY 1",
        "SELECT * FROM reyn.spending ORDER BY 1, 2",
        "SELECT * FROM reyn.removals",
    )
    with psycopg.connect(**address.parameters) as connection:
        return [connection.execute(query).fetchall() for query in queries]


@pytest.mark.sampled
@pytest.mark.parametrize("name", ACTIONS)
def test_a_connection_that_is_lost_at_any_statement_loses_and_doubles_nothing(
    name: str, server: Server, address: JournalAddress
):
    action = ACTIONS[name]

    def act(at: int, *, after: bool) -> tuple[int, list[Any]]:
        server.clear(database_of(address))
        with closing(PostgresJournal(address)) as journal:
            journal.append("a", 0, events_after("a", [run_started("a")]), [NOTE])
            cut = CutConnection(journal, at, after=after)
            action(journal)
            return cut.statements, contents(address)

    statements, expected = act(0, after=False)
    assert statements >= 1
    for at in range(1, statements + 1, -(-statements // MAX_CUTS)):
        for after in (False, True):
            assert act(at, after=after)[1] == expected, (at, after)


def test_a_second_driver_that_appended_meanwhile_is_not_taken_for_the_first(
    journal: PostgresJournal, address: JournalAddress
):
    first = events_after("a", [run_started("a")])
    journal.append("a", 0, first, [NOTE])
    with closing(PostgresJournal(address)) as other:
        other.append("a", 1, events_after("a", [phase_started(1)], first))
    CutConnection(journal, 1, after=False)
    with pytest.raises(AppendConflict):
        journal.append("a", 1, events_after("a", [phase_started(2)], first))


def test_runs_go_on_while_connections_are_ended_again_and_again(
    journal: PostgresJournal, server: Server, address: JournalAddress
):
    kills, appended = 12, threading.Semaphore(0)

    def kill() -> None:
        for _ in range(kills):
            appended.acquire()
            server.kill_connections(database_of(address))

    thread = threading.Thread(target=kill)
    thread.start()
    events = events_after("a", [run_started("a")])
    journal.append("a", 0, events, [NOTE])
    while thread.is_alive():
        events = events_after("a", [phase_started(events[-1].seq)], events)
        journal.append("a", events[0].seq - 1, events)
        appended.release()
        journal.post("a", Cancel())
    thread.join()
    found = list(journal.read("a"))
    assert [event.seq for event in found] == list(range(1, events[-1].seq + 1))
    assert [message.id for message in journal.drain("a")] == list(range(1, events[-1].seq))


def test_a_server_that_crashes_comes_back_with_every_commit_that_was_acknowledged():
    server = Server(f"crash-{os.getpid()}", fsync=True)
    try:
        with server.database() as address, closing(PostgresJournal(address)) as journal:
            events = events_after("a", [run_started("a")])
            journal.append("a", 0, events, [NOTE])
            with journal.claim("a"):
                for _ in range(3):
                    server.stop()
                    starting = threading.Thread(target=server.start)
                    starting.start()
                    events = events_after("a", [phase_started(events[-1].seq)], events)
                    journal.append("a", events[0].seq - 1, events)
                    starting.join()
                    assert journal.is_claimed("a")
            assert [event.seq for event in journal.read("a")] == [1, 2, 3, 4]
    finally:
        server.close()


@pytest.mark.parametrize(
    ("state", "hint"),
    [("disk_full", "full"), ("read_only_sql_transaction", "replica"), ("insufficient_privilege", "Grant")],
)
def test_what_the_server_refuses_is_an_explained_state(
    state: str,
    hint: str,
    journal: PostgresJournal,
    server: Server,
    address: JournalAddress,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(link, "RETRY_SECONDS", 0.0)
    events = events_after("a", [run_started("a")])
    journal.append("a", 0, events, [NOTE])
    server.execute(
        "CREATE FUNCTION reyn.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{state}'; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON reyn.commits FOR EACH ROW EXECUTE FUNCTION reyn.refuse()",
        database=database_of(address),
    )
    more = events_after("a", [phase_started(1)], events)
    with pytest.raises(StoreUnavailable) as caught:
        journal._writer.run(lambda connection: journal._appender._commit(connection, [Batch("a", 1, more)]), 0.0)
    assert hint in str(caught.value.hint)
    server.execute("DROP TRIGGER refuse ON reyn.commits", database=database_of(address))
    assert journal.append("a", 1, more) == 2


# -- claims ---------------------------------------------------------------------------------------------------


def test_a_driver_that_lost_its_lease_performs_no_effect_and_appends_nothing(zombie: Zombie, journal: PostgresJournal):
    events = events_after("a", [run_started("a")])
    more = events_after("a", [phase_started(1)], events)
    with zombie.journal.claim("a"), zombie.journal.claim("new"):
        zombie.journal.append("a", 0, events, [NOTE])
        zombie.journal.check_claim("a")
        zombie.pause()
        with journal.claim("a"), journal.claim("new"):
            with pytest.raises(ClaimLost):
                zombie.journal.append("a", 1, more)
            with pytest.raises(ClaimLost):
                zombie.journal.append("new", 0, events_after("new", [run_started("new")]))
            with pytest.raises(ClaimLost):
                zombie.journal.check_claim("a")
            assert journal.append("a", 1, more) == 2
        assert not journal.is_claimed("a")
    assert journal.find("new") is None
    with zombie.journal.claim("a"):
        zombie.journal.check_claim("a")


def test_a_lease_that_expired_is_renewed_if_nobody_took_over(zombie: Zombie, journal: PostgresJournal):
    with zombie.journal.claim("a"):
        zombie.pause()
        assert not journal.is_claimed("a")
        zombie.journal.check_claim("a")
        assert journal.is_claimed("a")
        with pytest.raises(RunBusy, match="is being executed by"), journal.claim("a"):
            pass


def claim_and_stop(url: str, ready: Any) -> None:
    with PostgresJournal(JournalAddress(url, "tests")).claim("a"):
        ready.send(os.getpid())
        signal.pause()


@contextmanager
def driver(url: str) -> Iterator[multiprocessing.process.BaseProcess]:
    """Another process that holds the claim on the run `a`."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=claim_and_stop, args=(url, sender))
    process.start()
    try:
        assert receiver.recv() == process.pid
        yield process
    finally:
        process.kill()
        process.join()


def test_a_claim_of_a_process_that_was_killed_on_this_machine_is_free_at_once(
    journal: PostgresJournal, server: Server, address: JournalAddress
):
    with driver(server.url(database_of(address), lease=600)) as process:
        with pytest.raises(RunBusy), journal.claim("a"):
            pass
        process.kill()
        process.join()
        assert not journal.is_claimed("a")
        with journal.claim("a"):
            assert journal.is_claimed("a")


def test_only_one_of_many_processes_takes_over(address: JournalAddress, server: Server, zombie: Zombie):
    with zombie.journal.claim("a"), ExitStack() as stack:
        zombie.pause()
        journals = [stack.enter_context(closing(PostgresJournal(address))) for _ in range(6)]
        start, done = threading.Barrier(len(journals)), threading.Barrier(len(journals))
        taken: list[int] = []

        def take(number: int) -> None:
            start.wait()
            try:
                with journals[number].claim("a"):
                    taken.append(number)
                    done.wait()
            except RunBusy:
                done.wait()

        threads = [threading.Thread(target=take, args=(number,)) for number in range(len(journals))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 1


# -- budgets --------------------------------------------------------------------------------------------------


def test_a_cap_holds_to_the_token_across_processes_and_can_be_used_up(address: JournalAddress):
    cap, need, processes = 1000, 7, 4
    spent: list[int] = []

    def work(number: int) -> None:
        with closing(PostgresJournal(address)) as journal:
            run_id = f"r{number}"
            events = events_after(run_id, [run_started(run_id)])
            journal.append(run_id, 0, events, [NOTE])
            for call in range(cap):
                reserved = events_after(run_id, [budget_reserved(f"1.{call}", need, cap=cap)], events)
                try:
                    journal.append(run_id, events[-1].seq, reserved)
                except BudgetExceeded:
                    return
                events = events_after(run_id, [budget_settled(f"1.{call}", 3)], reserved)
                journal.append(run_id, reserved[-1].seq, events)
                spent.append(3)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(PostgresJournal(address)) as journal:
        balance = journal.balance("day:2026-11-16")
        assert balance.tokens == sum(spent) <= cap
        assert balance.tokens + need > cap - processes * need  # others may have had a call in progress
        assert balance.reserved_tokens == 0
        assert sum(row.input_tokens + row.output_tokens for row in journal.charges()) == balance.tokens


def test_a_lower_cap_counts_what_was_granted_under_a_higher_one(address: JournalAddress):
    with closing(PostgresJournal(address)) as one, closing(PostgresJournal(address)) as other:
        begun = {}
        for journal, run_id, cap in ((one, "a", 1000), (other, "b", 2000)):
            begun[run_id] = events_after(run_id, [run_started(run_id), budget_reserved("1.1", 10, cap=cap)])
            journal.append(run_id, 0, begun[run_id], [NOTE])
        reserved = events_after("c", [run_started("c"), budget_reserved("1.1", 1500, cap=2000)])
        other.append("c", 0, reserved, [NOTE])
        with pytest.raises(BudgetExceeded):
            one.append("d", 0, events_after("d", [run_started("d"), budget_reserved("1.1", 1, cap=1000)]), [NOTE])
        assert one.append("d", 0, events_after("d", [run_started("d"), budget_reserved("1.1", 480, cap=2000)]), [NOTE])
        with pytest.raises(BudgetExceeded):
            other.append("e", 0, events_after("e", [run_started("e"), budget_reserved("1.1", 1, cap=2000)]), [NOTE])


# -- the inbox, and the event loop ----------------------------------------------------------------------------


def test_the_inboxes_of_all_runs_of_a_process_are_read_together_and_hinted(
    journal: PostgresJournal, address: JournalAddress
):
    with closing(PostgresJournal(address)) as other, ExitStack() as claims:
        names = [f"r{number}" for number in range(20)]
        for name in names:
            claims.enter_context(journal.claim(name))
            assert journal.peek(name) == []
        hinted = threading.Event()
        unsubscribe = journal.subscribe(lambda runs: hinted.set() if "r7" in runs else None)
        number = other.post("r7", Cancel("now"))
        assert hinted.wait(60)
        unsubscribe()
        arrived = threading.Event()
        while not journal.peek("r7"):
            arrived.wait(0.01)
        assert [message.payload for message in journal.peek("r7")] == [Cancel("now")]
        assert journal.peek("r7", after=number) == []
        assert journal.peek("r8") == []


def test_a_commit_never_runs_in_the_event_loop(journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch):
    threads = []
    append_many = journal.append_many

    def record(batches: Any) -> Any:
        threads.append(threading.current_thread())
        return append_many(batches)

    monkeypatch.setattr(journal, "append_many", record)

    async def commit() -> None:
        commits = SharedCommits(journal)
        assert await commits.append("a", 0, events_after("a", [run_started("a")]), [NOTE]) == 1
        names = [f"r{number}" for number in range(8)]
        appends = (commits.append(name, 0, events_after(name, [run_started(name)]), [NOTE]) for name in names)
        assert await asyncio.gather(*appends) == [1] * 8
        commits.close()

    asyncio.run(commit())
    assert threading.main_thread() not in threads
    assert len(threads) < 9
