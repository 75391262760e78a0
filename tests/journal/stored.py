"""Change the stored events of a journal, as damage to the file or a forger would."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from reyn import SyncRuntime

_LINE = re.compile(rb'\[(\d+),(\d+),"([^"]*)",(\d+),(.*)\]')
_FIELDS = ("seq", "ts", "kind", "v", "data")
Stored = dict[str, bytes]
"""The parts of a line as they are stored, and the hash of the event."""


@contextmanager
def editing(database: Path) -> Iterator[sqlite3.Connection]:
    """Open a database; commit what the block changes, and close it."""
    with closing(sqlite3.connect(database)) as db, db:
        yield db


def change_events(database: Path, change: Callable[[Stored], Stored | None], run: str = "") -> None:
    """Pass every stored event through `change`, which returns it or nothing. Empty commits are removed."""
    with editing(database) as db:
        query = "SELECT id, hashes, events FROM commits WHERE id >> 32 IN (SELECT id FROM runs WHERE ? IN ('', run_id))"
        for key, hashes, text in db.execute(query, (run,)).fetchall():
            events = []
            for number, line in enumerate(text.split(b"\n")):
                match = _LINE.fullmatch(line)
                assert match is not None
                stored = dict(zip(_FIELDS, match.groups(), strict=True)) | {"hash": hashes[32 * number :][:32]}
                if (changed := change(stored)) is not None:
                    events.append(changed)
            lines = [b'[%b,%b,"%b",%b,%b]' % tuple(one[field] for field in _FIELDS) for one in events]
            values = (b"".join(one["hash"] for one in events), b"\n".join(lines), key)
            db.execute("UPDATE commits SET hashes = ?, events = ? WHERE id = ?", values)
            if not events:
                db.execute("DELETE FROM commits WHERE id = ?", (key,))
    db.close()


def change_event(database: Path, seq: int, run: str = "", /, **fields: bytes) -> None:
    """Replace parts of one event."""
    change_events(database, lambda stored: stored | fields if int(stored["seq"]) == seq else stored, run)


def remove_event(database: Path, seq: int, run: str = "") -> None:
    change_events(database, lambda stored: None if int(stored["seq"]) == seq else stored, run)


def verify(root: Path, run_id: str) -> None:
    """Check the hash chain of a run in the journal of a project."""
    with SyncRuntime.open(root) as rt:
        rt.runs.verify(run_id)
