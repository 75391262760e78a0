"""Write, search and drop the indexes of a project.

A document is stored as a whole when its passages are embedded, so that a killed write leaves whole documents; the next
one embeds what is missing. Passages are ranked by words (BM25) and by vectors (an exact scan), and the two rankings are
joined by the ranks (reciprocal rank fusion). What a search needs is kept in memory as long as the index is the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import DocumentUnreadable, IndexDamaged, IndexMissing, IndexOutdated, ReynError
from reyn.journal.documents import DocumentContent, DocumentRow
from reyn.journal.wakes import microseconds
from reyn.ranking import Ranking
from reyn.retrieval.embedders import Embedder, Embedders, import_numpy, of_length_one
from reyn.retrieval.passages import FORM, Passage, SourceDocument

if TYPE_CHECKING:
    from reyn.journal import Journal

_RANKED = 50
"""How many passages of each ranking are joined."""
_RANK_OFFSET = 5
"""The constant of reciprocal rank fusion: small, because the first ranks of either ranking are good."""
_WEIGHTS = (0.7, 1.0)
"""Of the ranking by words and of that by vectors, as measured (`bench.retrieval`)."""
_WRITING, _COMPLETE = "writing", "complete"
_MAX_LOADED = 4
"""Indexes that are kept in memory."""


class Found(msgspec.Struct, frozen=True):
    """A passage that was found.

    Attributes:
        path: The document.
        number: Which of its passages it is, from 1.
        passage: The passage.
        score: The joined score; only its order has a meaning.
    """

    path: str
    number: int
    passage: Passage
    score: float


class SearchResult(msgspec.Struct, frozen=True):
    """What a search found, how it ranked, and what the reader should know about it."""

    found: tuple[Found, ...]
    mode: str
    note: str = ""


class WriteReport(msgspec.Struct, frozen=True):
    """What writing an index did.

    Attributes:
        documents: The documents that the index has now.
        passages: Their passages.
        embedded: The passages that were embedded now.
        unchanged: The documents that were as they are in the index.
        removed: The documents that were removed.
        tokens: The tokens that were embedded.
        skipped: The documents that cannot be indexed, each with the reason.
    """

    documents: int
    passages: int
    embedded: int = 0
    unchanged: int = 0
    removed: int = 0
    tokens: int = 0
    skipped: tuple[tuple[str, str], ...] = ()


class IndexOverview(msgspec.Struct, frozen=True):
    """An index: its documents and passages, what its vectors were made with, and whether its last write ended."""

    name: str
    documents: int
    passages: int
    embedders: tuple[str, ...]
    is_complete: bool
    changed: int


_Placed = tuple[str, int, Passage]
"""A passage with its document and its number there."""


class _Loaded:
    """An index in memory, or the part of one that a run may read.

    Attributes:
        passages: Its passages.
        with_vectors: Which of them have vectors.
        table: The vectors; `None` if there are none.
        paths: The documents that they are from.
    """

    def __init__(self, passages: Iterable[_Placed], with_vectors: Iterable[int], table: Any) -> None:
        self.passages = tuple(passages)
        self.with_vectors = tuple(with_vectors)
        self.table = table
        self._ranking = Ranking[_Placed](lambda one: one[2].searched)
        self.paths = frozenset(path for path, _, _ in self.passages)
        self._part: tuple[frozenset[str], _Loaded] | None = None

    def readable(self, allows: Callable[[str], bool]) -> _Loaded:
        """Return the part whose documents a run may read. Nothing else has an influence on its ranks and scores."""
        paths = frozenset(filter(allows, self.paths))
        if paths == self.paths:
            return self
        if (part := self._part) is None or part[0] != paths:
            numbers = [number for number, one in enumerate(self.passages) if one[0] in paths]
            new = {number: place for place, number in enumerate(numbers)}
            rows = [row for row, number in enumerate(self.with_vectors) if number in new]
            with_vectors = [new[self.with_vectors[row]] for row in rows]
            table = self.table[rows] if rows else None
            part = self._part = paths, _Loaded(map(self.passages.__getitem__, numbers), with_vectors, table)
        return part[1]

    def by_words(self, query: str) -> list[int]:
        """Return the passages that match best."""
        return [at for at, _ in self._ranking.best_matches(query, self.passages, _RANKED, is_brief=True)]

    def by_vector(self, vector: Any) -> list[int]:
        """Return the passages with the most similar vectors."""
        if self.table is None:
            return []
        if vector.shape != (self.table.shape[1],):
            size = self.table.shape[1]
            raise IndexOutdated(f"the vectors of the index have {size} numbers, and that of the query {vector.size}")
        numpy = import_numpy()
        scores = self.table @ vector
        best = numpy.argpartition(-scores, _RANKED)[:_RANKED] if len(scores) > _RANKED else numpy.arange(len(scores))
        best = best[numpy.lexsort((best, -scores[best]))]
        return [self.with_vectors[at] for at in best if scores[at] > 0]


def _load(contents: Iterable[DocumentContent], embedded: frozenset[str], name: str) -> _Loaded:
    """Return an index from what is stored of its documents. Raises `IndexDamaged`."""
    parts: list[bytes] = []
    with_vectors: list[int] = []
    passages: list[_Placed] = []
    for content in contents:
        found = decode_passages(content, name)
        if content.path in embedded and found:
            parts.append(content.vectors)
            with_vectors += range(len(passages), len(passages) + len(found))
        passages += [(content.path, number, passage) for number, passage in enumerate(found, 1)]
    return _Loaded(passages, with_vectors, _table(parts, len(with_vectors), name) if parts else None)


def _table(parts: list[bytes], count: int, name: str) -> Any:
    numpy = import_numpy()
    content = b"".join(parts)
    if not content or len(content) % (2 * count):
        raise IndexDamaged(f"the vectors of the index `{name}` do not fit its passages")
    return numpy.frombuffer(content, numpy.float16).reshape(count, -1).astype(numpy.float32)


def decode_passages(content: DocumentContent, name: str) -> list[Passage]:
    """Return the passages of a document. Raises `IndexDamaged`."""
    try:
        return msgspec.json.decode(content.passages, type=list[Passage])
    except msgspec.MsgspecError as error:
        raise IndexDamaged(f"the passages of `{content.path}` in the index `{name}` cannot be read") from error


def joined(*rankings: list[int]) -> list[tuple[int, float]]:
    """Join a ranking by words and one by vectors by reciprocal rank fusion, best first."""
    scores: dict[int, float] = {}
    for ranking, weight in zip(rankings, _WEIGHTS, strict=False):
        for rank, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + weight / (_RANK_OFFSET + rank)
    return sorted(scores.items(), key=lambda one: (-one[1], one[0]))


class Indexes:
    """The indexes of a project."""

    def __init__(self, journal: Callable[[], Journal], embedders: Embedders) -> None:
        self._journal = journal
        self.embedders = embedders
        self._loaded: dict[str, tuple[int, _Loaded]] = {}
        self._lock = threading.Lock()

    # -- writing --------------------------------------------------------------------------------------

    async def write(
        self, name: str, documents: AsyncIterable[SourceDocument], covers: Callable[[str], bool] = lambda _: False
    ) -> WriteReport:
        """Bring an index up to date. Only passages that are new or have changed are embedded.

        Args:
            name: The index, which is made if there is none.
            documents: The documents to write.
            covers: Whether a document that is in the index, but not among them, is to be removed.

        Raises:
            ReynError: The embedder cannot be used. What was written before stays; the next write continues.
        """
        journal, embedder = self._journal(), self.embedders.current
        if embedder is not None:
            import_numpy()
        made_with = embedder.name if embedder is not None else ""
        before = {row.path: row for row in await asyncio.to_thread(journal.documents, name)}
        await asyncio.to_thread(self._mark, journal, name, _WRITING)
        seen, skipped = set[str](), list[tuple[str, str]]()
        embedded = unchanged = tokens = 0
        async for document in documents:
            seen.add(document.path)
            row = before.get(document.path)
            digest = f"{FORM}:{document.digest}"
            if row is not None and row.digest == digest and row.embedder in (made_with, "" if row.count == 0 else None):
                unchanged += 1
                continue
            try:
                passages = await document.read()
            except DocumentUnreadable as error:
                skipped.append((document.path, f"{error.code}: {error.message}"))
                continue
            reused = await asyncio.to_thread(self._vectors, journal, row, made_with)
            new = DocumentRow(name, document.path, digest, made_with, len(passages), microseconds())
            done = await self._store(journal, new, passages, embedder, reused)
            embedded, tokens = embedded + done[0], tokens + done[1]
        gone = [path for path in before if path and path not in seen and covers(path)]
        for path in gone:
            await asyncio.to_thread(journal.remove_documents, name, path)
        await asyncio.to_thread(self._mark, journal, name, _COMPLETE)
        rows = [row for row in await asyncio.to_thread(journal.documents, name) if row.path]
        count = sum(row.count for row in rows)
        return WriteReport(len(rows), count, embedded, unchanged, len(gone), tokens, tuple(skipped))

    def _mark(self, journal: Journal, name: str, state: str) -> None:
        """Store the index's own row, which says whether a write has ended."""
        journal.store_document(DocumentRow(name, "", state, "", 0, microseconds()), DocumentContent("", b"[]", b""))

    def _vectors(self, journal: Journal, row: DocumentRow | None, made_with: str) -> dict[str, bytes]:
        """Return the vectors of the passages of a document as it was, by their texts."""
        if row is None or not row.count or not made_with or row.embedder != made_with:
            return {}
        [content] = journal.document_contents(row.index, row.path) or [DocumentContent("", b"[]", b"")]
        passages = decode_passages(content, row.index)
        size = len(content.vectors) // len(passages) if passages else 0
        return {passage.text: content.vectors[at * size : (at + 1) * size] for at, passage in enumerate(passages)}

    async def _store(
        self,
        journal: Journal,
        row: DocumentRow,
        passages: list[Passage],
        embedder: Embedder | None,
        reused: dict[str, bytes],
    ) -> tuple[int, int]:
        """Embed what is new of a document, and store it. Return how many passages that were, and their tokens."""
        texts = [text for text in dict.fromkeys(one.text for one in passages) if text not in reused]
        tokens = 0
        if embedder is not None and texts:
            numpy = import_numpy()
            made = await embedder.embed(texts)
            tokens = made.tokens
            packed = made.vectors.astype(numpy.float16)
            reused = reused | {text: packed[at].tobytes() for at, text in enumerate(texts)}
        vectors = b"".join(reused[one.text] for one in passages) if embedder is not None else b""
        content = DocumentContent(row.path, msgspec.json.encode(passages), vectors)
        await asyncio.to_thread(journal.store_document, row, content)
        return (len(texts) if embedder is not None else 0), tokens

    # -- searching ------------------------------------------------------------------------------------

    async def search(
        self, name: str, query: str, limit: int, allows: Callable[[str], bool] = lambda _: True
    ) -> SearchResult:
        """Return the passages that match a question best, by their words and by their vectors.

        Args:
            name: The index.
            query: The question.
            limit: How many passages to return at most.
            allows: Whether a document may be found.

        Raises:
            IndexMissing: There is no such index.
            IndexOutdated: It was made with another embedder.
            IndexDamaged: It cannot be read.
        """
        embedder, vector, notes = None, None, list[str]()
        try:
            embedder = self.embedders.current
        except ReynError as error:
            notes.append(f"searched by words alone: {error.message}")
        loaded, note = await asyncio.to_thread(self._load, name, embedder)
        notes += [note] if note else []
        if embedder is not None and loaded.table is not None:
            try:
                vector = (await embedder.embed([query])).vectors[0]
            except ReynError as error:
                notes.append(f"searched by words alone, because the question was not embedded: {error.message}")
        found, left_out = await asyncio.to_thread(self._ranked, loaded, query, vector, limit, allows)
        notes += [left_out] if left_out else []
        return SearchResult(found, "words" if vector is None else "words and vectors", ". ".join(notes))

    async def search_vector(
        self, name: str, vector: list[float], limit: int, allows: Callable[[str], bool] = lambda _: True
    ) -> SearchResult:
        """Return the passages whose vectors are most similar to a vector; see `search`."""
        loaded, note = await asyncio.to_thread(self._load, name, self.embedders.current)
        try:
            [given] = of_length_one([vector])
        except ValueError as error:
            raise IndexOutdated(f"the vector of the query cannot be compared: {error}") from error
        found, left_out = await asyncio.to_thread(self._ranked, loaded, "", given, limit, allows)
        return SearchResult(found, "vectors", ". ".join(filter(None, (note, left_out))))

    def _ranked(
        self, loaded: _Loaded, query: str, vector: Any, limit: int, allows: Callable[[str], bool]
    ) -> tuple[tuple[Found, ...], str]:
        """Return the best passages that a run may read, and a note if it may not read all documents."""
        part = loaded.readable(allows)
        hidden, count = len(loaded.paths) - len(part.paths), len(loaded.paths)
        note = f"{hidden} of {count} documents are left out, because this run may not read them"
        rankings = [part.by_words(query)] if query else []
        if vector is not None:
            rankings.append(part.by_vector(vector))
        found = tuple(Found(*part.passages[at], score) for at, score in joined(*rankings)[:limit])
        return found, note if hidden else ""

    def _load(self, name: str, embedder: Embedder | None) -> tuple[_Loaded, str]:
        """Return an index in memory, as it is now, and what a reader should know about it."""
        journal = self._journal()
        rows = journal.documents(name)
        if not rows:
            raise IndexMissing(f"there is no index `{name}`")
        made_with = {row.embedder for row in rows if row.count}
        current = embedder.name if embedder is not None else ""
        if current and (others := made_with - {current, ""}):
            raise IndexOutdated(
                f"the index `{name}` was made with `{min(others)}`, and the project has `{current}` now"
            )
        embedded = frozenset(row.path for row in rows if current and row.count and row.embedder == current)
        state = hash((current, tuple((row.path, row.digest, row.changed) for row in rows if row.path)))
        with self._lock:
            known, loaded = self._loaded.pop(name, (0, None))
            if loaded is None or known != state:
                loaded = _load([one for one in journal.document_contents(name) if one.path], embedded, name)
            self._loaded[name] = state, loaded
            while len(self._loaded) > _MAX_LOADED:
                del self._loaded[next(iter(self._loaded))]
        notes = [] if _is_complete(rows) else ["the last write of the index did not end; write it again"]
        if current and "" in made_with:
            notes.append("some documents have no vectors; write the index again")
        return loaded, ". ".join(notes)

    # -- the others -----------------------------------------------------------------------------------

    def overviews(self) -> list[IndexOverview]:
        """Return the indexes, by name."""
        by_name: dict[str, list[DocumentRow]] = {}
        for row in self._journal().documents():
            by_name.setdefault(row.index, []).append(row)
        return [
            IndexOverview(
                name,
                sum(1 for row in rows if row.path),
                sum(row.count for row in rows),
                tuple(sorted({row.embedder for row in rows if row.embedder})),
                _is_complete(rows),
                max(row.changed for row in rows),
            )
            for name, rows in sorted(by_name.items())
        ]

    def drop(self, name: str) -> int:
        """Remove an index; return how many documents it had.

        Raises:
            IndexMissing: There is no such index.
        """
        journal = self._journal()
        if not journal.documents(name):
            raise IndexMissing(f"there is no index `{name}`")
        return journal.remove_documents(name) - 1


def _is_complete(rows: list[DocumentRow]) -> bool:
    return all(row.digest == _COMPLETE for row in rows if not row.path)
