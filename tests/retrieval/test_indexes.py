"""Indexes: what is embedded, what a search finds, and what happens to one that is old, half written or damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy
import pytest

from reyn.errors import DocumentUnreadable, IndexDamaged, IndexMissing, IndexOutdated, ModelNotInstalled
from reyn.journal.documents import DocumentContent
from reyn.retrieval import Embedders, Indexes, Passage, SearchResult, SourceDocument, WriteReport, embedders
from reyn.retrieval.index import joined
from reyn.testing import MemoryJournal

REFUND = "Refunds are paid within 14 days of the purchase."
PARCEL = "Parcels take two working days."


class Letters:
    """Embeds a text as the counts of its letters."""

    def __init__(self, name: str = "letters", fails_after: int = 1_000_000) -> None:
        self.name = name
        self.left = fails_after
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ModelNotInstalled("gone")
        self.asked += texts
        rows = [[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]
        return embedders.Embedded(embedders.of_length_one(numpy.array(rows, numpy.float32)), 7 * len(texts))


class Given(Embedders):
    def __init__(self, embedder: Any) -> None:
        self.given = embedder

    @property
    def current(self) -> Any:  # type: ignore[override]
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


def document(path: str, *texts: str) -> SourceDocument:
    async def read() -> list[Passage]:
        if not texts:
            raise DocumentUnreadable(f"`{path}` is empty")
        return [Passage(text, "H", 1, 1) for text in texts]

    return SourceDocument(path, str(texts), read)


class Shelf:
    """An index `docs` in memory."""

    def __init__(self, embedder: Any = None) -> None:
        self.journal = MemoryJournal()
        self.embedder = embedder or Letters()

    @property
    def indexes(self) -> Indexes:
        return Indexes(lambda: self.journal, Given(self.embedder))

    def write(self, *documents: SourceDocument, gone: bool = False) -> WriteReport:
        async def each():
            for one in documents:
                yield one

        return asyncio.run(self.indexes.write("docs", each(), lambda _: gone))

    def search(self, query: str, limit: int = 5, **how: Any) -> SearchResult:
        return asyncio.run(self.indexes.search("docs", query, limit, **how))

    def texts(self, query: str, **how: Any) -> list[str]:
        return [one.passage.text for one in self.search(query, **how).found]


def test_only_what_is_new_or_has_changed_is_embedded():
    shelf = Shelf()
    first = shelf.write(document("a.md", REFUND, PARCEL), document("b.md", "Other."))
    assert first == WriteReport(2, 3, embedded=3, tokens=21)
    assert shelf.write(document("a.md", REFUND, PARCEL), document("b.md", "Other.")) == WriteReport(2, 3, unchanged=2)
    shelf.embedder.asked.clear()
    changed = shelf.write(document("a.md", "New.", REFUND, PARCEL))
    assert (changed.embedded, changed.documents, shelf.embedder.asked) == (1, 2, ["New."])
    assert shelf.texts("parcels", limit=1) == [PARCEL]
    gone = shelf.write(document("a.md", "New.", REFUND, PARCEL), gone=True)
    assert (gone.removed, gone.documents) == (1, 1)
    assert shelf.texts("other") == [] or "Other." not in shelf.texts("other")


def test_a_search_joins_words_and_vectors_and_finds_what_is_allowed():
    shelf = Shelf()
    shelf.write(document("a.md", REFUND), document("b.md", PARCEL), document("c.md", "zzz"))
    assert shelf.search("refunds").mode == "words and vectors"
    assert shelf.texts("refunds")[0] == REFUND
    assert shelf.texts("zz") == ["zzz"]  # no word is the same
    assert REFUND not in shelf.texts("refunds", allows=lambda path: path != "a.md")
    assert joined([1, 2], [2, 3])[0][0] == 2
    [found] = shelf.search("refunds", limit=1).found
    assert (found.path, found.number, found.passage.heading) == ("a.md", 1, "H")


def test_an_index_of_another_embedder_says_so_and_the_next_write_embeds_it_anew():
    shelf = Shelf()
    shelf.write(document("a.md", REFUND), document("b.md", PARCEL))
    shelf.embedder = Letters("others")
    with pytest.raises(IndexOutdated, match="made with `letters`, and the project has `others`"):
        shelf.search("refunds")
    assert shelf.write(document("a.md", REFUND), document("b.md", PARCEL)).embedded == 2
    assert shelf.texts("refunds")[0] == REFUND
    shelf.embedder = ModelNotInstalled("the extra is missing")
    result = shelf.search("refunds")  # words alone need no embedder
    assert (result.mode, result.found[0].path) == ("words", "a.md")
    assert "the extra is missing" in result.note


def test_a_write_that_ended_half_way_is_told_and_continued():
    shelf = Shelf(Letters(fails_after=1))
    with pytest.raises(ModelNotInstalled):
        shelf.write(document("a.md", REFUND), document("b.md", PARCEL))
    shelf.embedder = Letters()
    result = shelf.search("refunds")
    assert (result.found[0].passage.text, result.note) == (
        REFUND,
        "the last write of the index did not end; write it again",
    )
    [overview] = shelf.indexes.overviews()
    assert (overview.is_complete, overview.documents) == (False, 1)
    done = shelf.write(document("a.md", REFUND), document("b.md", PARCEL))
    assert (done.unchanged, done.embedded, shelf.search("refunds").note) == (1, 1, "")


def test_a_document_that_cannot_be_read_is_skipped_and_keeps_what_was_there():
    shelf = Shelf()
    shelf.write(document("a.md", REFUND))
    report = shelf.write(document("a.md"), document("b.md", PARCEL))
    assert report.skipped == (("a.md", "RYN453: `a.md` is empty"),)
    assert REFUND in shelf.texts("refunds")


@pytest.mark.parametrize(
    "what", [{"vectors": b"abc"}, {"vectors": b""}, {"passages": b"["}, {"passages": b'[[1,"x"]]'}]
)
def test_a_damaged_document_is_an_error_until_the_index_is_dropped(what: dict[str, bytes]):
    shelf = Shelf()
    shelf.write(document("a.md", REFUND))
    [row] = [row for row in shelf.journal.documents("docs") if row.path]
    [content] = shelf.journal.document_contents("docs", "a.md")
    shelf.journal.store_document(row, msgspec.structs.replace(content, **what))
    with pytest.raises(IndexDamaged):
        shelf.search("refunds")
    assert shelf.indexes.drop("docs") == 1
    with pytest.raises(IndexMissing):
        shelf.search("refunds")
    assert shelf.write(document("a.md", REFUND)).embedded == 1


def test_an_index_without_an_embedder_is_searched_by_words():
    class Bare(Shelf):
        @property
        def indexes(self) -> Indexes:
            return Indexes(lambda: self.journal, Embedders("none", lambda: None))  # type: ignore[arg-type, return-value]

    bare = Bare()
    bare.write(document("a.md", REFUND))
    assert (bare.search("refunds").mode, bare.texts("refunds"), bare.texts("money")) == ("words", [REFUND], [])
    bare_row = bare.journal.documents("docs")[1]
    assert (bare_row.embedder, bare.journal.document_contents("docs", "a.md")[0].vectors) == ("", b"")
    later = Shelf()
    later.journal = bare.journal
    assert "have no vectors" in later.search("refunds").note
    assert later.write(document("a.md", REFUND)).embedded == 1


def test_static_vectors_find_what_has_no_common_word():
    class Static(Shelf):
        @property
        def indexes(self) -> Indexes:
            return Indexes(lambda: self.journal, Embedders("static", lambda: None))  # type: ignore[arg-type, return-value]

    shelf = Static()
    shelf.write(document("a.md", PARCEL), document("b.md", REFUND), document("c.md", "The weather is nice."))
    assert shelf.texts("how do I get my money back", limit=1) == [REFUND]
    assert shelf.journal.documents("docs")[1].embedder == "static:wordllama-0.4.0.post1"
    vectors = shelf.journal.document_contents("docs", "a.md")[0].vectors
    assert len(vectors) == 512
    assert DocumentContent("a.md", b"", vectors).vectors == vectors


def test_without_the_extra_a_write_names_it(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise embedders.PackageNotFoundError(name)

    monkeypatch.setattr(embedders, "distribution", missing)
    monkeypatch.setattr(embedders, "_STATIC", embedders.StaticEmbedder())
    with pytest.raises(ModelNotInstalled, match="need the extra `retrieval`"):
        _ = Embedders("static", lambda: None).current  # type: ignore[arg-type, return-value]
