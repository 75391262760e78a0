"""The part of the conformance suite of the journal port that tests what workers share: wakes, reports, rates."""

from __future__ import annotations

from msgspec.structs import replace

from reyn.errors import AppendConflict
from reyn.journal import Batch, Cancel, Wake
from reyn.journal.rates import RateChange, RateLimits, RateNeed, RateRefusal, RateSlice
from reyn.journal.workers import WorkerReport
from reyn.testing.fixtures import NOTE, events_after, run_started
from reyn.testing.journal_suite import JournalSuite, raises


class WorkConformance(JournalSuite):
    def test_wakes_are_stored_with_the_events_and_messages_that_cause_them(self) -> None:
        with self.journal() as journal:
            first = events_after("a", [run_started("a")])
            journal.append("a", 0, first, [NOTE], [Wake("a"), Wake("b", queue="slow")])
            journal.post("a", Cancel(), [Wake("a", priority=2)])
            with raises(AppendConflict):
                journal.append("a", 0, first, [NOTE], [Wake("lost")])
            late = Batch("b", 0, events_after("b", [run_started("b")]), [NOTE], [Wake("c", priority=-1)])
            [error, _] = journal.append_many([Batch("a", 0, first, [NOTE], [Wake("lost")]), late])
            assert isinstance(error, AppendConflict)
            found = journal.wakes()
            assert [(one.run_id, one.queue) for one in found] == [("a", ""), ("b", "slow"), ("a", ""), ("c", "")]
            assert sorted({one.seq for one in found}) == [one.seq for one in found]
            assert [one.run_id for one in journal.take_wakes(["slow"], 9, 60)] == ["b"]
            assert [one.priority for one in journal.take_wakes(["", "other"], 2, 60)] == [2, 0]
            assert [one.priority for one in journal.take_wakes([""], 2, 60)] == [-1]
            assert journal.take_wakes([], 2, 60) == []

    def test_a_wake_is_delivered_again_unless_it_is_finished(self) -> None:
        with self.journal() as journal:
            journal.post("a", Cancel(), [Wake("a"), Wake("b"), Wake("c", due=2**52)])
            taken = journal.take_wakes([""], 9, 3600)
            assert [one.run_id for one in taken] == ["a", "b"]
            assert all(one.held_until > 0 for one in taken)
            assert journal.take_wakes([""], 9, 3600) == []
            journal.hold_wakes([taken[0].seq], 0)
            assert [one.seq for one in journal.take_wakes([""], 9, 3600)] == [taken[0].seq]
            journal.finish_wakes([one.seq for one in taken])
            journal.finish_wakes([taken[0].seq, 10**6])
            [last] = journal.wakes()
            assert (last.run_id, last.due) == ("c", 2**52)
            journal.finish_wakes([last.seq])
            journal.post("a", Cancel(), [Wake("a")])
            [again] = journal.wakes()
            assert again.seq > last.seq

    def test_the_first_wakes_of_a_queue_are_those_that_are_delivered_first(self) -> None:
        with self.journal() as journal:
            wakes = [
                Wake(name, queue="slow", priority=priority) for name, priority in zip("abc", (0, 5, 5), strict=True)
            ]
            journal.post("a", Cancel(), [*wakes, Wake("a"), Wake("d", due=2**52, queue="slow", priority=9)])
            [b] = journal.take_wakes(["slow"], 1, 3600)
            assert [one.run_id for one in journal.first_wakes("slow", 9)] == ["d", "b", "c", "a"]
            [first, second] = journal.first_wakes("slow", 2)
            assert (first.held_until, second.seq, second.held_until > 0) == (0, b.seq, True)
            assert journal.first_wakes("other", 9) == []
            assert [one.queue for one in journal.wakes("a")] == ["slow", ""]

    def test_a_deleted_run_is_not_woken(self) -> None:
        with self.journal() as journal:
            journal.append("a", 0, events_after("a", [run_started("a")]), [NOTE], [Wake("a")])
            journal.delete(["a"])
            assert journal.wakes() == []

    def test_the_last_report_of_each_worker_is_listed_until_it_ends(self) -> None:
        with self.journal() as journal:
            one = WorkerReport("w1", "here", 1, ("default",), 2, 5)
            journal.report_worker(one)
            journal.report_worker(WorkerReport("w0", "there", 2, ("default", "slow"), 1, 6))
            journal.report_worker(replace(one, runs=("a",), refusals={"b": "no model"}))
            first, second = journal.workers()
            assert (first.id, first.queues) == ("w0", ("default", "slow"))
            assert replace(second, seen=0) == replace(one, runs=("a",), refusals={"b": "no model"})
            assert second.seen > 0
            journal.forget_worker("w0")
            journal.forget_worker("unknown")
            assert [report.id for report in journal.workers()] == ["w1"]

    def test_processes_lease_from_the_same_minute(self) -> None:
        limits = RateLimits(3, 100)
        with self.connections() as (journal, other):
            if not self.is_durable:
                other = journal  # a second one is empty
            first = journal.take_rate("x", RateNeed("a", limits, 40))
            second = other.take_rate("x", RateNeed("b", limits, 40))
            assert isinstance(first, RateSlice)
            assert isinstance(second, RateSlice)
            assert (first.requests, first.tokens) == (1, 40)
            assert 0 < first.seconds < 30
            refused = journal.take_rate("x", RateNeed("a", limits, 40))
            assert isinstance(refused, RateRefusal)
            assert refused.reason == "tokens_per_minute"
            assert 0 < refused.seconds < 90
            assert isinstance(journal.take_rate("y", RateNeed("a", limits, 40)), RateSlice)
            used = [RateChange(second.end, 0, -30)]
            assert isinstance(journal.take_rate("x", RateNeed("a", limits, 40, changes=used)), RateSlice)
            refused = other.take_rate("x", RateNeed("b", limits))
            assert isinstance(refused, RateRefusal)
            assert refused.reason == "requests_per_minute"
