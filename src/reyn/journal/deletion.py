"""Count and delete the rows of runs in the SQLite journal, inside the caller's transaction; compact it afterwards."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from reyn.journal.port import Deletion, hashes_in

_FREE_SHARE = 10
"""A file is compacted when at least one page in so many is free."""


def count(connection: sqlite3.Connection, keys: dict[str, int]) -> tuple[Deletion, list[bytes]]:
    """Count what deleting these runs removes; return the count and the hashes of content that no other run uses."""
    events, size, names = 0, 0, set[str]()
    for key in keys.values():
        for (raw,) in connection.execute("SELECT CAST(data AS BLOB) FROM events WHERE run = ?", (key,)):
            events, size = events + 1, size + len(raw)
            names |= hashes_in(raw)
    if not names:
        return Deletion(events, 0, size), []
    deleted = set(keys.values())
    for key, raw in connection.execute("SELECT run, CAST(data AS BLOB) FROM events"):
        if key not in deleted:
            names -= hashes_in(raw)
    unused = []
    for name in map(bytes.fromhex, names):
        size_row = connection.execute("SELECT length(content) FROM blobs WHERE hash = ?", (name,)).fetchone()
        if size_row is not None:
            unused.append(name)
            size += size_row[0]
    return Deletion(events, len(unused), size), unused


def delete(connection: sqlite3.Connection, keys: dict[str, int], unused: list[bytes]) -> None:
    connection.executemany("DELETE FROM inbox WHERE run_id = ?", [(run_id,) for run_id in keys])
    connection.executemany("DELETE FROM events WHERE run = ?", [(key,) for key in keys.values()])
    connection.executemany("DELETE FROM runs WHERE id = ?", [(key,) for key in keys.values()])
    connection.executemany("DELETE FROM blobs WHERE hash = ?", [(name,) for name in unused])


def compact(connection: sqlite3.Connection) -> None:
    """Return free pages to the file system. If that fails, later runs use them."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    if free * _FREE_SHARE >= pages:
        with suppress(sqlite3.Error):
            connection.execute("VACUUM")
