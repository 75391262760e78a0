"""Databases of earlier formats are upgraded when opened for writing, and stay readable in read-only mode."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reyn import OSRuntime, RunResult, SyncRuntime
from reyn.errors import NextAction, RunBlocked
from reyn.journal.formats import FORMAT
from reyn.journal.sqlite import SqliteJournal
from reyn.testing import ScriptedModel
from tests.support import act, finish, go, question, write_skill

ANSWERS = [act(question("Which one?")), go("b"), finish()]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with one waiting and one finished run."""
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "ask_user"})
    with SyncRuntime.open(tmp_path, model=ScriptedModel(ANSWERS)) as rt:
        assert rt.run("s", {"text": "in"}, run_id="waits").status == "waiting"
    with SyncRuntime.open(tmp_path, model=ScriptedModel([go("b"), finish()])) as rt:
        assert rt.run("s", {"text": "in"}, run_id="done").ok
    return tmp_path


def downgrade(root: Path, to: int) -> None:
    """Convert the `runs` table to the format of an earlier release."""
    with closing(sqlite3.connect(root / ".reyn" / "journal.db", isolation_level=None)) as db:
        db.execute("ALTER TABLE runs DROP COLUMN spent")
        if to == 6:
            db.execute("PRAGMA user_version = 6")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return
        for column in ("charge", "reserved"):
            db.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        for table in ("budget_accounts", "spending"):
            db.execute(f"DROP TABLE {table}")
        if to == 5:
            db.execute("PRAGMA user_version = 5")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return
        db.execute("ALTER TABLE runs DROP COLUMN imported")
        if to == 3:
            db.execute("PRAGMA user_version = 3")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return
        db.execute("DROP TABLE approvals")
        db.execute("ALTER TABLE runs RENAME COLUMN messages_taken TO heard")
        db.execute("ALTER TABLE runs ADD COLUMN rejoins INTEGER NOT NULL DEFAULT 0")
        db.execute("UPDATE runs SET wait = coalesce(json_extract(nullif(wait, ''), '$.id'), '')")
        if to == 1:
            for column in ("parent", "fork_of", "fork_seq", "wait", "rejoins", "heard"):
                db.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        db.execute(f"PRAGMA user_version = {to}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def rows(root: Path, *, is_read_only: bool = False) -> dict:
    journal = SqliteJournal(root / ".reyn", is_read_only=is_read_only)
    try:
        return {row.run_id: row for row in journal.runs()}
    finally:
        journal.close()


@pytest.mark.parametrize("version", [2, 3, 5, 6])
def test_an_earlier_format_is_upgraded_with_its_open_questions(root: Path, version: int):
    before = rows(root)
    downgrade(root, version)
    assert rows(root, is_read_only=True) == before
    assert rows(root) == before
    with sqlite3.connect(root / ".reyn" / "journal.db") as db:
        assert db.execute("PRAGMA user_version").fetchone() == (FORMAT,)
    assert continued(root).ok


def test_format_1_is_upgraded(root: Path):
    before = rows(root)["done"]
    downgrade(root, 1)
    assert rows(root, is_read_only=True)["done"] == before
    assert rows(root)["done"] == before


# -- a database that an earlier release wrote -----------------------------------------------------------------


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """Runs of format 2 that wait, reached a limit, rolled back, failed, finished, and a fork."""
    folder = tmp_path / ".reyn"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "journal.db", isolation_level=None)) as db:
        db.executescript((Path(__file__).parent / "format-2.sql").read_text())
    return tmp_path


def test_every_run_of_an_earlier_release_is_verified(older: Path):
    read_only = rows(older, is_read_only=True)
    with SyncRuntime.open(older) as rt:
        assert {row.run_id: row.status for row in rt.runs.all()} == {
            "done": "finished",
            "limited": "limited",
            "waits": "waiting",
            "below": "waiting",
            "below.1.1.1": "waiting",
            "rolled": "finished",
            "failed": "failed",
            "forked": "finished",
        }
        for row in rt.runs.all():
            assert rt.runs.verify(row.run_id).events == row.seq
            assert read_only[row.run_id] == row
            assert rt.runs.state(row.run_id).phase == row.phase


def test_a_run_of_an_earlier_release_is_blocked_and_can_be_forked_cancelled_and_undone(older: Path):
    with SyncRuntime.open(older, model=ScriptedModel([finish("on")] * 9), trust=True) as rt:
        with pytest.raises(RunBlocked):
            rt.resume("waits")
        with pytest.raises(RunBlocked):
            rt.answer("waits", "1.1.1", "x")
        assert rt.runs.next_action(rt.runs.find("waits")) == NextAction("fork", "waits")
        assert rt.runs.undo("rolled", dry_run=True).restored == ()
        rt.cancel("waits")
        assert rt.runs.find("waits").status == "cancelled"
        rt.runs.verify("waits")


def continued(root: Path) -> RunResult:
    with SyncRuntime.open(root, model=ScriptedModel(ANSWERS)) as rt:
        wait = rt.runs.result("waits").question
        assert wait is not None
        rt.answer("waits", wait.id, "this one")
        result = rt.resume("waits")
        rt.runs.verify("waits")
        return result


def test_the_question_of_a_waiting_run_is_in_the_list(root: Path):
    [row] = [row for row in OSRuntime.open(root).runs.all() if row.run_id == "waits"]
    assert row.wait is not None
    assert (row.wait.message, row.status, row.phase) == ("Which one?", "waiting", "a")
