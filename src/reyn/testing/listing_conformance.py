"""The part of the journal conformance suite about the list of runs: pages, filters, search."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from reyn.journal import Batch, kinds
from reyn.journal.indexing import index_runs
from reyn.journal.listing import IndexedRun, RunQuery, matching_runs
from reyn.testing.fixtures import NOTE, events_after, run_started
from reyn.testing.journal_suite import JournalSuite, begin, row_of

if TYPE_CHECKING:
    from reyn.journal import Journal


def _ids(journal: Journal, limit: int = 100, after: str = "", **query: object) -> list[str]:
    found = journal.page(RunQuery(**query), limit, after)  # type: ignore[arg-type]
    return [row.run_id for row in found]


def _fail(journal: Journal, run_id: str, reason: str) -> None:
    row = row_of(journal, run_id)
    failed = events_after(run_id, [kinds.RunFailed("RYN000", reason)], after=[*journal.read(run_id)], ts=row.updated)
    journal.append(run_id, row.seq, failed)


class ListingConformance(JournalSuite):
    """Tests of `page`, `unindexed` and `store_words`."""

    def test_pages_follow_each_other_and_have_every_run_once(self) -> None:
        with self.journal() as journal:
            for number in range(25):
                run_id = f"r-{number * 7 % 25}"  # several start at the same time
                journal.append(run_id, 0, events_after(run_id, [run_started(run_id)], ts=number // 3), [NOTE])
            everything = [row.run_id for row in journal.runs()]
            for size in (1, 4, 25, 26):
                found, last = list[str](), ""
                while page := _ids(journal, size, last):
                    found += page
                    last = page[-1]
                assert found == everything
            assert _ids(journal, prefix="r-1") == [one for one in everything if one.startswith("r-1")]

    def test_a_page_has_the_runs_that_a_filter_selects(self) -> None:
        with self.journal() as journal:
            for number in range(6):
                run_id = f"r{number}"
                started = replace(run_started(run_id), skill="odd" if number % 2 else "even")
                journal.append(run_id, 0, events_after(run_id, [started], ts=number), [NOTE])
            for run_id in ("r1", "r2", "r5"):
                _fail(journal, run_id, "why")
            assert _ids(journal, statuses=("failed",)) == ["r5", "r2", "r1"]
            assert _ids(journal, 1, "r5", statuses=("failed",)) == ["r2"]
            assert _ids(journal, statuses=("failed", "running", "failed")) == ["r5", "r4", "r3", "r2", "r1", "r0"]
            assert _ids(journal, 2, "r4", statuses=("failed", "running")) == ["r3", "r2"]
            assert _ids(journal, skill="odd", statuses=("running",)) == ["r3"]
            assert _ids(journal, since=4) == ["r5", "r4"]
            assert _ids(journal, after="none", skill="even") == ["r4", "r2", "r0"]
            for text in ("x'; --\0", "\0", "order\ud800", "\udfff"):  # no run has such an id
                assert _ids(journal, skill=text) == _ids(journal, prefix=text) == []
                assert journal.runs(text) == []
                assert journal.find(text) is None
                assert list(journal.drain(text)) == []
                assert not journal.claimed([text])

    def test_runs_with_events_since_a_time_are_found_whenever_they_started(self) -> None:
        chosen, minute = random.Random(1), 60_000_000  # noqa: S311 - not a secret
        with self.journal() as journal:
            for number in range(24):
                run_id, started = f"r{number}", chosen.randrange(6 * minute)
                events = events_after(run_id, [run_started(run_id)], ts=started)
                journal.append(run_id, 0, events, [NOTE])
                for _ in range(chosen.randrange(3)):
                    started += chosen.choice((1, minute // 2, 3 * minute))
                    body = kinds.RunResumed("driver") if chosen.random() < 0.7 else kinds.RunFailed("RYN000", "why")
                    events = events_after(run_id, [body], after=events, ts=started)
                    journal.append(run_id, events[0].seq - 1, events)
            rows = journal.runs()
            times = [0, *(row.updated + more for row in rows for more in (0, 1)), *range(0, 12 * minute, minute)]
            for since in times:
                query = {"since": since, "statuses": chosen.choice(((), ("failed",), ("running", "failed")))}
                expected = [row.run_id for row in matching_runs(RunQuery(**query), rows, lambda _: None, ())]
                found, last = list[str](), ""
                while page := _ids(journal, chosen.choice((1, 5, 30)), last, **query):
                    found += page
                    last = page[-1]
                assert found == expected, query

    def test_runs_are_counted_by_status(self) -> None:
        with self.journal() as journal:
            assert journal.count_by_status() == {}
            for run_id in ("a", "b", "c"):
                begin(journal, run_id)
            _fail(journal, "b", "why")
            assert journal.count_by_status() == {"running": 2, "failed": 1}
            journal.delete(["b", "c"])
            assert journal.count_by_status() == {"running": 1}

    def test_the_top_of_the_list_has_no_sub_runs_of_recorded_runs(self) -> None:
        with self.journal() as journal:
            begin(journal, "a")
            for run_id, parent in (("a.1", "a"), ("gone.1", "gone")):
                above = kinds.ParentRef(run=parent, call="1.1.1", depth=1)
                started = replace(run_started(run_id), parent=above)
                journal.append(run_id, 0, events_after(run_id, [started], ts=2), [NOTE])
            assert _ids(journal, top=True) == ["gone.1", "a"]

    def test_a_run_is_found_by_its_words_after_it_was_indexed(self) -> None:
        with self.journal() as journal:
            begin(journal, "order-17")
            _fail(journal, "order-17", "Die Straße nach Málaga ist 东京 gesperrt; \\ 'quote' \"double\" _x*")
            begin(journal, "order-18")
            assert _ids(journal, search="order") == []
            assert [one.row.run_id for one in journal.unindexed(10)] == ["order-18", "order-17"]
            assert index_runs(journal) == 0
            assert _ids(journal, search="order") == ["order-18", "order-17"]
            assert _ids(journal, 1, "order-18", search="order") == ["order-17"]
            for text in ("17", "ORD 17", "strasse", "malag", "东", "京", "quo double", "' quot", "_X", "x*"):
                assert _ids(journal, search=text) == ["order-17"], text
            for text in ("東 17", '"', "18 OR 17", "rder"):
                assert _ids(journal, search=text) == [], text
            assert _ids(journal, search="order", statuses=("running",)) == ["order-18"]
            assert _ids(journal, search="17\0") == ["order-17"]

    def test_a_run_whose_words_change_is_indexed_again(self) -> None:
        with self.journal() as journal:
            begin(journal, "a")
            [found] = journal.unindexed(10)
            _fail(journal, "a", "later")
            journal.store_words([IndexedRun("a", found.mark, ("earlier",))])
            assert [one.row.status for one in journal.unindexed(10)] == ["failed"]
            index_runs(journal)
            assert (_ids(journal, search="earlier"), _ids(journal, search="later")) == ([], ["a"])
            journal.append("a", 2, events_after("a", [kinds.RunResumed("driver")], after=[*journal.read("a")]))
            index_runs(journal)
            assert _ids(journal, search="later") == []

    def test_indexing_is_bounded_and_continues(self) -> None:
        with self.journal() as journal:
            journal.append_many(
                [Batch(f"r{n}", 0, events_after(f"r{n}", [run_started(f"r{n}")]), [NOTE]) for n in range(7)]
            )
            assert index_runs(journal, limit=3) == 4
            assert len(_ids(journal, search="r")) == 3
            assert index_runs(journal) == 0
            assert len(_ids(journal, search="r")) == 7

    def test_a_deleted_run_leaves_the_index(self) -> None:
        with self.journal() as journal:
            for run_id in ("a", "b"):
                begin(journal, run_id)
                _fail(journal, run_id, "secret")
            unindexed = journal.unindexed(10)
            index_runs(journal)
            journal.delete(["a"])
            assert _ids(journal, search="secret") == ["b"]
            begin(journal, "a")  # it may have the key of the first one
            assert _ids(journal, search="secret") == ["b"]
            journal.store_words([IndexedRun(one.row.run_id, one.mark, ("secret",)) for one in unindexed])
            assert _ids(journal, search="secret") == ["b"]
            journal.delete(["b"])
            assert (journal.count_unindexed(), _ids(journal, search="secret")) == (1, [])
