"""The list of 1,000,000 runs: `python -m bench.run_list [COUNT]`, on SQLite and on PostgreSQL.

The rows of one recorded run are copied with SQL, because recording a million runs would take an hour. Every figure is
the median of several pages in one process, in milliseconds: CPU on SQLite, elapsed on PostgreSQL, whose server works
in processes of its own. `reyn runs` is the whole command, elapsed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path

from reyn.journal import Journal, kinds
from reyn.journal.indexing import index_runs
from reyn.journal.listing import RunQuery
from reyn.journal.sqlite import SqliteJournal
from reyn.testing.fixtures import NOTE, events_after, run_started

COUNT = 1_000_000
BOUND_MS = 200.0
_PAGE = 50
# Ten runs a second; one in a hundred has its last event a day after its start.
_STARTED = "n * 100000"
_UPDATED = f"({_STARTED} + CASE WHEN n / 100 * 100 = n THEN 86400000000 ELSE 0 END)"
_TIMES = f"{_STARTED}, {_UPDATED}, status, {_UPDATED} / 60000000, 0"
_WORDS = "'run' || n || ' skill ' || CASE WHEN n / 1000 * 1000 = n THEN 'rare' ELSE 'common' END"


def _begin(journal: Journal) -> None:
    events = events_after("run-0", [run_started("run-0"), kinds.RunFailed("RYN000", "a reason to look at it")])
    journal.append("run-0", 0, events, [NOTE])
    index_runs(journal)


def _columns(*changed: str) -> tuple[str, str]:
    """Return the columns of a copied row, and the values of those that change."""
    same = ("rules", "parent", "fork_of", "fork_seq", "imported", "seq", "hash", "state")
    return ", ".join(
        ("run_id", "skill", "started", "updated", "status", "active", "unindexed", *changed, *same)
    ), ", ".join(same)


def _fill_sqlite(path: Path, count: int) -> None:
    import sqlite3

    names, same = _columns()
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?) "
            f"INSERT INTO runs ({names}) SELECT printf('run-%d', n), 'skill', {_TIMES}, {same} "
            "FROM numbers, (SELECT * FROM runs LIMIT 1)",
            (count,),
        )
        db.execute(
            f"INSERT INTO run_words (rowid, words) SELECT n, {_WORDS} FROM (SELECT id AS n FROM runs) WHERE n > 1"
        )
        db.commit()


def _measure(page: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    spent = []
    for _ in range(7):
        started = clock()
        page()
        spent.append((clock() - started) * 1000)
    return statistics.median(spent)


def _report(name: str, journal: Journal, count: int, clock: Callable[[], float] = time.perf_counter) -> bool:
    middle, is_met = f"run-{count // 2}", True
    cases: list[tuple[str, RunQuery, str, bool]] = [
        ("the first page", RunQuery(top=True), "", True),
        ("a page in the middle", RunQuery(top=True), middle, True),
        ("with a status", RunQuery(("failed",)), middle, True),
        ("with two statuses and a skill", RunQuery(("failed", "waiting"), "skill"), middle, True),
        ("a status that no run has", RunQuery(("limited",)), "", True),
        ("search, one match", RunQuery(search=f"run{count // 3}"), "", True),
        ("search, a word of one run in a thousand", RunQuery(search="rare"), "", True),
        ("search, a word of nearly all runs", RunQuery(search="common"), "", False),
        ("since, no match", RunQuery(since=2**50), "", True),
        ("since, the last thousand", RunQuery(since=(count - 1000) * 100_000, top=True), "", True),
        ("since, all, a status that no run has", RunQuery(("limited",), since=0), "", True),
    ]
    for text, query, after, is_bound in cases:
        spent = _measure(lambda query=query, after=after: journal.page(query, _PAGE, after), clock)  # type: ignore[misc]
        verdict = ("" if spent < BOUND_MS else f" > {BOUND_MS:.0f}: missed") if is_bound else ""
        is_met = is_met and not verdict
        print(f"{name:<12}{text:<44}{spent:>9.1f} ms{verdict}")
    return is_met


def _command(name: str, project: Path, environment: dict[str, str]) -> None:
    def list_runs() -> None:
        command = [sys.executable, "-m", "reyn", "--project", str(project), "runs"]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment})

    print(f"{name:<12}{'`reyn runs`, from start to exit':<44}{_measure(list_runs):>9.1f} ms")


def _sqlite(count: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        _command("sqlite, 0", project, {})
        with closing(SqliteJournal(project / ".reyn")) as journal:
            _begin(journal)
            _fill_sqlite(journal.path, count)
        with closing(SqliteJournal(project / ".reyn")) as journal:
            is_met = _report("sqlite", journal, count, time.process_time)
        _command("sqlite", project, {})
        return is_met


def _postgres(count: int) -> bool:
    from reyn.journal.postgres.journal import PostgresJournal

    servers, (names, same) = import_module("tests.postgres.server"), _columns()
    server = servers.Server(f"bench-{os.getpid()}")
    try:
        with server.database() as address, closing(PostgresJournal(address)) as journal:
            _begin(journal)
            database = servers.database_of(address)
            server.execute(
                f"INSERT INTO reyn.runs ({names}, taken, charged, reserving) SELECT 'run-' || n, 'skill', {_TIMES},"
                f" {same}, 0, '', false "
                "FROM generate_series(1::bigint, %s) AS n, (SELECT * FROM reyn.runs LIMIT 1) AS one",
                count,
                database=database,
            )
            server.execute(
                f"INSERT INTO reyn.run_words SELECT n, to_tsvector('simple', {_WORDS}) "
                "FROM (SELECT id AS n FROM reyn.runs) AS runs WHERE n > 1",
                database=database,
            )
            server.execute("ANALYZE reyn.runs", database=database)
            server.execute("ANALYZE reyn.run_words", database=database)
            return _report("postgresql", journal, count)
    finally:
        server.close()


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    results = [_sqlite(number), _postgres(number)]
    sys.exit(0 if all(results) else 1)
