"""The row of a run as databases store it: columns that never change, and its state as JSON.

What a run was charged last is part of its state, which each commit writes anyway; it moves to a table of its own when
the day or the model changes, and when the run is deleted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from reyn.journal.lifecycle import Lifecycle, RunRow
from reyn.journal.spending import SpendRow

Spent = tuple[SpendRow, ...]
FIXED = ("run_id", "skill", "rules", "started", "parent", "fork_of", "fork_seq", "imported")
"""The columns of a run that never change."""
COLUMNS = (*FIXED, "seq", "updated")
ACTIVITY = 60_000_000
"""The column `active` of a run has the minute of its last event, so that an index of it changes once a minute at most.

The index has only runs with events in a later minute than that of their start.
"""
_MAX_SPENT = 4
"""The models whose charges a run's row holds; more would make every commit of the run larger."""


class RowDamaged(Exception):
    """The row of a run is not what a journal stores."""


class Head(NamedTuple):
    """A run's key in the database, its row, and the charges in it."""

    key: int
    row: RunRow
    spent: Spent = ()


class StoredState(Lifecycle, frozen=True, omit_defaults=True):
    """The lifecycle of a run, and what it was charged last."""

    spent: tuple[SpendRow, ...] = ()


def state_of(row: RunRow, spent: Spent) -> StoredState:
    """Return the state of a run as it is stored."""
    life = row.status, row.reason, row.phase, row.wait, row.messages_taken, row.charge, row.reserved
    return StoredState(*life, row.queue, row.priority, row.title, row.labels, spent)


encode_state = msgspec.json.Encoder().encode
"""Returns a `StoredState` as JSON."""
_decode = msgspec.json.Decoder(StoredState).decode
msgspec.json.Decoder(RunRow)  # threads use it at the same time, and the first use of a struct is not safe


def decode_spent(state: str | bytes) -> Spent:
    """Return the charges in a state."""
    return _decode(state).spent


def decode_head(columns: tuple[Any, ...]) -> Head:
    """Return a run from its key, `COLUMNS`, the hash of its last event and its state. Raises `RowDamaged` if they are
    damaged."""
    key, *values, hashed, state = columns
    try:
        fields = msgspec.json.decode(state, type=dict[str, Any]) | dict(zip(COLUMNS, values, strict=True))
        spent = msgspec.convert(fields.pop("spent", ()), Spent)
        return Head(key, msgspec.convert(fields | {"hash": hashed.hex()}, RunRow), spent)
    except (msgspec.MsgspecError, TypeError, AttributeError) as error:
        raise RowDamaged(f"the row of run {values[0]!r} is invalid: {error}") from error


def add_charges(spent: Spent, charges: list[SpendRow]) -> tuple[Spent, Spent]:
    """Add charges to those that a run's row holds.

    Returns:
        The charges for the row, and those to store: they are of an earlier day, or there are too many models.
    """
    closed: Spent = ()
    for charge in charges:
        for index, known in enumerate(spent):
            if known.key == charge.key:
                spent = (*spent[:index], known.plus(charge), *spent[index + 1 :])
                break
        else:
            if spent and (len(spent) == _MAX_SPENT or spent[0].day != charge.day):
                closed, spent = closed + spent, ()
            spent = (*spent, charge)
    return spent, closed


def total_charges(found: list[SpendRow]) -> list[SpendRow]:
    """Add up the charges of the same run, day, model and currency; return them oldest first."""
    rows: dict[tuple[str, str, str, str], SpendRow] = {}
    for row in found:
        known = rows.get(row.key)
        rows[row.key] = row if known is None else known.plus(row)
    return [rows[key] for key in sorted(rows)]
