"""The conformance suite of the journal port. Subclass it where pytest collects tests:

    class TestMyJournal(JournalConformance):
        def make_journal(self, folder):
            return MyJournal(folder)

`make_journal` is called again with the same folder to open a second connection. A journal that stores nothing sets
`is_durable = False`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from reyn.errors import AppendConflict, BlobMissing, BudgetExceeded, EventInvalid, RunBusy, RunInUse
from reyn.journal import (
    GENESIS,
    Balance,
    Batch,
    Blob,
    Cancel,
    Deletion,
    Event,
    RaiseLimit,
    encode,
    kinds,
    link,
)
from reyn.journal.documents import DocumentContent, DocumentRow
from reyn.testing.fixtures import NOTE, budget_reserved, budget_settled, events_after, phase_started, run_started
from reyn.testing.journal_suite import begin, raises, row_of
from reyn.testing.listing_conformance import ListingConformance
from reyn.testing.work_conformance import WorkConformance

if TYPE_CHECKING:
    from reyn.journal import Journal


class JournalConformance(ListingConformance, WorkConformance):
    """Tests of the whole port."""

    # -- budgets --------------------------------------------------------------------------------------

    def test_a_reservation_is_released_when_it_is_settled(self) -> None:
        with self.journal() as journal:
            events = begin(journal, "a", budget_reserved("1.1", 500))
            assert journal.balance("day:2026-11-16") == Balance(0, 0, 500, 500_000)
            row = row_of(journal, "a")
            assert row.reserved is not None
            assert journal.reserving() == [row]
            more = events_after("a", [budget_settled("1.1", 120), budget_reserved("1.2", 300)], after=events)
            journal.append("a", 2, more)
            assert journal.balance("day:2026-11-16") == Balance(120, 120_000, 300, 300_000)
            [charged] = journal.charges()
            assert (charged.run_id, charged.skill, charged.calls) == ("a", "skill", 1)
            assert (charged.input_tokens, charged.output_tokens, charged.cost) == (119, 1, 120_000)
            assert journal.charges(since="2026-11-17") == []
            assert row_of(journal, "a").charge == kinds.Charge(120, 120_000, "USD", 1)

    def test_a_reservation_beyond_a_cap_is_rejected_and_stores_nothing(self) -> None:
        with self.journal() as journal:
            begin(journal, "a", budget_reserved("1.1", 600, cap=1000))
            refused = Batch("b", 0, events_after("b", [run_started("b"), budget_reserved("1.1", 401, cap=1000)]))
            fits = Batch("c", 0, events_after("c", [run_started("c"), budget_reserved("1.1", 400, cap=1000)]))
            error, seq = journal.append_many([refused, fits])
            assert isinstance(error, BudgetExceeded)
            amounts = (error.limit, error.cap, error.used, error.reserved, error.needed)
            assert amounts == ("day_tokens", 1000, 0, 600, 401)
            assert seq == 2
            assert journal.find("b") is None
            assert journal.balance("day:2026-11-16").reserved_tokens == 1000

    def test_a_settlement_without_its_reservation_is_rejected(self) -> None:
        with self.journal() as journal:
            with raises(EventInvalid):
                begin(journal, "a", budget_settled("1.1", 5))
            twice = [run_started("a"), budget_reserved("1.1", 5), budget_reserved("1.2", 5)]
            with raises(EventInvalid):
                journal.append("a", 0, events_after("a", twice))
            assert journal.balance("day:2026-11-16") == Balance()

    def test_a_deleted_run_stays_charged_and_an_imported_one_never_was(self) -> None:
        with self.journal() as journal:
            events = events_after("a", [run_started("a"), budget_reserved("1.1", 500)])
            journal.import_runs([Batch("a", 0, events, [NOTE])], "archive")
            assert journal.balance("day:2026-11-16") == Balance()
            journal.delete(["a"])
            assert journal.charges() == []
            journal.append("a", 0, events)
            journal.delete(["a"])
            assert journal.balance("day:2026-11-16") == Balance(500, 500_000)
            assert [(row.calls, row.assumed) for row in journal.charges()] == [(1, 1)]

    def test_charges_of_many_days_and_models_add_up_and_outlive_the_run(self) -> None:
        keys = [(f"2026-11-{day}", f"model-{model}") for day in (16, 17, 16) for model in range(6)]
        with self.journal() as journal:
            events = begin(journal, "a")
            for number, (day, model) in enumerate(keys):
                call = f"1.{number}"
                bodies = [budget_reserved(call, 10, day=day, model=model), budget_settled(call, 3)]
                more = events_after("a", bodies, after=events)
                journal.append("a", events[-1].seq, more)
                events = more
            expected = {key: 3 * keys.count(key) for key in keys}
            for _ in range(2):
                found = journal.charges()
                assert {(row.day, row.model): row.input_tokens + row.output_tokens for row in found} == expected
                assert [row.key for row in found] == sorted(row.key for row in found)
                assert {row.day for row in journal.charges(since="2026-11-17")} == {"2026-11-17"}
                journal.delete(["a"])
            assert journal.balance("day:2026-11-17") == Balance(18, 18_000)

    # -- append and read ------------------------------------------------------------------------------

    def test_appended_events_are_read_back_unchanged(self) -> None:
        with self.journal() as journal:
            events = events_after("a", [run_started("a"), phase_started(1)])
            assert journal.append("a", 0, events, [NOTE]) == 2
            assert list(journal.read("a")) == events
            assert journal.blob(NOTE.hash) == NOTE.content

    def test_events_can_be_read_after_a_sequence_number(self) -> None:
        with self.journal() as journal:
            events = begin(journal, "a", *(phase_started(visit) for visit in range(1, 5)))
            assert list(journal.read("a", after=3)) == events[3:]
            assert list(journal.read("a", after=99)) == []

    def test_an_unknown_run_has_no_events(self) -> None:
        with self.journal() as journal:
            assert list(journal.read("unknown")) == []
            assert journal.find("unknown") is None

    def test_a_long_run_is_read_completely_and_in_order(self) -> None:
        with self.journal() as journal:
            begin(journal, "a", *(phase_started(visit) for visit in range(1, 5_000)))
            assert [event.seq for event in journal.read("a")] == list(range(1, 5_001))

    def test_events_of_different_runs_are_separate(self) -> None:
        with self.journal() as journal:
            for run_id in ("a", "b"):
                journal.append(run_id, 0, events_after(run_id, [run_started(run_id)]), [NOTE])
            assert [event.run_id for event in journal.read("b")] == ["b"]

    # -- one history ----------------------------------------------------------------------------------

    def test_the_second_of_two_appends_after_the_same_event_is_rejected(self) -> None:
        with self.journal() as journal:
            first = begin(journal, "a")
            journal.append("a", 1, events_after("a", [phase_started(1)], first))
            with raises(AppendConflict):
                journal.append("a", 1, events_after("a", [phase_started(1, "other")], first))
            assert [event.seq for event in journal.read("a")] == [1, 2]

    def test_a_rejected_append_stores_nothing(self) -> None:
        with self.journal() as journal:
            first = begin(journal, "a")
            broken = events_after("a", [phase_started(1), phase_started(2)], first)
            with raises(EventInvalid):
                journal.append("a", 1, [broken[0], broken[0]])
            assert list(journal.read("a")) == first
            assert row_of(journal, "a").seq == 1

    def test_events_that_are_not_chained_to_the_last_event_are_rejected(self) -> None:
        with self.journal() as journal:
            begin(journal, "a")
            elsewhere = events_after("a", [run_started("a")], ts=2)
            with raises(EventInvalid):
                journal.append("a", 1, events_after("a", [phase_started(1)], elsewhere))

    def test_a_rejected_batch_does_not_affect_the_others(self) -> None:
        with self.journal() as journal:
            good, late = events_after("a", [run_started("a")]), events_after("b", [run_started("b")])
            journal.append("b", 0, late, [NOTE])
            results = journal.append_many([Batch("b", 0, late), Batch("a", 0, good, [NOTE])])
            assert isinstance(results[0], AppendConflict)
            assert results[1] == 1
            assert list(journal.read("a")) == good

    # -- validation ----------------------------------------------------------------------------------

    def test_an_unknown_kind_or_version_is_rejected(self) -> None:
        with self.journal() as journal:
            [known] = events_after("a", [run_started("a")])
            for kind, v in (("run_imagined", 1), ("run_started", 999)):
                hashed = link(1, 1, kind, v, known.raw, GENESIS)
                with raises(EventInvalid):
                    journal.append("a", 0, [Event(1, "a", 1, kind, v, known.raw, GENESIS, hashed)])
            assert journal.find("a") is None

    def test_invalid_event_data_is_rejected(self) -> None:
        with self.journal() as journal:
            valid = encode(run_started("a"))
            for raw in (b"{}", b'{"phase":1}', b"not json", valid.replace(b"{", b"{\n", 1)):
                hashed = link(1, 1, "run_started", 1, raw, GENESIS)
                with raises(EventInvalid):
                    journal.append("a", 0, [Event(1, "a", 1, "run_started", 1, raw, GENESIS, hashed)])

    def test_a_run_has_exactly_one_start_event_and_it_is_the_first(self) -> None:
        with self.journal() as journal:
            with raises(EventInvalid):
                journal.append("a", 0, events_after("a", [phase_started(1)]))
            with raises(EventInvalid):
                begin(journal, "a", run_started("a"))

    # -- content --------------------------------------------------------------------------------------

    def test_content_is_stored_by_its_hash(self) -> None:
        with self.journal() as journal:
            large = Blob.of(b"x" * 600_000)
            journal.append("a", 0, events_after("a", [run_started("a")]), [NOTE, large, NOTE])
            journal.append("b", 0, events_after("b", [run_started("b")]), [NOTE, large])
            assert journal.blob(large.hash) == large.content

    def test_missing_content_is_an_error(self) -> None:
        with self.journal() as journal, raises(BlobMissing):
            journal.blob(Blob.of(b"never stored").hash)

    # -- the inbox ------------------------------------------------------------------------------------

    def test_messages_are_delivered_in_order_to_their_run(self) -> None:
        with self.journal() as journal:
            journal.post("a", Cancel("one"))
            journal.post("b", Cancel("two"))
            last = journal.post("a", RaiseLimit("x", 3))
            assert [message.payload for message in journal.drain("a")] == [Cancel("one"), RaiseLimit("x", 3)]
            assert journal.drain("a", after=last) == []

    def test_draining_the_inbox_removes_no_message(self) -> None:
        with self.journal() as journal:
            number = journal.post("a", Cancel())
            assert journal.drain("a") == journal.drain("a")
            assert journal.drain("a", after=number - 1) == journal.drain("a")

    def test_an_invalid_message_is_rejected(self) -> None:
        with self.journal() as journal:
            # Wrong on purpose: values that the types forbid must be rejected at run time as well.
            for message in ("unknown", Cancel(None), RaiseLimit("x", 1.5)):  # type: ignore[arg-type]  # wrong on purpose
                with raises(EventInvalid):
                    journal.post("a", message)  # type: ignore[arg-type]  # wrong on purpose
            assert journal.drain("a") == []

    # -- claims and listing ---------------------------------------------------------------------------

    def test_a_run_has_at_most_one_claim(self) -> None:
        with self.journal() as journal:
            assert not journal.is_claimed("a")
            journal.check_claim("a")
            with journal.claim("a"):
                assert journal.is_claimed("a")
                journal.check_claim("a")
                with raises(RunBusy), journal.claim("a"):
                    pass
                with journal.claim("b"), journal.claim("skill:ä b:0"):
                    assert journal.claimed(["a", "b", "c", "skill:ä b:0"]) == {"a", "b", "skill:ä b:0"}
            assert not journal.is_claimed("a")
            assert journal.claimed([]) == journal.claimed(["a", "b", "skill:ä b:0"]) == set()
            with journal.claim("a"):
                pass

    def test_the_list_of_runs_is_derived_from_the_events(self) -> None:
        with self.journal() as journal:
            first = events_after("a-1", [run_started("a-1"), phase_started(1)], ts=5)
            journal.append("a-1", 0, first, [NOTE])
            journal.append("a-2", 0, events_after("a-2", [run_started("a-2")], ts=6), [NOTE])
            journal.append("a-1", 2, events_after("a-1", [kinds.RunFailed("x", "why")], first, ts=9))
            row = row_of(journal, "a-1")
            assert (row.seq, row.status, row.phase, row.reason) == (3, "failed", "draft", "why")
            assert (row.started, row.updated) == (5, 9)
            assert [found.run_id for found in journal.runs()] == ["a-2", "a-1"]
            assert [found.run_id for found in journal.runs("a-1")] == ["a-1"]

    # -- importing ------------------------------------------------------------------------------------

    def test_imported_runs_are_marked_and_may_be_forked_from_each_other(self) -> None:
        with self.journal() as journal:
            origin = events_after("a", [run_started("a"), phase_started(1)])
            point = kinds.ForkPoint("a", 1, origin[0].hash)
            fork = events_after("f", [kinds.RunForked("f", point)], origin[:1])
            begin(journal, "own")
            journal.import_runs([Batch("a", 0, origin, [NOTE]), Batch("f", 1, fork)], "a file")
            assert {row.run_id: row.imported for row in journal.runs()} == {"own": "", "a": "a file", "f": "a file"}
            assert [*journal.read("f")] == [origin[0], *fork]
            assert journal.blob(NOTE.hash) == NOTE.content
            again = events_after("g", [kinds.RunForked("g", point)], origin[:1])
            journal.append("g", 1, again)
            assert row_of(journal, "g").imported == ""

    def test_an_import_stores_all_runs_or_none(self) -> None:
        with self.journal() as journal:
            good = Batch("a", 0, events_after("a", [run_started("a")]), [NOTE, Blob.of(b"x" * 600_000)])
            bad = Batch("b", 0, events_after("b", [phase_started(1)]), [NOTE])
            with raises(EventInvalid):
                journal.import_runs([good, bad], "a file")
            assert journal.runs() == []
            with raises(BlobMissing):
                journal.blob(good.blobs[1].hash)
            begin(journal, "b")
            with raises(AppendConflict):
                journal.import_runs([good, Batch("b", 0, events_after("b", [run_started("b")]))], "a file")
            assert [row.run_id for row in journal.runs()] == ["b"]

    def test_an_impossible_time_is_rejected(self) -> None:
        with self.journal() as journal:
            for ts in (-1, 2**63, 2**80):
                with raises(EventInvalid):
                    journal.append("a", 0, events_after("a", [run_started("a")], ts=ts), [NOTE])

    # -- deleting -------------------------------------------------------------------------------------

    def test_a_deleted_run_is_gone_with_its_messages_and_content(self) -> None:
        with self.journal() as journal:
            own = Blob.of(b"only in a")
            reference = kinds.ArtifactRef("note", own.hash)
            first = events_after("a", [run_started("a"), kinds.PhaseStarted("draft", 1, reference)])
            journal.append("a", 0, first, [NOTE, own])
            begin(journal, "b")
            journal.post("a", Cancel())
            journal.post("b", Cancel())
            planned = journal.delete(["a"], dry_run=True)
            assert (planned.events, planned.blobs) == (2, 1)
            assert planned.bytes == len(own.content) + sum(len(event.raw) for event in first)
            assert list(journal.read("a")) == first
            assert journal.delete(["a"]) == planned
            assert journal.find("a") is None
            assert list(journal.read("a")) == []
            assert journal.drain("a") == []
            assert [row.run_id for row in journal.runs()] == ["b"]
            assert journal.blob(NOTE.hash) == NOTE.content
            assert len(journal.drain("b")) == 1
            with raises(BlobMissing):
                journal.blob(own.hash)
            assert journal.delete(["a", "unknown"]) == Deletion()

    def test_an_id_and_content_can_be_used_again_after_a_deletion(self) -> None:
        with self.journal() as journal:
            for _ in range(2):
                events = begin(journal, "a", phase_started(1))
                assert list(journal.read("a")) == events
                assert journal.blob(NOTE.hash) == NOTE.content
                journal.delete(["a"])

    def test_a_run_that_is_claimed_or_needed_is_not_deleted(self) -> None:
        with self.journal() as journal:
            origin = begin(journal, "a", phase_started(1))
            point = kinds.ForkPoint("a", 1, origin[0].hash)
            journal.append("f", 1, events_after("f", [kinds.RunForked("f", point)], origin[:1]))
            child = replace(run_started("a.1"), parent=kinds.ParentRef("a", "1", 1, 0, "1"))
            journal.append("a.1", 0, events_after("a.1", [child]), [NOTE])
            for run_ids in (["a"], ["a.1"], ["a", "a.1"], ["a", "f"]):
                with raises(RunInUse):
                    journal.delete(run_ids)
                with raises(RunInUse):
                    journal.delete(run_ids, dry_run=True)
            with journal.claim("f"), raises(RunBusy):
                journal.delete(["f"])
            assert {row.run_id for row in journal.runs()} == {"a", "a.1", "f"}
            assert journal.delete(["a", "a.1", "f"]).events == 4
            assert journal.runs() == []

    def test_a_second_connection_stores_content_that_the_first_one_deleted(self) -> None:
        if not self.is_durable:
            return
        with self.connections() as (journal, other):
            large = Blob.of(b"x" * 600_000)
            reference = kinds.ArtifactRef("note", large.hash)
            first = events_after("a", [run_started("a"), kinds.PhaseStarted("draft", 1, reference)])
            other.append("a", 0, first, [NOTE, large])
            journal.delete(["a"])
            with raises(AppendConflict):
                other.append("a", 2, events_after("a", [phase_started(2)], first))
            second = events_after("b", [run_started("b"), kinds.PhaseStarted("draft", 1, reference)])
            other.append("b", 0, second, [NOTE, large])
            assert journal.blob(NOTE.hash) == NOTE.content
            assert journal.blob(large.hash) == large.content
            assert list(journal.read("b")) == second

    def test_a_second_connection_sees_committed_data(self) -> None:
        if not self.is_durable:
            return
        with self.connections() as (journal, other):
            events = begin(journal, "a")
            assert other.drain("a") == []
            journal.post("a", Cancel())
            assert len(other.drain("a")) == 1  # immediately: a driver that stops must not miss an answer
            assert list(other.read("a")) == events
            assert other.blob(NOTE.hash) == NOTE.content
            with raises(AppendConflict):
                other.append("a", 0, events, [NOTE])
            with journal.claim("a"):
                assert other.is_claimed("a")
                with raises(RunBusy), other.claim("a"):
                    pass

    # -- documents of search indexes ------------------------------------------------------------------

    def test_a_document_is_replaced_removed_and_seen_by_other_connections(self) -> None:
        with self.connections() if self.is_durable else self._same() as (journal, other):
            assert (journal.documents(), journal.documents("a"), journal.document_contents("a")) == ([], [], [])
            assert journal.remove_documents("a") == 0
            rows = [DocumentRow("a", path, "d", "e", 2, 7) for path in ("", "x.md", "ä.md")]
            contents = [DocumentContent(row.path, b"[]", bytes(range(256))) for row in rows]
            for row, content in zip(rows, contents, strict=True):
                other.store_document(row, content)
            other.store_document(replace(rows[0], index="b"), contents[0])
            assert (journal.documents("a"), journal.document_contents("a")) == (rows, contents)
            assert [one.index for one in journal.documents()] == ["a", "a", "a", "b"]
            changed = replace(rows[1], digest="new", count=0), replace(contents[1], vectors=b"")
            journal.store_document(*changed)
            assert (other.documents("a")[1], other.document_contents("a")[1]) == changed
            assert (other.remove_documents("a", "x.md"), other.remove_documents("a", "x.md")) == (1, 0)
            assert (journal.remove_documents("a"), journal.documents("a"), len(journal.documents("b"))) == (2, [], 1)

    @contextmanager
    def _same(self) -> Iterator[tuple[Journal, Journal]]:
        with self.journal() as journal:
            yield journal, journal
