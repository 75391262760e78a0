"""Search indexes: `make bench OF=bench.retrieval`, a minute.

First the speed, with 10,000 passages; then how often the passage that answers a question is among the first five, by
words, by vectors and by both, for a hundred questions about two handbooks among the pages of this repository. Half of
the questions were held back: they were written and committed before any ranking was tried on them. Exits with 1 if a
target is missed. A hundred questions about the pages themselves are a goal, not a target: they avoid the words of the
pages, and static vectors do not know what a run or a phase is.
"""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from reyn.journal.sqlite import SqliteJournal
from reyn.retrieval import Embedders, Indexes, Passage, SourceDocument, read_passages
from reyn.retrieval.index import joined

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PASSAGES, AT_MOST = 10_000, 5
WRITE_SECONDS, QUERY_MS, SHARE = 60.0, 10.0, 0.85


class Question(NamedTuple):
    """A question, and the passage that answers it: its document, and what it says."""

    text: str
    path: str
    says: str


def read_questions(name: str) -> list[Question]:
    """Return the questions of a file."""
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return [Question(*map(str.strip, line.split("|"))) for line in lines if not line.startswith("#")]


def pages() -> list[Path]:
    """Return the pages that are searched: those that people wrote, and two handbooks."""
    found = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "reference"]
    return [ROOT / "README.md", *sorted(found), *sorted(HERE.glob("*.md"))]


def document(name: str, text: str) -> SourceDocument:
    """Return a document."""

    async def read() -> list[Passage]:
        return read_passages(text, name)

    return SourceDocument(name, hashlib.sha256(text.encode()).hexdigest(), read)


async def each(documents: list[SourceDocument]) -> AsyncIterator[SourceDocument]:
    """Yield documents."""
    for one in documents:
        yield one


def open_indexes(journal: SqliteJournal) -> Indexes:
    """Return the indexes of a journal, with static vectors."""
    return Indexes(lambda: journal, Embedders("static", lambda: None))  # type: ignore[arg-type, return-value]  # no model is asked


class Measured:
    """Counts the CPU time of an embedder."""

    def __init__(self, indexes: Indexes) -> None:
        embedder: Any = indexes.embedders.current
        self._embedder = embedder
        self.name, self.seconds = str(self._embedder.name), 0.0
        vars(indexes.embedders)["current"] = self

    async def embed(self, texts: Any) -> Any:
        started = time.process_time()
        try:
            return await self._embedder.embed(texts)
        finally:
            self.seconds += time.process_time() - started


async def measure_speed(journal: SqliteJournal) -> bool:
    """Write and search 10,000 passages; return whether the targets are met."""
    texts = [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in pages()]
    documents: list[SourceDocument] = []
    count, copy = 0, 0
    while count < PASSAGES:
        for name, text in texts:
            documents.append(document(f"{copy}/{name}", f"{text}\n\nCopy {copy}.\n"))
            count += len(read_passages(text, name))
        copy += 1
    indexes = open_indexes(journal)
    embedder = Measured(indexes)
    started = time.process_time()
    report = await indexes.write("large", each(documents))
    writing = time.process_time() - started - embedder.seconds
    started = time.process_time()
    await indexes.write("large", each(documents))
    again = time.process_time() - started
    started = time.process_time()
    await open_indexes(journal).search("large", "anything", AT_MOST)
    first = time.process_time() - started
    times = []
    await indexes.search("large", "anything", AT_MOST)
    for question in read_questions("tuning.txt"):
        started = time.process_time()
        await indexes.search("large", question.text, AT_MOST)
        times.append(1000 * (time.process_time() - started))
    median, most = statistics.median(times), max(times)
    print(f"{report.passages} passages of {report.documents} documents, CPU:")
    print(f"  writing, besides embedding  {writing:6.1f} s    (target ≤ {WRITE_SECONDS:g})")
    print(f"  embedding                   {embedder.seconds:6.1f} s")
    print(f"  writing what is unchanged   {again:6.2f} s")
    print(f"  the first query             {1000 * first:6.0f} ms")
    print(f"  a query, median             {median:6.1f} ms   (target ≤ {QUERY_MS:g}); the slowest {most:.1f}")
    return writing <= WRITE_SECONDS and median <= QUERY_MS


async def measure_ranking(journal: SqliteJournal) -> bool:
    """Search for the answers; return whether the targets are met."""
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in pages()}
    indexes = open_indexes(journal)
    await indexes.write("docs", each([document(name, text) for name, text in texts.items()]))
    embedder: Any = indexes.embedders.current
    loaded, _ = indexes._load("docs", embedder)
    is_met = True
    for name in ("tuning.txt", "held_back.txt", "pages_tuning.txt", "pages_held_back.txt"):
        questions = read_questions(name)
        vectors = (await embedder.embed([one.text for one in questions])).vectors
        found: dict[str, int] = {"words": 0, "vectors": 0, "both": 0}
        for question, vector in zip(questions, vectors, strict=True):
            rankings = loaded.by_words(question.text), loaded.by_vector(vector)
            both = [at for at, _ in joined(*rankings)]
            for kind, ranking in zip(found, (*rankings, both), strict=True):
                is_found = any(_answers(loaded.passages[at], question) for at in ranking[:AT_MOST])
                found[kind] += is_found
                if kind == "both" and not is_found and "--verbose" in sys.argv:
                    print(f"    not found: {question.text}")
        shares = {kind: count / len(questions) for kind, count in found.items()}
        print(f"{name}, {len(questions)} questions, the passage among the first {AT_MOST}:")
        print("  " + ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items()))
        if name.startswith("pages_"):
            continue
        is_met &= shares["both"] >= max(shares["words"], shares["vectors"]) and shares["both"] >= SHARE
    print(f"(targets: both ≥ {SHARE:.0%}, and not worse than either alone)")
    return is_met


def _answers(found: tuple[str, int, Passage], question: Question) -> bool:
    return found[0] == question.path and question.says in " ".join(found[2].text.split())


def main() -> None:
    """Measure, and say whether the targets are met."""
    measures: list[Callable[[SqliteJournal], Any]] = [measure_speed, measure_ranking]
    with tempfile.TemporaryDirectory() as folder, closing(SqliteJournal(Path(folder))) as journal:
        results = [asyncio.run(measure(journal)) for measure in measures]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
