"""The in-memory journal, for tests and runs that need not be stored. It enforces the same rules as any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from reyn.errors import BlobMissing, JournalError, RunBusy
from reyn.journal.canonical import Blob, digest
from reyn.journal.lifecycle import is_listed_alike
from reyn.journal.listing import UnindexedRun, matching_runs
from reyn.journal.messages import InboxMessage, InboxPayload, decode_payload, encode_payload
from reyn.journal.port import (
    Batch,
    Bookkeeping,
    Deletion,
    admit,
    check_deletable,
    hashes_in,
)
from reyn.journal.rates import RateState, lease
from reyn.journal.spending import Balance, Postings, SpendRow, check_cap, in_full, postings, run_accounts
from reyn.journal.wakes import PendingWake, Wake, deliverable, in_delivery_order, microseconds
from reyn.journal.workers import WorkerReport, is_forgotten

if TYPE_CHECKING:
    from reyn.journal.documents import DocumentContent, DocumentRow
    from reyn.journal.lifecycle import RunRow
    from reyn.journal.listing import IndexedRun, RunQuery
    from reyn.journal.rates import RateNeed, RateRefusal, RateSlice
    from reyn.journal.registry import Event, Status
    from reyn.journal.results import AccessToken, Approval


class MemoryJournal:
    """A journal in memory. `Journal` documents the methods."""

    is_remote: ClassVar[bool] = False

    def __init__(self) -> None:
        self._events: dict[str, list[Event]] = {}
        self._rows: dict[str, RunRow] = {}
        self._blobs: dict[str, bytes] = {}
        self._inbox: list[tuple[str, InboxMessage]] = []
        self._claims: set[str] = set()
        self._approvals: dict[int, Approval] = {}
        self._last_approval = 0
        self._access_tokens: dict[str, AccessToken] = {}
        self._removals: set[str] = set()
        self._balances: dict[str, Balance] = {}
        self._charges: dict[tuple[str, str, str, str], SpendRow] = {}
        self._wakes: dict[int, PendingWake] = {}
        self._last_wake = 0
        self._workers: dict[str, WorkerReport] = {}
        self._rates: dict[str, RateState] = {}
        self._documents: dict[tuple[str, str], tuple[DocumentRow, DocumentContent]] = {}
        self._words: dict[str, tuple[str, ...]] = {}
        self._unindexed: dict[str, int] = {}

    def append(
        self,
        run_id: str,
        expected_seq: int,
        events: Sequence[Event],
        blobs: Sequence[Blob] = (),
        wakes: Sequence[Wake] = (),
    ) -> int:
        return self._append(Batch(run_id, expected_seq, events, blobs, wakes))

    def restore(self, batch: Batch, imported: str) -> int:
        return self._append(batch, restored=imported)

    def _append(self, batch: Batch, imported_from: str = "", restored: str | None = None) -> int:
        run_id, events, blobs = batch.run_id, batch.events, batch.blobs
        admitted = admit(batch, self._rows.get(run_id), self.read, imported_from, restored)
        if admitted is not None and admitted[1] is not None:
            self._post(admitted[1])
        self._blobs.update((blob.hash, blob.content) for blob in blobs)
        self._store_wakes(batch.wakes)
        if admitted is None:
            return batch.expected_seq
        self._events.setdefault(run_id, []).extend(events)
        if not is_listed_alike(self._rows.get(run_id), admitted[0]):
            self._unindexed[run_id] = admitted[0].seq
        self._rows[run_id] = admitted[0]
        return events[-1].seq

    def _post(self, found: Postings) -> None:
        """Apply the effects of a batch on spending, all of them or none. Raises `BudgetExceeded`."""
        after = {name: posting.added_to(self.balance(name)) for name, posting in found.accounts.items()}
        for name, posting in found.accounts.items():
            check_cap(posting, after[name])
        self._balances.update(after)
        for row in found.rows:
            known = self._charges.get(row.key)
            self._charges[row.key] = row if known is None else known.plus(row)

    def append_many(self, batches: Sequence[Batch]) -> list[int | JournalError]:
        results: list[int | JournalError] = []
        for batch in batches:
            try:
                results.append(self.append(batch.run_id, batch.expected_seq, batch.events, batch.blobs, batch.wakes))
            except JournalError as error:
                results.append(error)
        return results

    def import_runs(self, batches: Sequence[Batch], origin: str) -> None:
        before = dict(self._events), dict(self._rows), dict(self._blobs), dict(self._unindexed)
        try:
            for batch in batches:
                self._append(batch, origin)
        except BaseException:
            self._events, self._rows, self._blobs, self._unindexed = before
            raise

    def read(self, run_id: str, after: int = 0) -> Iterator[Event]:
        row = self._rows.get(run_id)
        if row is None:
            return
        if after < row.fork_seq:
            yield from islice(self.read(row.fork_of, after), row.fork_seq - after)
        yield from self._events[run_id][max(0, after - row.fork_seq) :]

    def blob(self, hash: str) -> bytes:
        content = self._blobs.get(hash)
        if content is None or digest(content) != hash:
            raise BlobMissing(f"blob `{hash}` is {'missing' if content is None else 'damaged'}")
        return content

    def post(self, run_id: str, payload: InboxPayload, wakes: Sequence[Wake] = ()) -> int:
        row = self._rows.get(run_id)
        last = max(self._inbox[-1][1].id if self._inbox else 0, row.messages_taken if row else 0)
        message = InboxMessage(last + 1, decode_payload(encode_payload(payload)))
        self._inbox.append((run_id, message))
        self._store_wakes(wakes)
        return message.id

    def drain(self, run_id: str, after: int = 0) -> list[InboxMessage]:
        return [message for to, message in self._inbox if to == run_id and message.id > after]

    def peek(self, run_id: str, after: int = 0) -> list[InboxMessage]:
        return self.drain(run_id, after)

    @contextmanager
    def claim(self, run_id: str) -> Iterator[None]:
        if run_id in self._claims:
            raise RunBusy.in_this_process(run_id)
        self._claims.add(run_id)
        try:
            yield
        finally:
            self._claims.discard(run_id)

    def is_claimed(self, run_id: str) -> bool:
        return run_id in self._claims

    def claimed(self, names: Collection[str]) -> set[str]:
        return self._claims.intersection(names)

    def check_claim(self, run_id: str) -> None:
        pass  # no claim is ever lost

    def _store_wakes(self, wakes: Sequence[Wake]) -> None:
        for one in wakes:
            self._last_wake += 1
            stored = PendingWake(one.run_id, one.due, one.queue, one.priority, seq=self._last_wake)
            self._wakes[stored.seq] = stored

    def take_wakes(self, queues: Collection[str], limit: int, hold: float) -> list[PendingWake]:
        found = deliverable(self._wakes.values(), queues, limit, microseconds())
        self.hold_wakes([one.seq for one in found], hold)
        return [self._wakes[one.seq] for one in found]

    def hold_wakes(self, seqs: Collection[int], hold: float) -> None:
        until = microseconds() + round(hold * 1_000_000)
        self._wakes |= {seq: replace(self._wakes[seq], held_until=until) for seq in seqs if seq in self._wakes}

    def finish_wakes(self, seqs: Collection[int]) -> None:
        for seq in seqs:
            self._wakes.pop(seq, None)

    def wakes(self, run_id: str | None = None) -> list[PendingWake]:
        return [one for one in self._wakes.values() if run_id in (None, one.run_id)]

    def first_wakes(self, queue: str, limit: int) -> list[PendingWake]:
        return in_delivery_order(one for one in self._wakes.values() if one.queue == queue)[:limit]

    def take_rate(self, name: str, need: RateNeed) -> RateSlice | RateRefusal:
        self._rates[name], found = lease(self._rates.get(name, RateState()), need, microseconds())
        return found

    def report_worker(self, report: WorkerReport) -> None:
        now = microseconds()
        self._workers[report.id] = replace(report, seen=now)
        self._workers = {name: one for name, one in self._workers.items() if not is_forgotten(one, now)}

    def forget_worker(self, worker_id: str) -> None:
        self._workers.pop(worker_id, None)

    def workers(self) -> list[WorkerReport]:
        return [one for _, one in sorted(self._workers.items())]

    def documents(self, index: str | None = None) -> list[DocumentRow]:
        return [
            row
            for (name, _), row in sorted((key, row) for key, (row, _) in self._documents.items())
            if index in (None, name)
        ]

    def document_contents(self, index: str, path: str | None = None) -> list[DocumentContent]:
        found = sorted((key, one) for key, (_, one) in self._documents.items() if key[0] == index)
        return [one for (_, name), one in found if path in (None, name)]

    def store_document(self, row: DocumentRow, content: DocumentContent) -> None:
        self._documents[row.index, row.path] = row, content

    def remove_documents(self, index: str, path: str | None = None) -> int:
        found = [key for key in self._documents if key[0] == index and path in (None, key[1])]
        for key in found:
            del self._documents[key]
        return len(found)

    def find(self, run_id: str) -> RunRow | None:
        return self._rows.get(run_id)

    def runs(self, prefix: str = "") -> list[RunRow]:
        rows = [row for run_id, row in self._rows.items() if run_id.startswith(prefix)]
        return sorted(rows, key=lambda row: (row.started, row.run_id), reverse=True)

    def page(self, query: RunQuery, limit: int, after: str = "") -> list[RunRow]:
        recorded = list(self._rows)
        order = recorded[::-1] if query.search else [row.run_id for row in self.runs()]
        order = order[order.index(after) + 1 :] if after in order else order
        return list(
            islice(matching_runs(query, map(self._rows.__getitem__, order), self._words.get, self._rows), limit)
        )

    def count_by_status(self) -> dict[Status, int]:
        return dict(Counter(row.status for row in self._rows.values() if row.status is not None))

    def unindexed(self, limit: int) -> list[UnindexedRun]:
        return [UnindexedRun(self._rows[name], mark) for name, mark in [*self._unindexed.items()][::-1][:limit]]

    def count_unindexed(self) -> int:
        return len(self._unindexed)

    def store_words(self, found: Sequence[IndexedRun]) -> None:
        for one in found:
            if self._unindexed.get(one.run_id) == one.mark:
                self._words[one.run_id] = one.words
                del self._unindexed[one.run_id]

    def approvals(self) -> list[Approval]:
        return list(self._approvals.values())

    def approve(self, approval: Approval) -> int:
        for known in self._approvals.values():
            same = known.covers(approval.skill_hash, approval.op, approval.rule)
            if same and known.project == approval.project:
                return known.id
        number = self._last_approval = self._last_approval + 1
        self._approvals[number] = replace(approval, id=number)
        return number

    def revoke(self, approval_id: int) -> bool:
        return self._approvals.pop(approval_id, None) is not None

    def access_tokens(self) -> list[AccessToken]:
        return list(self._access_tokens.values())

    def add_access_token(self, token: AccessToken) -> bool:
        return self._access_tokens.setdefault(token.name, token) is token

    def remove_access_token(self, name: str) -> bool:
        return self._access_tokens.pop(name, None) is not None

    def balance(self, account: str) -> Balance:
        return self._balances.get(account, Balance())

    def charges(self, since: str = "") -> list[SpendRow]:
        return [row for key, row in sorted(self._charges.items()) if row.day >= since]

    def ledger(self) -> Bookkeeping:
        return Bookkeeping(self.charges(), dict(self._balances), self.removals())

    def restore_ledger(self, ledger: Bookkeeping) -> None:
        self._charges = {row.key: row for row in ledger.charges}
        self._balances = dict(ledger.accounts)
        self._removals = set(ledger.removals)

    def reserving(self) -> list[RunRow]:
        return [row for row in self._rows.values() if row.reserved is not None and not row.imported]

    def delete(self, run_ids: Collection[str], *, dry_run: bool = False) -> Deletion:
        wanted = {run_id for run_id in run_ids if run_id in self._rows}
        if claimed := wanted & self._claims:
            raise RunBusy(f"run `{min(claimed)}` is being executed")
        check_deletable(wanted, ((row.run_id, row.parent, row.fork_of) for row in self._rows.values()))
        events = [event.raw for run_id in wanted for event in self._events[run_id]]
        unused = {name for raw in events for name in hashes_in(raw) if name in self._blobs}
        for run_id, others in self._events.items():
            if run_id not in wanted:
                unused.difference_update(*(hashes_in(event.raw) for event in others))
        size = sum(map(len, events)) + sum(len(self._blobs[name]) for name in unused)
        if not dry_run:
            for run_id in wanted:
                self._close_accounts(self._rows[run_id])
            self._events = {run_id: own for run_id, own in self._events.items() if run_id not in wanted}
            self._rows = {run_id: row for run_id, row in self._rows.items() if run_id not in wanted}
            self._words = {run_id: words for run_id, words in self._words.items() if run_id not in wanted}
            self._unindexed = {run_id: mark for run_id, mark in self._unindexed.items() if run_id not in wanted}
            self._blobs = {name: content for name, content in self._blobs.items() if name not in unused}
            self._inbox = [(to, message) for to, message in self._inbox if to not in wanted]
            self._wakes = {seq: wake for seq, wake in self._wakes.items() if wake.run_id not in wanted}
            self._removals |= wanted
        return Deletion(len(events), len(unused), size)

    def removals(self) -> list[str]:
        return sorted(self._removals)

    def forget_removals(self, run_ids: Collection[str]) -> None:
        self._removals.difference_update(run_ids)

    def _close_accounts(self, row: RunRow) -> None:
        if row.reserved is not None and not row.imported:
            posted = postings(row.run_id, row.skill, row.reserved, [in_full(row.reserved)])
            assert posted is not None
            self._post(posted)
        for name in run_accounts(row.run_id):
            self._balances.pop(name, None)

    def close(self) -> None:
        pass
