"""The formats of the SQLite journal: tables, columns of a row by format, upgrades."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from reyn.journal.canonical import canonical
from reyn.journal.kinds import Charge
from reyn.journal.projections import RunRow

FORMAT = 7
"""The current format. Format 1 has no sub-runs, forks and questions in `runs`; format 2 has only the ids of questions;
format 3 has no mark of imported runs; format 4 has no `owners`; format 5 has no spending; format 6 has no `spent` in
`runs`. All are upgraded when the database is opened for writing, and stay readable in read-only mode."""

SCHEMA = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL, hash BLOB NOT NULL, skill TEXT NOT NULL,
    rules INTEGER NOT NULL,
    status TEXT NOT NULL, phase TEXT NOT NULL, reason TEXT NOT NULL,
    started INTEGER NOT NULL, updated INTEGER NOT NULL, parent TEXT NOT NULL DEFAULT '',
    fork_of TEXT NOT NULL DEFAULT '', fork_seq INTEGER NOT NULL DEFAULT 0,
    wait TEXT NOT NULL DEFAULT '', messages_taken INTEGER NOT NULL DEFAULT 0, imported TEXT NOT NULL DEFAULT '',
    charge TEXT NOT NULL DEFAULT '', reserved TEXT NOT NULL DEFAULT '', spent TEXT NOT NULL DEFAULT '');
CREATE TABLE events (
    run INTEGER NOT NULL, seq INTEGER NOT NULL, ts INTEGER NOT NULL, kind TEXT NOT NULL, v INTEGER NOT NULL,
    data BLOB NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (run, seq)) WITHOUT ROWID;
CREATE TABLE blobs (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, content BLOB NOT NULL);
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, kind TEXT NOT NULL, payload BLOB NOT NULL);
CREATE INDEX inbox_by_run ON inbox (run_id, id);
"""
APPROVALS = """
CREATE TABLE IF NOT EXISTS approvals (
    id INTEGER PRIMARY KEY AUTOINCREMENT, skill TEXT NOT NULL, skill_hash TEXT NOT NULL, op TEXT NOT NULL,
    rule TEXT NOT NULL, by TEXT NOT NULL, at INTEGER NOT NULL, run_id TEXT NOT NULL, UNIQUE (skill_hash, op, rule));
"""
OWNERS = """
CREATE TABLE IF NOT EXISTS owners (mark BLOB NOT NULL UNIQUE);
"""
SPENDING = """
CREATE TABLE IF NOT EXISTS budget_accounts (
    account TEXT NOT NULL PRIMARY KEY, tokens INTEGER NOT NULL, cost INTEGER NOT NULL,
    reserved_tokens INTEGER NOT NULL, reserved_cost INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spending (
    day TEXT NOT NULL, run_id TEXT NOT NULL, model TEXT NOT NULL, currency TEXT NOT NULL, skill TEXT NOT NULL,
    calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL, cost INTEGER NOT NULL, assumed INTEGER NOT NULL,
    PRIMARY KEY (day, run_id, model, currency)) WITHOUT ROWID;
"""
FIELDS = (
    "run_id", "seq", "hash", "skill", "rules", "status", "phase", "reason", "started", "updated",
    "parent", "fork_of", "fork_seq", "wait", "messages_taken", "imported",
    "charge", "reserved",
)  # fmt: skip
ROW = ", ".join(FIELDS)
INSERT = f"INSERT INTO runs ({ROW}, spent) VALUES (?{', ?' * len(FIELDS)})"  # noqa: S608 - constants
_LAST_WAIT = """CASE WHEN wait = '' THEN '' ELSE coalesce((
    SELECT json_extract(CAST(data AS TEXT), '$.wait') FROM events
    WHERE events.run = runs.id AND kind = 'wait_opened' ORDER BY seq DESC LIMIT 1), '') END"""
