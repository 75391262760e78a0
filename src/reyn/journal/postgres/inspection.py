"""What `reyn doctor` shows of a PostgreSQL journal: the server, its settings, sizes, claims, and faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.journal.postgres.link import fetch
from reyn.journal.postgres.schema import FORMAT

if TYPE_CHECKING:
    from reyn.journal.postgres.link import PgConnection

_SETTINGS = """
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('transaction_read_only'), pg_is_in_recovery(),
    (SELECT setting FROM pg_settings WHERE name = 'synchronous_commit'),
    (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit')
"""
_NUMBERS = """
SELECT (SELECT count(*) FROM runs),
    (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
        WHERE c.relnamespace = current_schema()::regnamespace AND relkind = 'r')::bigint,
    (SELECT count(*) FROM owners WHERE lease_until >= clock_timestamp()),
    (SELECT count(*) FROM claims c JOIN owners o ON o.id = c.owner WHERE o.lease_until >= clock_timestamp()),
    (SELECT count(*) FROM claims c LEFT JOIN owners o ON o.id = c.owner
        WHERE o.id IS NULL OR o.lease_until < clock_timestamp()),
    (SELECT count(*) FROM wakes)
"""


class Inspection(msgspec.Struct, frozen=True):
    """The state of a database.

    Attributes:
        server: The server and its version.
        format: The format of the tables.
        runs: The number of runs.
        bytes: The size of all tables.
        processes: The number of processes with a lease.
        claims: The number of runs that they execute.
        wakes: The number of wakes that wait.
        faults: What endangers the journal, or waits for somebody.
        hint: What to do about it.
    """

    server: str
    format: int
    runs: int
    bytes: int
    processes: int
    claims: int
    wakes: int
    faults: tuple[str, ...] = ()
    hint: str = ""


def inspect(connection: PgConnection) -> Inspection:
    """Return the state of the database of a journal."""
    version, fsync, pages, read_only, is_replica, _, commit = fetch(connection, _SETTINGS)[0]
    runs, size, processes, claims, ended, wakes = fetch(connection, _NUMBERS)[0]
    faults, hints = [], []
    if fsync != "on" or pages != "on":
        faults.append("`fsync` or `full_page_writes` is off: a crash of the server loses or damages runs")
        hints.append("Switch them on.")
    if commit == "off":
        faults.append("`synchronous_commit` is off for other programs; Reyn switches it on for itself")
    if read_only == "on" or is_replica:
        faults.append("the server is read-only")
        hints.append("Use the address of the primary.")
    if ended:
        faults.append(f"{ended} runs were left by processes that are gone")
        hints.append("Continue them: reyn resume --all")
    return Inspection(
        f"PostgreSQL {version}", FORMAT, runs, size, processes, claims, wakes, tuple(faults), " ".join(hints)
    )
