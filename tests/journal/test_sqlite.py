"""The SQLite journal: durability settings, failures, caches, checkpoints, read-only mode."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from reyn.errors import (
    AppendConflict,
    BlobMissing,
    BudgetExceeded,
    StateFolderUnsafe,
    StoreDamaged,
    StoreUnavailable,
)
from reyn.journal import Batch, Blob
from reyn.journal import sqlite as module
from reyn.journal.sqlite import SqliteJournal
from reyn.testing.fixtures import (
    NOTE,
    budget_reserved,
    budget_settled,
    events_after,
    phase_started,
    run_started,
)
from tests.journal.stored import editing


def test_the_database_is_configured_for_durability(tmp_path: Path):
    journal = SqliteJournal(tmp_path)
    read = lambda name: journal._writer.execute(f"PRAGMA {name}").fetchone()[0]  # noqa: E731 - shorter than a function
    assert read("page_size") == 8192
    assert read("journal_mode") == "wal"
    assert read("synchronous") == 2  # FULL
    journal.close()


def test_a_file_that_is_not_a_database_raises_store_damaged(tmp_path: Path):
    (tmp_path / "journal.db").write_bytes(b"this is not a database, " * 100)
    with pytest.raises(StoreDamaged, match="not a database"):
        SqliteJournal(tmp_path)


def test_a_newer_format_is_refused_and_not_modified(tmp_path: Path):
    SqliteJournal(tmp_path).close()
    with editing(tmp_path / "journal.db") as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreUnavailable, match="format 99"):
        SqliteJournal(tmp_path)


def test_a_folder_that_cannot_be_created_raises_store_unavailable(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable):
        SqliteJournal(tmp_path / "file" / "below")


def test_a_failed_commit_can_be_retried(tmp_path: Path):
    """Caching a hash before its commit would make the retry skip the blob."""
    journal = SqliteJournal(tmp_path)
    blocker = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    journal._writer.execute("PRAGMA busy_timeout = 1")
    with pytest.raises(StoreUnavailable, match="locked"):
        journal.append("a", 0, events_after("a", [run_started("a")]), [NOTE])
    blocker.execute("ROLLBACK")
    journal.append("a", 0, events_after("a", [run_started("a")]), [NOTE])
    assert journal.blob(NOTE.hash) == NOTE.content
    blocker.close()
    journal.close()


def test_periodic_checkpoints_bound_the_wal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_COMMITS_PER_CHECKPOINT", 10)
    journal = SqliteJournal(tmp_path)
    events = events_after("a", [run_started("a"), *(phase_started(visit) for visit in range(1, 400))])
    journal.append("a", 0, events[:1], [NOTE])
    for event in events[1:]:
        journal.append("a", event.seq - 1, [event], [Blob.of(b"%d" % event.seq * 500)])
    assert (tmp_path / "journal.db-wal").stat().st_size < 2_000_000
    journal.close()


def test_concurrent_readers_and_writers(tmp_path: Path):
    journal = SqliteJournal(tmp_path)
    failures = []

    def work(name: str) -> None:
        try:
            events = events_after(name, [run_started(name), *(phase_started(visit) for visit in range(1, 40))])
            for event in events:
                journal.append(name, event.seq - 1, [event], [NOTE])
                assert list(journal.read(name))[-1] == event
        except Exception as error:  # noqa: BLE001 - reported to the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"run-{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(journal.runs()) == 6
    journal.close()


def test_a_failed_checkpoint_does_not_fail_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_COMMITS_PER_CHECKPOINT", 1)
    (tmp_path / "checkpoint.lock").mkdir()
    journal = SqliteJournal(tmp_path)
    assert journal.append("a", 0, events_after("a", [run_started("a")]), [NOTE]) == 1
    journal.close()


def test_closing_checkpoints_the_wal(tmp_path: Path):
    holder = SqliteJournal(tmp_path)
    events = events_after("a", [run_started("a"), *(phase_started(visit) for visit in range(1, 40))])
    for event in events:
        journal = SqliteJournal(tmp_path)
        journal.append("a", event.seq - 1, [event], [NOTE, Blob.of(b"%d" % event.seq * 30_000)])
        journal.close()
    assert (tmp_path / "journal.db-wal").stat().st_size < 1_000_000
    holder.close()


def test_a_rejected_append_stores_no_blobs(tmp_path: Path):
    journal = SqliteJournal(tmp_path)
    with pytest.raises(AppendConflict):
        journal.append("a", 3, events_after("a", [run_started("a")]), [NOTE])
    with pytest.raises(BlobMissing):
        journal.blob(NOTE.hash)
    with pytest.raises(BlobMissing, match="not a blob hash"):
        journal.blob("not hexadecimal")
    journal.close()


def test_read_only_mode_modifies_nothing(tmp_path: Path):
    journal = SqliteJournal(tmp_path)
    events = events_after("a", [run_started("a")])
    journal.append("a", 0, events, [NOTE])
    journal.close()
    before = sorted(path.name for path in tmp_path.iterdir())
    reading = SqliteJournal(tmp_path, is_read_only=True)
    assert list(reading.read("a")) == events
    with pytest.raises(StoreUnavailable, match="readonly"):
        reading.append("a", 1, events_after("a", [phase_started(1)], events))
    reading.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_an_append_by_another_connection_is_a_conflict(tmp_path: Path):
    first, second = SqliteJournal(tmp_path), SqliteJournal(tmp_path)
    events = events_after("a", [run_started("a"), phase_started(1), phase_started(2)])
    first.append("a", 0, events[:1], [NOTE])
    second.append("a", 1, events[1:2])
    with pytest.raises(AppendConflict):
        first.append("a", 1, events[1:2])
    assert first.append("a", 2, events[2:]) == 3
    first.close()
    second.close()


def test_a_second_first_batch_of_a_run_is_a_conflict_and_other_batches_are_stored(tmp_path: Path):
    first, second = SqliteJournal(tmp_path), SqliteJournal(tmp_path)
    first.append("a", 0, events_after("a", [run_started("a")]), [NOTE])
    batches = [Batch(name, 0, events_after(name, [run_started(name)]), [NOTE]) for name in ("a", "b")]
    refused, stored = second.append_many(batches)
    assert isinstance(refused, AppendConflict)
    assert stored == 1
    assert [len(list(first.read(name))) for name in ("a", "b")] == [1, 1]
    first.close()
    second.close()


def test_read_only_mode_refuses_an_unmerged_wal(tmp_path: Path):
    journal = SqliteJournal(tmp_path)
    journal.append("a", 0, events_after("a", [run_started("a")]), [NOTE])
    with pytest.raises(StoreUnavailable, match="unmerged WAL"):
        SqliteJournal(tmp_path, is_read_only=True)
    journal.close()


@pytest.mark.parametrize("is_link", [False, True])
def test_what_a_process_left_that_was_killed_while_it_created_the_database_is_replaced(tmp_path: Path, is_link: bool):
    victim = tmp_path / "victim.txt"
    victim.write_text("of the user")
    left = tmp_path / "state" / ".journal.db.new"
    left.parent.mkdir()
    left.symlink_to(victim) if is_link else left.write_bytes(b"half of it")
    with closing(SqliteJournal(left.parent)) as journal:
        journal.append("r", 0, events_after("r", [run_started("r")]), [NOTE])
        assert [event.kind for event in journal.read("r")] == ["run_started"]
    assert not left.exists()
    assert not left.is_symlink()
    assert victim.read_text() == "of the user"


def test_planted_links_in_place_of_locks_are_not_followed(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = outside / "victim.txt"
    victim.write_text("of the user")
    state = tmp_path / "state"
    (state / "locks").mkdir(parents=True)
    (state / "locks" / "r.lock").symlink_to(victim)
    (state / "locks" / "new.lock").symlink_to(outside / "new.txt")
    (state / "checkpoint.lock").symlink_to(outside / "checkpoint.txt")
    journal = SqliteJournal(state)
    for run in ("r", "new"):
        with pytest.raises(StateFolderUnsafe, match=f"{run}.lock` is a symbolic link"), journal.claim(run):
            pass
        assert not journal.is_claimed(run)
    journal.append("r", 0, events_after("r", [run_started("r")]), [NOTE])
    journal.close()
    assert not (state / "checkpoint.lock").is_symlink()
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("victim.txt", "of the user")]


def test_a_planted_link_in_place_of_the_folder_of_locks_is_not_followed(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "locks").symlink_to(outside)
    journal = SqliteJournal(tmp_path / "state")
    with pytest.raises(StateFolderUnsafe, match="locks` is a link"), journal.claim("r"):
        pass
    journal.close()
    assert list(outside.iterdir()) == []


def test_the_sub_runs_of_a_run_are_found_without_reading_all_runs(tmp_path: Path):
    journal = SqliteJournal(tmp_path)
    names = ["a", "a.1", "a.1.1", "a-1", "a.z", *(f"r{number}" for number in range(300))]
    journal.append_many([Batch(name, 0, events_after(name, [run_started(name)]), [NOTE]) for name in names])
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    journal._db.reader.set_progress_handler(count, 10)
    assert {row.run_id for row in journal.runs("a.")} == {"a.1", "a.1.1", "a.z"}
    journal._db.reader.set_progress_handler(None, 10)
    assert steps < 100, "it reads every run"
    journal.close()


def test_a_cap_holds_when_another_connection_has_reserved_meanwhile(tmp_path: Path):
    first, second = SqliteJournal(tmp_path), SqliteJournal(tmp_path)
    heads = {}
    for number, (name, journal) in enumerate((("a", first), ("b", second), ("c", first), ("d", second))):
        events = events_after(name, [run_started(name), budget_reserved("1.1", 200, cap=1000)])
        assert journal.append(name, 0, events, [NOTE]) == 2
        assert journal.balance("day:2026-11-16").reserved_tokens == 200 * (number + 1)
        heads[name] = events
    for journal in (first, second):
        with pytest.raises(BudgetExceeded) as refused:
            journal.append("e", 0, events_after("e", [run_started("e"), budget_reserved("1.1", 201, cap=1000)]))
        assert (refused.value.reserved, refused.value.needed) == (800, 201)
    second.append("b", 2, events_after("b", [budget_settled("1.1", 50)], after=heads["b"]))
    fits = events_after("e", [run_started("e"), budget_reserved("1.1", 350, cap=1000)])
    assert first.append("e", 0, fits) == 2
    with pytest.raises(BudgetExceeded):
        second.append("f", 0, events_after("f", [run_started("f"), budget_reserved("1.1", 1, cap=1000)]))
    first.close()
    second.close()


def test_a_reservation_whose_commit_fails_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    journal = SqliteJournal(tmp_path)
    journal.append("a", 0, events_after("a", [run_started("a"), budget_reserved("1.1", 100, cap=1000)]), [NOTE])

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(journal._blobs, "store", fail)
        with pytest.raises(StoreUnavailable):
            journal.append("b", 0, events_after("b", [run_started("b"), budget_reserved("1.1", 900, cap=1000)]))
    assert journal.balance("day:2026-11-16").reserved_tokens == 100
    assert journal.append("b", 0, events_after("b", [run_started("b"), budget_reserved("1.1", 900, cap=1000)])) == 2
    journal.close()
