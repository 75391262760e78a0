"""What every journal must do, as tests. Subclass it where pytest collects:

    class TestMyJournal(JournalConformance):
        def make_journal(self, folder):
            return MyJournal(folder)

`make_journal` is called again with the same folder to look at the journal from a second connection; a journal that
keeps nothing sets `is_durable = False`.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from reyn.errors import AppendConflict, BlobMissing, EventInvalid, RunBusy
from reyn.journal import GENESIS, Batch, Blob, Body, Cancel, Event, RaiseLimit, encode, kinds, link

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reyn.journal import Journal

SOME = Blob.of(b'{"data":{},"type":"note"}')


def started(run_id: str) -> Body:
    reference = kinds.ArtifactRef("note", SOME.hash)
    return kinds.RunStarted(run_id, "skill", SOME.hash, reference, "scripted", SOME.hash, 1)


def entered(visit: int, phase: str = "draft") -> Body:
    return kinds.PhaseStarted(phase, visit, kinds.ArtifactRef("note", SOME.hash))


def sealed(run_id: str, bodies: Sequence[Body], after: Sequence[Event] = (), ts: int = 1) -> list[Event]:
    """Bodies as the events that follow some others."""
    seq, prev, events = (after[-1].seq, after[-1].hash, []) if after else (0, GENESIS, [])
    for body in bodies:
        seq += 1
        raw = encode(body)
        hashed = link(seq, ts, body.kind, body.version, raw, prev)
        events.append(Event(seq, run_id, ts, body.kind, body.version, raw, prev, hashed))
        prev = hashed
    return events


@contextmanager
def refused(error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


class JournalConformance:
    is_durable: ClassVar[bool] = True

    def make_journal(self, folder: Path) -> Journal:
        raise NotImplementedError  # the subclass makes the journal that is tested

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        with tempfile.TemporaryDirectory() as folder:
            made = self.make_journal(Path(folder))
            try:
                yield made
            finally:
                made.close()

    # -- append and read ------------------------------------------------------------------------------

    def test_what_is_appended_is_read_back_to_the_byte(self) -> None:
        with self.journal() as journal:
            events = sealed("a", [started("a"), entered(1)])
            assert journal.append("a", 0, events, [SOME]) == 2
            assert list(journal.read("a")) == events
            assert journal.blob(SOME.hash) == SOME.content

    def test_reading_begins_after_a_number(self) -> None:
        with self.journal() as journal:
            events = sealed("a", [started("a"), *(entered(visit) for visit in range(1, 5))])
            journal.append("a", 0, events, [SOME])
            assert list(journal.read("a", after=3)) == events[3:]
            assert list(journal.read("a", after=99)) == []

    def test_an_unknown_run_has_no_events(self) -> None:
        with self.journal() as journal:
            assert list(journal.read("nobody")) == []
            assert journal.find("nobody") is None

    def test_a_long_run_is_read_whole_and_in_order(self) -> None:
        with self.journal() as journal:
            events = sealed("a", [started("a"), *(entered(visit) for visit in range(1, 5_000))])
            journal.append("a", 0, events, [SOME])
            assert [event.seq for event in journal.read("a")] == list(range(1, 5_001))

    def test_runs_do_not_mix(self) -> None:
        with self.journal() as journal:
            for run_id in ("a", "b"):
                journal.append(run_id, 0, sealed(run_id, [started(run_id)]), [SOME])
            assert [event.run_id for event in journal.read("b")] == ["b"]

    # -- one history ----------------------------------------------------------------------------------

    def test_the_second_of_two_appends_at_the_same_place_is_refused(self) -> None:
        with self.journal() as journal:
            first = sealed("a", [started("a")])
            journal.append("a", 0, first, [SOME])
            journal.append("a", 1, sealed("a", [entered(1)], first))
            with refused(AppendConflict):
                journal.append("a", 1, sealed("a", [entered(1, "other")], first))
            assert [event.seq for event in journal.read("a")] == [1, 2]

    def test_a_refused_append_leaves_nothing_behind(self) -> None:
        with self.journal() as journal:
            first = sealed("a", [started("a")])
            journal.append("a", 0, first, [SOME])
            broken = sealed("a", [entered(1), entered(2)], first)
            with refused(EventInvalid):
                journal.append("a", 1, [broken[0], broken[0]])
            assert list(journal.read("a")) == first
            row = journal.find("a")
            assert row is not None
            assert row.seq == 1

    def test_events_that_are_not_chained_on_the_last_one_are_refused(self) -> None:
        with self.journal() as journal:
            first = sealed("a", [started("a")])
            journal.append("a", 0, first, [SOME])
            elsewhere = sealed("a", [started("a")], ts=2)
            with refused(EventInvalid):
                journal.append("a", 1, sealed("a", [entered(1)], elsewhere))

    def test_a_batch_that_is_refused_does_not_touch_the_others(self) -> None:
        with self.journal() as journal:
            good, late = sealed("a", [started("a")]), sealed("b", [started("b")])
            journal.append("b", 0, late, [SOME])
            results = journal.append_many([Batch("b", 0, late), Batch("a", 0, good, [SOME])])
            assert isinstance(results[0], AppendConflict)
            assert results[1] == 1
            assert list(journal.read("a")) == good

    # -- only what is known ---------------------------------------------------------------------------

    def test_an_unknown_kind_or_version_is_refused(self) -> None:
        with self.journal() as journal:
            [known] = sealed("a", [started("a")])
            for kind, v in (("run_imagined", 1), ("run_started", 999)):
                hashed = link(1, 1, kind, v, known.raw, GENESIS)
                with refused(EventInvalid):
                    journal.append("a", 0, [Event(1, "a", 1, kind, v, known.raw, GENESIS, hashed)])
            assert journal.find("a") is None

    def test_data_of_the_wrong_shape_is_refused(self) -> None:
        with self.journal() as journal:
            for raw in (b"{}", b'{"phase":1}', b"not json"):
                hashed = link(1, 1, "run_started", 1, raw, GENESIS)
                with refused(EventInvalid):
                    journal.append("a", 0, [Event(1, "a", 1, "run_started", 1, raw, GENESIS, hashed)])

    def test_a_run_begins_with_run_started_and_only_once(self) -> None:
        with self.journal() as journal:
            with refused(EventInvalid):
                journal.append("a", 0, sealed("a", [entered(1)]))
            with refused(EventInvalid):
                journal.append("a", 0, sealed("a", [started("a"), started("a")]))

    # -- content --------------------------------------------------------------------------------------

    def test_content_is_kept_once_and_found_by_its_hash(self) -> None:
        with self.journal() as journal:
            large = Blob.of(b"x" * 600_000)
            journal.append("a", 0, sealed("a", [started("a")]), [SOME, large, SOME])
            journal.append("b", 0, sealed("b", [started("b")]), [SOME, large])
            assert journal.blob(large.hash) == large.content

    def test_absent_content_is_an_error(self) -> None:
        with self.journal() as journal, refused(BlobMissing):
            journal.blob(Blob.of(b"never stored").hash)

    # -- the inbox ------------------------------------------------------------------------------------

    def test_messages_come_in_order_to_the_run_they_are_for(self) -> None:
        with self.journal() as journal:
            journal.post("a", Cancel("one"))
            journal.post("b", Cancel("two"))
            last = journal.post("a", RaiseLimit("x", 3))
            assert [message.payload for message in journal.drain("a")] == [Cancel("one"), RaiseLimit("x", 3)]
            assert journal.drain("a", after=last) == []

    def test_messages_stay_until_an_event_says_they_were_taken(self) -> None:
        with self.journal() as journal:
            number = journal.post("a", Cancel())
            assert journal.drain("a") == journal.drain("a")
            assert journal.drain("a", after=number - 1) == journal.drain("a")

    def test_what_cannot_be_said_is_refused(self) -> None:
        with self.journal() as journal:
            # Wrong on purpose: what types forbid must be refused at run time, too.
            for said in ("sing", Cancel(None), RaiseLimit("x", 1.5)):  # type: ignore[arg-type]
                with refused(EventInvalid):
                    journal.post("a", said)  # type: ignore[arg-type]
            assert journal.drain("a") == []

    # -- claims and listing ---------------------------------------------------------------------------

    def test_a_run_is_claimed_by_one_at_a_time(self) -> None:
        with self.journal() as journal:
            assert not journal.is_claimed("a")
            with journal.claim("a"):
                assert journal.is_claimed("a")
                with refused(RunBusy), journal.claim("a"):
                    pass
                with journal.claim("b"):
                    pass
            assert not journal.is_claimed("a")
            with journal.claim("a"):
                pass

    def test_the_list_of_runs_follows_the_events(self) -> None:
        with self.journal() as journal:
            first = sealed("a-1", [started("a-1"), entered(1)], ts=5)
            journal.append("a-1", 0, first, [SOME])
            journal.append("a-2", 0, sealed("a-2", [started("a-2")], ts=6), [SOME])
            journal.append("a-1", 2, sealed("a-1", [kinds.RunFailed("x", "why")], first, ts=9))
            row = journal.find("a-1")
            assert row is not None
            assert (row.seq, row.status, row.phase, row.reason) == (3, "failed", "draft", "why")
            assert (row.started, row.updated) == (5, 9)
            assert [found.run_id for found in journal.runs()] == ["a-2", "a-1"]
            assert [found.run_id for found in journal.runs("a-1")] == ["a-1"]

    def test_a_second_connection_sees_what_was_committed(self) -> None:
        if not self.is_durable:
            return
        with tempfile.TemporaryDirectory() as folder:
            journal, other = self.make_journal(Path(folder)), self.make_journal(Path(folder))
            events = sealed("a", [started("a")])
            journal.append("a", 0, events, [SOME])
            assert other.drain("a") == []
            journal.post("a", Cancel())
            assert len(other.drain("a")) == 1  # at once: an answer must not be missed by a driver that stops
            assert list(other.read("a")) == events
            assert other.blob(SOME.hash) == SOME.content
            with refused(AppendConflict):
                other.append("a", 0, events, [SOME])
            with journal.claim("a"):
                assert other.is_claimed("a")
                with refused(RunBusy), other.claim("a"):
                    pass
            journal.close()
            other.close()
