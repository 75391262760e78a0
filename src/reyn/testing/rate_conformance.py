"""The part of the conformance suite of the journal port that tests rates."""

from __future__ import annotations

from reyn.journal.rates import RateChange, RateLimits, RateNeed, RateRefusal, RateSlice
from reyn.testing.journal_suite import JournalSuite


class RateConformance(JournalSuite):
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
