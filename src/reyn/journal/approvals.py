"""Standing approvals in the SQLite journal, inside the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.journal.port import Approval

if TYPE_CHECKING:
    import sqlite3


def all_approvals(connection: sqlite3.Connection) -> list[Approval]:
    """Return the standing approvals, oldest first."""
    rows = connection.execute(
        "SELECT skill, skill_hash, op, rule, by, at, run_id, id FROM approvals ORDER BY id"
    ).fetchall()
    return [Approval(*columns) for columns in rows]


def add_approval(connection: sqlite3.Connection, approval: Approval) -> int:
    """Store an approval; return its id, or the id of an equal one."""
    values = msgspec.structs.astuple(approval)[:7]
    connection.execute(
        "INSERT OR IGNORE INTO approvals (skill, skill_hash, op, rule, by, at, run_id) VALUES (?, ?, ?, ?, ?, ?, ?)",
        values,
    )
    cursor = connection.execute(
        "SELECT id FROM approvals WHERE skill_hash = ? AND op = ? AND rule = ?", values[1:4]
    ).fetchone()
    return int(cursor[0])


def delete_approval(connection: sqlite3.Connection, approval_id: int) -> bool:
    """Delete an approval; return whether there was one."""
    return connection.execute("DELETE FROM approvals WHERE id = ?", (approval_id,)).rowcount == 1
