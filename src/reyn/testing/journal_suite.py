"""The base of conformance suites of the journal port: opens journals, and begins runs in them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from reyn.testing.fixtures import NOTE, events_after, run_started

if TYPE_CHECKING:
    from reyn.journal import Body, Event, Journal, RunRow


def begin(journal: Journal, run_id: str, *bodies: Body) -> list[Event]:
    """Store a new run with `run_started` and more events; return its events."""
    events = events_after(run_id, [run_started(run_id), *bodies])
    journal.append(run_id, 0, events, [NOTE])
    return events


def row_of(journal: Journal, run_id: str) -> RunRow:
    row = journal.find(run_id)
    assert row is not None
    return row


@contextmanager
def raises(error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


class JournalSuite:
    """Tests of the journal that a subclass makes."""

    is_durable: ClassVar[bool] = True

    def make_journal(self, folder: Path) -> Journal:
        raise NotImplementedError  # the subclass creates the journal under test

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        with tempfile.TemporaryDirectory() as folder, closing(self.make_journal(Path(folder))) as journal:
            yield journal

    @contextmanager
    def connections(self) -> Iterator[tuple[Journal, Journal]]:
        """Open a journal twice, as two processes do."""
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(self.make_journal(Path(folder))) as journal,
            closing(self.make_journal(Path(folder))) as other,
        ):
            yield journal, other
