"""The journal port: the interface of every journal, and the rules that all of them enforce.

An append is atomic and names the last sequence number it expects, so two drivers cannot write two histories. Other
processes send messages through the inbox instead of appending (`reyn.journal.messages`).
`reyn.testing.journal_conformance` tests an implementation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Protocol

import msgspec
from msgspec.structs import replace

from reyn.errors import AppendConflict, EventInvalid, JournalError, RunInUse
from reyn.journal import kinds, registry
from reyn.journal.canonical import Blob
from reyn.journal.documents import DocumentStore
from reyn.journal.lifecycle import RunRow, project, rebuild
from reyn.journal.registry import GENESIS, Body, Event, Status
from reyn.journal.spending import SPENDING, Balance, Postings, SpendRow, postings
from reyn.journal.wakes import PendingWake, Wake

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from reyn.journal.listing import IndexedRun, RunQuery, UnindexedRun
    from reyn.journal.messages import InboxMessage, InboxPayload
    from reyn.journal.rates import RateNeed, RateRefusal, RateSlice
    from reyn.journal.results import AccessToken, Approval
    from reyn.journal.workers import WorkerReport


STATE = ".reyn"
"""The state directory, relative to the project."""
DATABASE = "journal.db"
"""The file of the journal in the state directory."""


class Batch(msgspec.Struct, frozen=True):
    """Events of one run to append in one transaction, with the blobs they refer to and the wakes they cause."""

    run_id: str
    expected_seq: int
    events: Sequence[Event]
    blobs: Sequence[Blob] = ()
    wakes: Sequence[Wake] = ()


class Deletion(msgspec.Struct, frozen=True):
    """The numbers of deleted events and contents. `bytes` is the size of events and contents."""

    events: int = 0
    blobs: int = 0
    bytes: int = 0


class Bookkeeping(msgspec.Struct, frozen=True):
    """What a journal stores beside its runs, so that it outlives them.

    Attributes:
        charges: What model calls were charged.
        accounts: The balances of budget accounts.
        removals: The ids of deleted runs whose workspace folders are still to be removed.
    """

    charges: Sequence[SpendRow]
    accounts: dict[str, Balance]
    removals: Sequence[str]


class Journal(DocumentStore, Protocol):
    """Storage for runs: events, blobs, inbox messages, claims, wakes, and a row per run."""

    is_remote: ClassVar[bool]
    """Whether a commit waits for a server, so that the event loop must not wait for it."""

    def append(
        self,
        run_id: str,
        expected_seq: int,
        events: Sequence[Event],
        blobs: Sequence[Blob] = (),
        wakes: Sequence[Wake] = (),
    ) -> int:
        """Store events, blobs and wakes in one transaction; return the new last sequence number.

        Raises:
            AppendConflict: The run's last event is not `expected_seq`. Nothing is stored.
            ClaimLost: This process held the claim on the run and lost it. Nothing is stored.
            EventInvalid: An event is unknown, malformed or not chained. Nothing is stored.
            BudgetExceeded: A `budget_reserved` exceeds the cap of an account. Nothing is stored.
        """

    def append_many(self, batches: Sequence[Batch]) -> list[int | JournalError]:
        """Store batches of different runs in one transaction. A rejected batch does not affect the others."""

    def import_runs(self, batches: Sequence[Batch], origin: str) -> None:
        """Store whole runs of an archive in one transaction, all of them or none, marked as imported.

        Args:
            batches: One per run, each after the run that it was forked from. A batch brings all content of its run.
            origin: Where the runs come from; `RunRow.imported` shows it.

        Raises:
            AppendConflict: A run exists already.
            EventInvalid: An event is unknown, malformed or not chained.
        """

    def restore(self, batch: Batch, imported: str) -> int:
        """Append events as another journal has recorded them, for a copy; return the new last sequence number.

        Nothing is charged, no cap and no claim is checked: `restore_ledger` stores what was charged.

        Args:
            batch: The events.
            imported: `RunRow.imported` of the run.

        Raises:
            AppendConflict: The run's last event is not the one that is expected. Nothing is stored.
            EventInvalid: An event is unknown, malformed or not chained. Nothing is stored.
        """

    def ledger(self) -> Bookkeeping:
        """Return what all model calls were charged, the balances of all accounts, and `removals`."""

    def restore_ledger(self, ledger: Bookkeeping) -> None:
        """Store a ledger in place of the journal's own, in one transaction."""

    def read(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """Yield the events of a run in order, those of a fork's origin first. An unknown run has none.

        Raises:
            ChainBroken: Names the first event that is missing or does not match its hash.
        """

    def blob(self, hash: str) -> bytes:
        """Return a blob's content. Raises `BlobMissing` if it is missing or does not match its hash."""

    def post(self, run_id: str, payload: InboxPayload, wakes: Sequence[Wake] = ()) -> int:
        """Send a message to a run, and store the wakes that it causes, in one transaction.

        Returns the message's id. Raises `EventInvalid` if it is malformed.
        """

    def drain(self, run_id: str, after: int = 0) -> list[InboxMessage]:
        """Return the messages to a run with ids above `after`. Removes nothing: events record which messages were
        processed."""

    def peek(self, run_id: str, after: int = 0) -> list[InboxMessage]:
        """Do the same as `drain`, maybe half a second late: for a driver that asks again and again."""

    def claim(self, run_id: str) -> AbstractContextManager[None]:
        """Hold the exclusive right to execute a run. Raises `RunBusy`; released when the process dies.

        In a journal that several machines share, a claim is a lease that the holder renews. A process that is paused
        or disconnected for longer loses it: `check_claim` and `append` then raise `ClaimLost`.
        """

    def check_claim(self, run_id: str) -> None:
        """Raise `ClaimLost` if this process held the claim on a run and lost it. Called before every effect."""

    def is_claimed(self, run_id: str) -> bool:
        """Return whether a live process holds the claim on a run."""

    def claimed(self, names: Collection[str]) -> set[str]:
        """Return those of these names on which live processes hold claims: of runs, or of slots."""

    def take_rate(self, name: str, need: RateNeed) -> RateSlice | RateRefusal:
        """Lease a slice of the rates of an endpoint, by the rule of `reyn.journal.rates`, on the journal's clock."""

    def take_wakes(self, queues: Collection[str], limit: int, hold: float) -> list[PendingWake]:
        """Return due wakes of these queues, those of the highest priority first, then the oldest.

        They are not returned again for `hold` seconds. A caller that dies in that time has not lost them.
        """

    def hold_wakes(self, seqs: Collection[int], hold: float) -> None:
        """Let wakes not be returned for `hold` seconds from now; with 0, they are due at once."""

    def finish_wakes(self, seqs: Collection[int]) -> None:
        """Remove wakes. Unknown ones are ignored."""

    def wakes(self, run_id: str | None = None) -> list[PendingWake]:
        """Return the wakes that are not finished, of all runs or of one, oldest first."""

    def first_wakes(self, queue: str, limit: int) -> list[PendingWake]:
        """Return the first wakes of a queue in the order of delivery, also those that are held or not due."""

    def report_worker(self, report: WorkerReport) -> None:
        """Store what a worker reports of itself, with the time of the journal's clock. A day later it is removed."""

    def forget_worker(self, worker_id: str) -> None:
        """Remove the report of a worker that ends. An unknown one is ignored."""

    def workers(self) -> list[WorkerReport]:
        """Return the last report of each worker."""

    def find(self, run_id: str) -> RunRow | None:
        """Return the row of a run, or `None` if there is no such run."""

    def runs(self, prefix: str = "") -> list[RunRow]:
        """Return the rows of the runs whose id begins with `prefix`, newest first."""

    def page(self, query: RunQuery, limit: int, after: str = "") -> list[RunRow]:
        """Return up to `limit` runs that a query selects, newest first: those that come after the run `after`.

        The newest are those that started last; of a search, those that were recorded last. An unknown `after` is
        ignored. A search finds runs whose words are stored.
        """

    def count_by_status(self) -> dict[Status, int]:
        """Count all runs, the imported ones and sub-runs included, by their status."""

    def unindexed(self, limit: int) -> list[UnindexedRun]:
        """Return runs whose words are not stored or not current, those recorded last first."""

    def count_unindexed(self) -> int:
        """Count the runs whose words are not stored or not current, up to 100,000."""

    def store_words(self, found: Sequence[IndexedRun]) -> None:
        """Store the words that runs are searched by, in place of those stored before.

        A run that was deleted meanwhile, or whose mark has changed, is left as it is.
        """

    def approvals(self) -> list[Approval]:
        """Return the standing approvals, oldest first."""

    def approve(self, approval: Approval) -> int:
        """Store a standing approval and return its id; one that exists already is not stored twice."""

    def revoke(self, approval_id: int) -> bool:
        """Remove a standing approval. Returns whether it existed."""

    def access_tokens(self) -> list[AccessToken]:
        """Return the access tokens of the HTTP server, oldest first."""

    def add_access_token(self, token: AccessToken) -> bool:
        """Store an access token. Returns whether its name was free; if not, nothing is stored."""

    def remove_access_token(self, name: str) -> bool:
        """Remove an access token. Returns whether it existed."""

    def balance(self, account: str) -> Balance:
        """Return the balance of a budget account; zero if nothing drew on it."""

    def charges(self, since: str = "") -> list[SpendRow]:
        """Return what model calls were charged from a day on, oldest first. Imported runs are not included."""

    def reserving(self) -> list[RunRow]:
        """Return the rows of runs with an open reservation. Imported runs are not included."""

    def delete(self, run_ids: Collection[str], *, dry_run: bool = False) -> Deletion:
        """Delete runs with their events and messages, and the content that no other run refers to, in one transaction.

        What they were charged stays; an open reservation is charged in full. Unknown ids are ignored. Other connections
        may stay open.

        Args:
            run_ids: The runs to delete.
            dry_run: Check and count only.

        Raises:
            RunBusy: A run is claimed.
            RunInUse: A run that is not deleted was forked from one that is, or belongs to the same family.
        """

    def removals(self) -> list[str]:
        """Return the ids of deleted runs whose workspace folders are still to be removed."""

    def forget_removals(self, run_ids: Collection[str]) -> None:
        """Remove ids from `removals`: their workspace folders are gone."""

    def close(self) -> None:
        """Release all resources. The journal cannot be used afterwards."""


class OpenReservation(msgspec.Struct, frozen=True):
    """What a run has reserved for a model call. `is_executing` is false if its process died during the call."""

    run_id: str
    skill: str
    reserved: kinds.BudgetReserved
    is_executing: bool


def open_reservations(journal: Journal) -> list[OpenReservation]:
    """Return the open reservations of a journal, the largest first.

    The provider may have billed a call whose process died, so its reservation counts until the run is resumed,
    cancelled or deleted, and is then charged in full. A run that no process executes will not release anything by
    itself.
    """
    reservations = []
    for row in journal.reserving():
        is_executing = journal.is_claimed(row.run_id)
        if not is_executing:
            # It may have settled the call and released its claim since the row was read.
            current = journal.find(row.run_id)
            if current is None or current.reserved != row.reserved:
                continue
        assert row.reserved is not None
        reservations.append(OpenReservation(row.run_id, row.skill, row.reserved, is_executing))
    return sorted(reservations, key=lambda one: (-one.reserved.tokens, one.run_id))


_HASH = re.compile(rb'"([0-9a-f]{64})"')


def hashes_in(raw: bytes) -> set[str]:
    """Return every text in the data of an event that can be the hash of content.

    This may be more than the event refers to, and is never less; it is much faster than decoding the event.
    """
    return {name.decode() for name in _HASH.findall(raw)}


def check_deletable(run_ids: Collection[str], links: Iterable[tuple[str, str, str]]) -> None:
    """Check that no run outside of `run_ids` needs one of them.

    Args:
        run_ids: The runs to delete.
        links: Id, parent and fork origin of every run.

    Raises:
        RunInUse: One is needed.
    """
    rows = list(links)
    recorded = {run_id for run_id, _, _ in rows}
    for run_id, parent, origin in rows:
        if run_id not in run_ids and origin in run_ids:
            raise RunInUse(f"run `{run_id}` was forked from `{origin}` and needs its events")
        if parent in recorded and (run_id in run_ids) != (parent in run_ids):
            raise RunInUse(f"run `{run_id}` is a sub-run of `{parent}`; they can only be deleted together")


MAX_TS = 253_402_300_799_999_999
"""The last microsecond of the year 9999, in microseconds since 1970."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Run ids are used as file names."""
MAX_RUN_ID = 240
MAX_ROOT_RUN_ID = 100
"""Shorter, because the ids of sub-runs extend the id of their root run."""


def is_run_id(text: str, max_length: int = MAX_RUN_ID) -> bool:
    """Return whether a text is a valid run id."""
    return len(text) <= max_length and _RUN_ID.fullmatch(text) is not None


_OPENINGS: dict[type[Body], type[Body]] = {cls: cls for cls in (kinds.RunStarted, kinds.RunForked)}
"""The events that begin a run."""
_NEWLINE = ord("\n")


def check_batch(batch: Batch, head_seq: int, head_hash: str, *, opens_fork: bool = False) -> list[Body]:
    """Check a batch before it is appended; return the decoded data of its events.

    Args:
        batch: The batch.
        head_seq: The sequence number of the run's last event, 0 for a new run; for a new fork, of the fork point.
        head_hash: The hash of that event.
        opens_fork: Whether the batch opens a fork.

    Raises:
        AppendConflict: The batch does not expect this head.
        EventInvalid: An event is unknown, malformed, not chained, or opens a run in the wrong way.
    """
    if head_seq != batch.expected_seq:
        raise AppendConflict(
            f"run `{batch.run_id}` is at event {head_seq}, not {batch.expected_seq}: another driver appended first"
        )
    if (head_seq == 0 or opens_fork) and not is_run_id(batch.run_id):
        raise EventInvalid(f"`{batch.run_id}` is not a valid run id")
    run_id, seq, prev = batch.run_id, head_seq, head_hash if head_seq else GENESIS
    opening: type[Body] | None = kinds.RunForked if opens_fork else None
    if head_seq == 0:
        opening = kinds.RunStarted
    bodies = registry.decode_all(batch.events)
    for event, body in zip(batch.events, bodies, strict=True):
        seq += 1
        if event.seq != seq or event.prev != prev or event.run_id != run_id:
            raise EventInvalid(f"event {event.seq} of run `{event.run_id}` does not follow event {seq - 1}")
        if not 0 <= event.ts <= MAX_TS:
            raise EventInvalid(f"event {event.seq} of run `{event.run_id}` has the impossible time {event.ts}")
        if _NEWLINE in event.raw:
            raise EventInvalid(f"event {event.seq} of run `{event.run_id}` has more than one line")
        if _OPENINGS.get(type(body)) is not opening:
            raise EventInvalid(
                f"event {seq} `{event.kind}`: a run begins with exactly one `run_started` or `run_forked`"
            )
        opening = None
        prev = event.hash
    return bodies


def admit(
    batch: Batch,
    row: RunRow | None,
    history: Callable[[str], Iterator[Event]],
    imported_from: str = "",
    restored: str | None = None,
) -> tuple[RunRow, Postings | None] | None:
    """Check a batch against the row of its run.

    Args:
        batch: The batch.
        row: The row of the run; `None` if it is a new one.
        history: Returns the events of a run, those of its origins included.
        imported_from: The origin of an imported run. Nothing is charged for it: it was paid for elsewhere.
        restored: `RunRow.imported` of a run that is restored. Nothing is charged for it: the ledger is restored.

    Returns:
        The row after the batch and its effects on spending, if it has any; `None` if it has no events.

    Raises:
        AppendConflict: The batch does not expect this row.
        EventInvalid: An event is unknown, malformed, not chained, or opens a run in the wrong way.
    """
    if imported_from and row is not None:
        raise AppendConflict(f"run `{batch.run_id}` exists already")
    opening = registry.decode(batch.events[0]) if row is None and batch.events else None
    if isinstance(opening, kinds.RunForked):
        point = opening.point
        before = list(islice(history(point.run), point.seq))
        point_hash = before[-1].hash if len(before) == point.seq else ""
        bodies = check_batch(batch, point.seq, point_hash, opens_fork=True)
        after = project(None, batch.events, bodies, rebuild(before))
    else:
        bodies = check_batch(batch, row.seq if row else 0, row.hash if row else GENESIS)
        if not batch.events:
            return None
        after = project(row, batch.events, bodies)
    if imported_from or restored is not None:
        return replace(after, imported=imported_from or restored or ""), None
    if SPENDING.isdisjoint(map(type, bodies)):
        return after, None
    return after, postings(batch.run_id, after.skill, row.reserved if row else None, bodies)
