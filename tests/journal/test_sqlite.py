"""What is particular to the journal in SQLite."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from reyn.errors import AppendConflict, BlobMissing, StoreDamaged, StoreUnavailable
from reyn.journal import Blob
from reyn.journal import sqlite as module
from reyn.journal.sqlite import SqliteJournal
from reyn.testing.journal_conformance import CONTENT, chain_events, phase_started, run_started


def test_the_file_is_set_up_for_durability(tmp_path: Path):
    journal = SqliteJournal(tmp_path)
    read = lambda name: journal._writer.execute(f"PRAGMA {name}").fetchone()[0]  # noqa: E731
    assert read("page_size") == 8192
    assert read("journal_mode") == "wal"
    assert read("synchronous") == 2  # FULL
    journal.close()


def test_a_file_that_is_no_database_is_an_error_with_a_code(tmp_path: Path):
    (tmp_path / "journal.db").write_bytes(b"this is not a database, " * 100)
    with pytest.raises(StoreDamaged, match="not a database"):
        SqliteJournal(tmp_path)


def test_a_database_of_a_newer_format_is_left_alone(tmp_path: Path):
    SqliteJournal(tmp_path).close()
    with sqlite3.connect(tmp_path / "journal.db") as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreUnavailable, match="format 99"):
        SqliteJournal(tmp_path)


def test_a_folder_that_cannot_be_made_is_an_error_with_a_code(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable):
        SqliteJournal(tmp_path / "file" / "below")


def test_a_failed_commit_is_forgotten_and_can_be_tried_again(tmp_path: Path):
    """A hash that was remembered before its commit would be skipped by the second try, and the blob lost."""
    journal = SqliteJournal(tmp_path)
    blocker = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    journal._writer.execute("PRAGMA busy_timeout = 1")
    with pytest.raises(StoreUnavailable, match="locked"):
        journal.append("a", 0, chain_events("a", [run_started("a")]), [CONTENT])
    blocker.execute("ROLLBACK")
    journal.append("a", 0, chain_events("a", [run_started("a")]), [CONTENT])
    assert journal.blob(CONTENT.hash) == CONTENT.content
    blocker.close()
    journal.close()


def test_checkpoints_keep_the_log_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_COMMITS_PER_CHECKPOINT", 10)
    journal = SqliteJournal(tmp_path)
    events = chain_events("a", [run_started("a"), *(phase_started(visit) for visit in range(1, 400))])
    journal.append("a", 0, events[:1], [CONTENT])
    for event in events[1:]:
        journal.append("a", event.seq - 1, [event], [Blob.of(b"%d" % event.seq * 500)])
    assert (tmp_path / "journal.db-wal").stat().st_size < 2_000_000
    journal.close()


def test_readers_and_writers_of_several_threads_do_not_disturb_each_other(tmp_path: Path):
    journal = SqliteJournal(tmp_path)
    failures = []

    def work(name: str) -> None:
        try:
            events = chain_events(name, [run_started(name), *(phase_started(visit) for visit in range(1, 40))])
            for event in events:
                journal.append(name, event.seq - 1, [event], [CONTENT])
                assert list(journal.read(name))[-1] == event
        except Exception as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"run-{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(journal.runs()) == 6
    journal.close()


def test_a_checkpoint_that_cannot_be_made_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_COMMITS_PER_CHECKPOINT", 1)
    (tmp_path / "checkpoint.lock").mkdir()
    journal = SqliteJournal(tmp_path)
    assert journal.append("a", 0, chain_events("a", [run_started("a")]), [CONTENT]) == 1
    journal.close()


def test_short_lived_processes_keep_the_log_short_too(tmp_path: Path):
    holder = SqliteJournal(tmp_path)
    events = chain_events("a", [run_started("a"), *(phase_started(visit) for visit in range(1, 40))])
    for event in events:
        journal = SqliteJournal(tmp_path)
        journal.append("a", event.seq - 1, [event], [CONTENT, Blob.of(b"%d" % event.seq * 30_000)])
        journal.close()
    assert (tmp_path / "journal.db-wal").stat().st_size < 1_000_000
    holder.close()


def test_a_refused_append_leaves_no_content_behind(tmp_path: Path):
    journal = SqliteJournal(tmp_path)
    with pytest.raises(AppendConflict):
        journal.append("a", 3, chain_events("a", [run_started("a")]), [CONTENT])
    with pytest.raises(BlobMissing):
        journal.blob(CONTENT.hash)
    with pytest.raises(BlobMissing, match="no name of content"):
        journal.blob("not hexadecimal")
    journal.close()


def test_a_journal_can_be_read_without_a_trace(tmp_path: Path):
    journal = SqliteJournal(tmp_path)
    events = chain_events("a", [run_started("a")])
    journal.append("a", 0, events, [CONTENT])
    journal.close()
    before = sorted(path.name for path in tmp_path.iterdir())
    reading = SqliteJournal(tmp_path, is_read_only=True)
    assert list(reading.read("a")) == events
    with pytest.raises(StoreUnavailable, match="readonly"):
        reading.append("a", 1, chain_events("a", [phase_started(1)], events))
    reading.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_second_connection_that_appended_is_noticed_by_the_first(tmp_path: Path):
    first, second = SqliteJournal(tmp_path), SqliteJournal(tmp_path)
    events = chain_events("a", [run_started("a"), phase_started(1), phase_started(2)])
    first.append("a", 0, events[:1], [CONTENT])
    second.append("a", 1, events[1:2])
    with pytest.raises(AppendConflict):
        first.append("a", 1, events[1:2])
    assert first.append("a", 2, events[2:]) == 3
    first.close()
    second.close()


def test_a_log_that_was_not_merged_is_not_passed_over_in_silence(tmp_path: Path):
    journal = SqliteJournal(tmp_path)
    journal.append("a", 0, chain_events("a", [run_started("a")]), [CONTENT])
    with pytest.raises(StoreUnavailable, match="not merged"):
        SqliteJournal(tmp_path, is_read_only=True)
    journal.close()