_MUTABLE = (
    "seq",
    "hash",
    "status",
    "phase",
    "reason",
    "updated",
    "wait",
    "messages_taken",
    "charge",
    "reserved",
    "spent",
)
UPDATE = f"UPDATE runs SET {', '.join(f'{name} = ?' for name in _MUTABLE)} WHERE id = ? AND seq = ?"  # noqa: S608 - constants
COLUMNS = {
    1: f"{', '.join(FIELDS[:10])}, '', '', 0, '', 0, '', '', ''",
    2: f"{', '.join(FIELDS[:13])}, {_LAST_WAIT}, heard, '', '', ''",
    3: f"{', '.join(FIELDS[:15])}, '', '', ''",
    4: f"{', '.join(FIELDS[:16])}, '', ''",
    5: f"{', '.join(FIELDS[:16])}, '', ''",
    6: ROW,
    7: ROW,
}
"""The columns to select for a row, by the format of the database."""
_ADD_IMPORTED = "ALTER TABLE runs ADD COLUMN imported TEXT NOT NULL DEFAULT '';"
_ADD_SPENT = "ALTER TABLE runs ADD COLUMN spent TEXT NOT NULL DEFAULT '';"
_ADD_CHARGES = f"""
        ALTER TABLE runs ADD COLUMN charge TEXT NOT NULL DEFAULT '';
        ALTER TABLE runs ADD COLUMN reserved TEXT NOT NULL DEFAULT '';
        {_ADD_SPENT}
"""
UPGRADES = {
    1: f"""
        ALTER TABLE runs ADD COLUMN parent TEXT NOT NULL DEFAULT '';
        ALTER TABLE runs ADD COLUMN fork_of TEXT NOT NULL DEFAULT '';
        ALTER TABLE runs ADD COLUMN fork_seq INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE runs ADD COLUMN wait TEXT NOT NULL DEFAULT '';
        ALTER TABLE runs ADD COLUMN messages_taken INTEGER NOT NULL DEFAULT 0;
        {_ADD_IMPORTED}
        {_ADD_CHARGES}
    """,
    2: f"""
        UPDATE runs SET wait = {_LAST_WAIT};
        ALTER TABLE runs RENAME COLUMN heard TO messages_taken;
        ALTER TABLE runs DROP COLUMN rejoins;
        {_ADD_IMPORTED}
        {_ADD_CHARGES}
    """,  # noqa: S608 - constants
    3: _ADD_IMPORTED + _ADD_CHARGES,
    4: _ADD_CHARGES,
    5: _ADD_CHARGES,
    6: _ADD_SPENT,
}


_NO_CHARGE = Charge()
_JSON: dict[str, Any] = {"wait": None, "charge": _NO_CHARGE, "reserved": None}
"""The columns that hold JSON, and the value of an empty one."""


def column_value(row: RunRow, name: str) -> Any:
    """Return a field of a row as it is stored in its column."""
    value = getattr(row, name)
    if name == "hash":
        return bytes.fromhex(value)
    if name in _JSON:
        return "" if value is None or value == _NO_CHARGE else canonical(value).decode()
    return value


def to_columns(row: RunRow) -> list[Any]:
    """Return a row as it is stored, in the order of `FIELDS`."""
    columns = [getattr(row, name) for name in FIELDS]
    columns[_HASH] = bytes.fromhex(row.hash)
    for at, name in _JSON_COLUMNS:
        columns[at] = column_value(row, name)
    return columns


_HASH = FIELDS.index("hash")
_JSON_COLUMNS = tuple((FIELDS.index(name), name) for name in _JSON)


def to_row(columns: tuple[Any, ...]) -> RunRow:
    fields = dict(zip(FIELDS, columns, strict=True))
    if not isinstance(fields["hash"], bytes):
        raise sqlite3.DatabaseError(f"the row of run {fields['run_id']!r} has no hash")
    fields["hash"] = fields["hash"].hex()
    try:
        for name in _JSON:
            fields[name] = msgspec.json.decode(fields[name]) if fields[name] else _JSON[name]
        return msgspec.convert(fields, RunRow)
    except (msgspec.MsgspecError, TypeError) as error:
        raise sqlite3.DatabaseError(f"the row of run {fields['run_id']!r} is invalid: {error}") from error
