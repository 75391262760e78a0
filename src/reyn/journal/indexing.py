"""Storing the words that runs are searched by, after their commits and never in one.

A commit that changes what a run is searched by only marks the run. Any process may index marked runs, at any time; a
run that two processes index is indexed twice, with the same result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from reyn.errors import BlobMissing, JournalError
from reyn.journal import kinds
from reyn.journal.listing import MAX_SEARCHED, IndexedRun, UnindexedRun, some_words, texts_of
from reyn.journal.registry import decode

if TYPE_CHECKING:
    from reyn.journal.port import Journal

_BATCH = 200
_LAST_EVENTS = 20
"""The events at the end of a finished run that are searched for its result."""
_ESCAPES = str.maketrans({"\\": " "})


def index_runs(journal: Journal, *, seconds: float = 1.0, limit: int = 100_000) -> int:
    """Store the words of runs that are not indexed, the newest first.

    Args:
        journal: The journal.
        seconds: Stop after this time; at least one batch is indexed.
        limit: Stop after this number of runs.

    Returns:
        The number of runs that are not indexed, up to 100,000.
    """
    end, count = time.monotonic() + seconds, 0
    while count < limit and (found := journal.unindexed(min(_BATCH, limit - count))):
        journal.store_words([IndexedRun(one.row.run_id, one.mark, _words(journal, one)) for one in found])
        count += len(found)
        if time.monotonic() > end:
            break
    return journal.count_unindexed()


def _words(journal: Journal, found: UnindexedRun) -> tuple[str, ...]:
    try:
        return some_words(_texts(journal, found))
    except JournalError:  # deleted meanwhile, or damaged: `verify` reports it
        return ()


def _texts(journal: Journal, found: UnindexedRun) -> Iterator[str]:
    row = found.row
    yield from (row.run_id, row.skill, row.title, row.reason)
    if row.status == "finished":
        for event in reversed([*journal.read(row.run_id, max(0, row.seq - _LAST_EVENTS))]):
            if isinstance(body := decode(event), kinds.SkillCompleted):
                yield from _content(journal, body.artifact.hash)
    for event in islice(journal.read(row.run_id), 1):
        if isinstance(body := decode(event), kinds.RunStarted):
            yield from _content(journal, body.input.hash)


def _content(journal: Journal, hash: str) -> Iterator[str]:
    """Yield the texts of an artifact; of a large one, of its beginning."""
    with suppress(BlobMissing):
        content = journal.blob(hash)
        if len(content) <= MAX_SEARCHED:
            yield from texts_of(msgspec.json.decode(content).get("data"))
        else:
            yield content[:MAX_SEARCHED].decode(errors="ignore").translate(_ESCAPES)
