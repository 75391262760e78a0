"""Copy a project from one journal to another: runs as they are recorded, and everything that is beside them.

Both directions are the same: every event is read with its hash checked, and appended to a chain that must end with the
same hash. What is stored already is not copied again, so a copy that was interrupted continues.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from reyn.errors import CopyRefused
from reyn.journal.canonical import Blob
from reyn.journal.lifecycle import UNENDED, RunRow
from reyn.journal.listing import RunQuery
from reyn.journal.port import Batch
from reyn.journal.registry import content_hashes, decode
from reyn.journal.submission import is_left_to_workers
from reyn.journal.wakes import Wake

if TYPE_CHECKING:
    from reyn.journal.port import Journal
    from reyn.journal.registry import Event

_PAGE = 500
_MAX_EVENTS, _MAX_BYTES = 500, 4_000_000
"""What one transaction stores; a larger content is stored alone."""
_MAX_KNOWN = 50_000


class CopyReport(NamedTuple):
    """What the target has after a copy, and what this copy added. All of it is verified."""

    runs: int = 0
    events: int = 0
    added_runs: int = 0
    added_events: int = 0
    added_contents: int = 0


OnProgress = Callable[[CopyReport], None]


def copy_journal(source: Journal, target: Journal, on_progress: OnProgress = lambda report: None) -> CopyReport:
    """Copy everything that a journal has, except the reports of workers and claims.

    Args:
        source: The journal. No process may execute its runs.
        target: An empty journal, or one that an interrupted copy of the same journal left.
        on_progress: Called after each run.

    Raises:
        CopyRefused: The target has something else, a process executes a run of one of them, or a run has changed
            meanwhile. What was copied so far stays, and the next copy continues.
        ChainBroken: An event of the source is damaged; nothing of it was copied.
        BlobMissing: Content of the source is missing or damaged.
    """
    _check_idle(source, "the journal to copy")
    _check_idle(target, "the target")
    _check_target(source, target)
    copy = _Copy(source, target)
    for row in _oldest_first(source):
        copy.run(row.run_id)
        on_progress(copy.report)
    _copy_beside(source, target)
    for row in _rows(source):
        found = target.find(row.run_id)
        if found is None or (found.seq, found.hash) != (row.seq, row.hash):
            raise CopyRefused(f"run `{row.run_id}` has changed while it was copied")
    _check_idle(source, "the journal to copy")
    return copy.report


def _check_idle(journal: Journal, name: str) -> None:
    for row in _rows(journal, RunQuery(UNENDED)):
        if journal.is_claimed(row.run_id):
            raise CopyRefused(f"a process executes run `{row.run_id}` of {name}")


def _check_target(source: Journal, target: Journal) -> None:
    for row in _rows(target):
        origin = source.find(row.run_id)
        is_same = origin is not None and origin.seq >= row.seq
        if is_same:
            [last] = list(_until(source, row.run_id, row.seq - 1, row.seq))
            is_same = last.hash == row.hash
        if not is_same:
            raise CopyRefused(f"the target has the run `{row.run_id}`, which is not one of the journal to copy")


class _Copy:
    """One copy in progress."""

    def __init__(self, source: Journal, target: Journal) -> None:
        self._source = source
        self._target = target
        self._known: OrderedDict[str, None] = OrderedDict()
        """Hashes of content that was copied."""
        self._ahead: set[str] = set()
        """Runs that were copied early, because one that started before them was forked from them."""
        self.report = CopyReport()

    def run(self, run_id: str) -> None:
        """Copy what the target does not have of a run, after the run that it was forked from."""
        if run_id in self._ahead:
            return
        row, there = self._source.find(run_id), self._target.find(run_id)
        if row is None:
            raise CopyRefused(f"run `{run_id}` was deleted while it was copied")
        seq = first = there.seq if there is not None else row.fork_seq
        if row.fork_of and there is None:
            origin = self._target.find(row.fork_of)
            if origin is None or origin.seq < row.fork_seq:
                self.run(row.fork_of)
                self._ahead.add(row.fork_of)
        events: list[Event] = []
        blobs: dict[str, Blob] = {}
        size = 0
        for event in _until(self._source, run_id, seq, row.seq):
            for name in content_hashes(decode(event)):
                if name not in self._known and name not in blobs:
                    blobs[name] = Blob(name, self._source.blob(name))
                    size += len(blobs[name].content)
            events.append(event)
            size += len(event.raw)
            if len(events) >= _MAX_EVENTS or size >= _MAX_BYTES:
                seq = self._store(row, seq, events, blobs)
                events, blobs, size = [], {}, 0
        if events:
            seq = self._store(row, seq, events, blobs)
        self._count(row, there, seq - first)

    def _store(self, row: RunRow, seq: int, events: list[Event], blobs: dict[str, Blob]) -> int:
        after = self._target.restore(Batch(row.run_id, seq, events, list(blobs.values())), row.imported)
        self._known.update((name, None) for name in blobs)
        while len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        self.report = self.report._replace(added_contents=self.report.added_contents + len(blobs))
        return after

    def _count(self, row: RunRow, there: RunRow | None, added: int) -> None:
        was_there = there is not None and not added
        self.report = self.report._replace(
            runs=self.report.runs + 1,
            events=self.report.events + row.seq - row.fork_seq,
            added_runs=self.report.added_runs + (not was_there),
            added_events=self.report.added_events + added,
        )


def _until(journal: Journal, run_id: str, after: int, last: int) -> Iterator[Event]:
    for event in journal.read(run_id, after):
        if event.seq > last:
            return
        yield event


def _copy_beside(source: Journal, target: Journal) -> None:
    """Copy what is beside the runs; what is there already is not stored twice."""
    for approval in source.approvals():
        target.approve(replace(approval, id=0))
    for token in source.access_tokens():
        target.add_access_token(token)
    for name in dict.fromkeys(one.index for one in source.documents()):
        contents = {one.path: one for one in source.document_contents(name)}
        for document in source.documents(name):
            target.store_document(document, contents[document.path])
    for row in _rows(source, RunQuery(UNENDED)):
        waiting = [one.payload for one in source.drain(row.run_id, row.messages_taken)]
        stored = [one.payload for one in target.drain(row.run_id, row.messages_taken)]
        if stored != waiting[: len(stored)]:
            raise CopyRefused(f"the target has messages to run `{row.run_id}` that are not in the journal to copy")
        for payload in waiting[len(stored) :]:
            target.post(row.run_id, payload)
    there = {(one.run_id, one.due, one.queue) for one in target.wakes()}
    for wake in source.wakes():
        row_of_wake = target.find(wake.run_id)
        if row_of_wake is not None and (wake.run_id, wake.due, wake.queue) not in there:
            wakes = [Wake(wake.run_id, wake.due, wake.queue, wake.priority)]
            target.append(wake.run_id, row_of_wake.seq, (), (), wakes)
    _wake_submitted(source, target)
    target.restore_ledger(source.ledger())


def _wake_submitted(source: Journal, target: Journal) -> None:
    """Store a wake of each submitted run that has something to do: an engine may have those of the source."""
    woken = {one.run_id for one in target.wakes()}
    for row in _rows(target, RunQuery(UNENDED)):
        expires = row.wait.expires_at if row.wait is not None and row.status == "waiting" else None
        if not row.queue or row.run_id in woken:
            continue
        if expires is not None or is_left_to_workers(source, row):
            wake = Wake(row.run_id, expires or 0, row.queue, row.priority)
            target.append(row.run_id, row.seq, (), (), [wake])


def _rows(journal: Journal, query: RunQuery | None = None) -> Iterator[RunRow]:
    """Yield the runs of a query, newest first, page by page."""
    after = ""
    while page := journal.page(query or RunQuery(), _PAGE, after):
        yield from page
        after = page[-1].run_id


def _oldest_first(journal: Journal) -> Iterator[RunRow]:
    """Yield all runs, those that started first before others, with one page of them in memory."""
    starts = [""]
    while page := journal.page(RunQuery(), _PAGE, starts[-1]):
        starts.append(page[-1].run_id)
    for after in reversed(starts[:-1]):
        yield from reversed(journal.page(RunQuery(), _PAGE, after))
