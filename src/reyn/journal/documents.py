"""The documents of search indexes, which are kept beside the runs: their passages, and a vector for each.

A document is stored as a whole, in one transaction, so that an index is never half of a document. `reyn.retrieval`
writes and reads the contents. The table is made with the first index.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

SQLITE_DOCUMENTS = """
CREATE TABLE IF NOT EXISTS documents (
    name TEXT NOT NULL, path TEXT NOT NULL, digest TEXT NOT NULL, embedder TEXT NOT NULL, count INTEGER NOT NULL,
    changed INTEGER NOT NULL, passages BLOB NOT NULL, vectors BLOB NOT NULL, PRIMARY KEY (name, path));
"""
POSTGRES_DOCUMENTS = """
CREATE TABLE IF NOT EXISTS documents (
    name text COLLATE "C", path text COLLATE "C", digest text NOT NULL, embedder text NOT NULL, count bigint NOT NULL,
    changed bigint NOT NULL, passages bytea NOT NULL, vectors bytea NOT NULL, PRIMARY KEY (name, path));
"""
_ROWS = "SELECT name, path, digest, embedder, count, changed FROM documents"
ALL_ROWS = f"{_ROWS} ORDER BY name, path"
ROWS = f"{_ROWS} WHERE name = ? ORDER BY path"
CONTENTS = "SELECT path, passages, vectors FROM documents WHERE name = ? ORDER BY path"
STORE = """
INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name, path) DO UPDATE SET
    digest = excluded.digest, embedder = excluded.embedder, count = excluded.count, changed = excluded.changed,
    passages = excluded.passages, vectors = excluded.vectors
RETURNING path
"""
ONE_CONTENT = "SELECT path, passages, vectors FROM documents WHERE name = ? AND path = ?"
REMOVE = "DELETE FROM documents WHERE name = ? AND path = ? RETURNING path"
DROP = "DELETE FROM documents WHERE name = ? RETURNING path"


class DocumentRow(msgspec.Struct, frozen=True):
    """A document of an index, without its content.

    Attributes:
        index: The index.
        path: Where it comes from. An empty path is that of the index's own row, which has no passages.
        digest: What its content depends on, so that an unchanged document is not embedded again.
        embedder: What its vectors were made with; empty if it has none.
        count: How many passages it has.
        changed: When it was stored, in microseconds since 1970.
    """

    index: str
    path: str
    digest: str
    embedder: str
    count: int
    changed: int


class DocumentContent(msgspec.Struct, frozen=True):
    """The content of a document: its passages as JSON, and their vectors, one after the other."""

    path: str
    passages: bytes
    vectors: bytes


class DocumentStore(Protocol):
    """The part of a journal that keeps the documents of search indexes."""

    def documents(self, index: str | None = None) -> list[DocumentRow]:
        """Return the documents of an index, or of all, by path."""

    def document_contents(self, index: str, path: str | None = None) -> list[DocumentContent]:
        """Return the content of a document of an index, or of all, by path."""

    def store_document(self, row: DocumentRow, content: DocumentContent) -> None:
        """Store a document, in place of the one with its path, in one transaction."""

    def remove_documents(self, index: str, path: str | None = None) -> int:
        """Remove a document of an index, or all; return how many there were."""
