"""What the journals in databases have in common: how a run is read, standing approvals, access tokens."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from reyn.errors import JournalError
from reyn.journal import documents
from reyn.journal.documents import DocumentContent, DocumentRow
from reyn.journal.packing import head_of, unpack
from reyn.journal.port import Batch
from reyn.journal.registry import GENESIS
from reyn.journal.results import AccessToken, Approval

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reyn.journal.canonical import Blob
    from reyn.journal.registry import Event
    from reyn.journal.rows import Head
    from reyn.journal.wakes import Wake

S = TypeVar("S")
"""What a query is asked: in a transaction that writes, or not."""

_APPROVALS = "SELECT skill, skill_hash, op, rule, by, at, run_id, project, id FROM approvals ORDER BY id"
# An update of what is there returns its id; nothing else would.
_APPROVE = """
INSERT INTO approvals (skill, skill_hash, op, rule, by, at, run_id, project) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (skill_hash, op, rule, project) DO UPDATE SET project = excluded.project RETURNING id
"""
_decode_token = msgspec.json.Decoder(AccessToken).decode
_ADD_ACCESS = "INSERT INTO access_tokens (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING id"


class StoredJournal(Generic[S]):
    """A journal in any database; `Journal` documents the public methods. Its queries have `?` for each value."""

    def _select(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Return the rows of a query."""
        raise NotImplementedError

    def _change(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        """Execute a statement in a transaction of its own; return its rows."""
        raise NotImplementedError

    def _has_documents(self) -> bool:
        """Return whether the table of documents exists."""
        raise NotImplementedError

    def _make_documents(self) -> None:
        """Make the table of documents if there is none."""
        raise NotImplementedError

    def _head(self, run_id: str, source: S) -> Head | None:
        """Return the head of a run."""
        raise NotImplementedError

    def _last_commit(self, head: Head, seq: int, source: S) -> tuple[int, bytes] | None:
        """Return the last commit of a run that ends with an event or before it: its last event, and its hashes."""
        raise NotImplementedError

    def _next_commits(self, head: Head, after: int, source: S) -> list[tuple[int, bytes, bytes]]:
        """Return the next commits of a run: of each its last event, its hashes and its events."""
        raise NotImplementedError

    def append_many(self, batches: Sequence[Batch]) -> list[int | JournalError]:
        raise NotImplementedError

    # -- runs -----------------------------------------------------------------------------------------

    def append(
        self,
        run_id: str,
        expected_seq: int,
        events: Sequence[Event],
        blobs: Sequence[Blob] = (),
        wakes: Sequence[Wake] = (),
    ) -> int:
        [result] = self.append_many([Batch(run_id, expected_seq, events, blobs, wakes)])
        if isinstance(result, JournalError):
            raise result
        return result

    def _read(self, run_id: str, after: int, source: S) -> Iterator[Event]:
        """Yield the events of a run and of those that it is a fork of, in pages."""
        head = self._head(run_id, source)
        if head is None:
            return
        row, seq, end, prev = head.row, 0, 0, GENESIS
        if after > row.fork_seq and (found := self._last_commit(head, after, source)):
            end, hashes = found
            seq, prev = end, head_of(hashes)
        elif row.fork_of:
            seq = row.fork_seq
            first = min(after, seq - 1)
            for event in islice(self._read(row.fork_of, first, source), seq - first):
                prev = event.hash
                if event.seq > after:
                    yield event
        while page := self._next_commits(head, end, source):
            for _, hashes, text in page:
                events = unpack(run_id, text, hashes, seq, prev)
                yield from events if seq >= after else [event for event in events if event.seq > after]
                seq, prev = events[-1].seq, events[-1].hash
            end = page[-1][0]

    # -- what belongs to no run -----------------------------------------------------------------------

    def approvals(self) -> list[Approval]:
        return [Approval(*columns) for columns in self._select(_APPROVALS)]

    def approve(self, approval: Approval) -> int:
        [(number,)] = self._change(_APPROVE, msgspec.structs.astuple(approval)[:8])
        return int(number)

    def revoke(self, approval_id: int) -> bool:
        return bool(self._change("DELETE FROM approvals WHERE id = ? RETURNING id", (approval_id,)))

    def access_tokens(self) -> list[AccessToken]:
        rows = self._select("SELECT value FROM access_tokens ORDER BY id")
        return [_decode_token(value) for (value,) in rows]

    def add_access_token(self, token: AccessToken) -> bool:
        return bool(self._change(_ADD_ACCESS, (token.name, msgspec.json.encode(token).decode())))

    def remove_access_token(self, name: str) -> bool:
        return bool(self._change("DELETE FROM access_tokens WHERE name = ? RETURNING id", (name,)))

    def removals(self) -> list[str]:
        return [run_id for (run_id,) in self._select("SELECT run_id FROM removals ORDER BY run_id")]

    # -- documents of search indexes ------------------------------------------------------------------

    def documents(self, index: str | None = None) -> list[DocumentRow]:
        if not self._has_documents():
            return []
        rows = self._select(documents.ALL_ROWS) if index is None else self._select(documents.ROWS, (index,))
        return [DocumentRow(*columns) for columns in rows]

    def document_contents(self, index: str, path: str | None = None) -> list[DocumentContent]:
        if not self._has_documents():
            return []
        query, values = (documents.CONTENTS, (index,)) if path is None else (documents.ONE_CONTENT, (index, path))
        rows = self._select(query, values)
        return [DocumentContent(path, bytes(passages), bytes(vectors)) for path, passages, vectors in rows]

    def store_document(self, row: DocumentRow, content: DocumentContent) -> None:
        if not self._has_documents():
            self._make_documents()
        columns = msgspec.structs.astuple(row)
        self._change(documents.STORE, (*columns, content.passages, content.vectors))

    def remove_documents(self, index: str, path: str | None = None) -> int:
        if not self._has_documents():
            return 0
        if path is None:
            return len(self._change(documents.DROP, (index,)))
        return len(self._change(documents.REMOVE, (index, path)))
