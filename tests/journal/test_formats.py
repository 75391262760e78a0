"""The next version of events, tables and rules, with made-up versions: this release is the earlier one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.errors import EventInvalid, NextAction, RunBlocked, StoreUnavailable
from reyn.journal import Event, MemoryJournal, canonical, database, decode, kinds, link, registry
from reyn.journal.kinds import LimitRaised
from reyn.journal.registry import Body, older_event
from reyn.journal.sqlite import SqliteJournal
from reyn.journal.tables import SCHEMA
from reyn.kernel import versions
from reyn.testing import ScriptedModel
from reyn.testing.fixtures import events_after, run_started
from tests.journal.stored import editing
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


def rows(root: Path, *, is_read_only: bool = False) -> dict:
    journal = SqliteJournal(root / ".reyn", is_read_only=is_read_only)
    try:
        return {row.run_id: row for row in journal.runs()}
    finally:
        journal.close()


# -- tables ----------------------------------------------------------------------------------------------------


@pytest.fixture
def next_format(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = SCHEMA.replace("payload BLOB NOT NULL)", "payload BLOB NOT NULL, sender TEXT NOT NULL DEFAULT '')")
    monkeypatch.setattr(database, "DATABASE_FORMAT", 3)
    monkeypatch.setattr(database, "SCHEMA", f"{schema}CREATE TABLE IF NOT EXISTS labels (name TEXT);")
    monkeypatch.setattr(
        database,
        "MIGRATIONS",
        {
            1: "CREATE TABLE labels (name TEXT);",
            2: "ALTER TABLE inbox ADD COLUMN sender TEXT NOT NULL DEFAULT ''; INSERT INTO labels VALUES ('migrated');",
        },
    )


def test_a_database_of_an_earlier_format_is_migrated_with_its_open_questions(
    root: Path, request: pytest.FixtureRequest
):
    before = rows(root)
    request.getfixturevalue("next_format")
    assert rows(root) == before
    with editing(root / ".reyn" / "journal.db") as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
        assert db.execute("SELECT name FROM labels").fetchall() == [("migrated",)]
    with SyncRuntime.open(root, model=ScriptedModel(ANSWERS)) as rt:
        wait = rt.runs.result("waits").question
        assert wait is not None
        rt.answer("waits", wait.id, "this one")
        assert rt.resume("waits").ok
        rt.runs.verify("waits")


def test_a_database_of_an_earlier_format_is_not_modified_in_read_only_mode(root: Path, next_format: None):
    with pytest.raises(StoreUnavailable, match="has format 1; this release reads formats up to 3"):
        rows(root, is_read_only=True)
    with editing(root / ".reyn" / "journal.db") as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_migration_that_fails_changes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch):
    before = rows(root)
    with monkeypatch.context() as release:
        release.setattr(database, "DATABASE_FORMAT", 2)
        release.setattr(database, "MIGRATIONS", {1: "CREATE TABLE labels (name TEXT); DROP TABLE nothing;"})
        with pytest.raises(StoreUnavailable, match="nothing"):
            rows(root)
    assert rows(root) == before
    with editing(root / ".reyn" / "journal.db") as db:
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'labels'").fetchone()


@pytest.mark.parametrize("is_read_only", [False, True])
@pytest.mark.parametrize(
    ("change", "definition"),
    [
        ("ALTER TABLE runs RENAME COLUMN state TO lifecycle", "table `runs`"),
        ("ALTER TABLE commits RENAME COLUMN events TO bodies", "table `commits`"),
        ("ALTER TABLE spending DROP COLUMN assumed", "table `spending`"),
        ("DROP TABLE names", "table `names`"),
        ("DROP INDEX inbox_by_run", "index `inbox_by_run`"),
    ],
)
def test_a_database_with_other_tables_is_refused(root: Path, change: str, definition: str, is_read_only: bool):
    with closing(sqlite3.connect(root / ".reyn" / "journal.db")) as db:
        db.execute(change)
    with pytest.raises(StoreUnavailable, match=f"not a journal of format 1: its {definition}") as error:
        rows(root, is_read_only=is_read_only)
    assert "Move" in error.value.hint


def test_a_database_of_another_program_is_not_modified(root: Path):
    path = root / ".reyn" / "journal.db"
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, distance REAL)")
        before = db.execute("SELECT * FROM sqlite_master").fetchall()
    with pytest.raises(StoreUnavailable, match="its table `runs`"):
        rows(root)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT * FROM sqlite_master").fetchall() == before


# -- events ----------------------------------------------------------------------------------------------------


@pytest.fixture
def older() -> Iterator[None]:
    """Version 0 of `limit_raised`, which had other names and no null."""

    @older_event("limit_raised", v=0)
    class LimitRaised0(Body, frozen=True):
        name: str
        to: int
        message: int

        def upgrade(self) -> Body:
            return LimitRaised(self.name, self.to, self.message)

    yield
    del registry._DECODE["limit_raised", 0]


def older_events() -> list[Event]:
    [first] = events_after("r", [run_started("r")])
    raw = canonical({"name": "max_phase_visits", "to": 9, "message": 1})
    hashed = link(2, 1, "limit_raised", 0, raw, first.hash)
    return [first, Event(2, "r", 1, "limit_raised", 0, raw, first.hash, hashed)]


def test_an_event_of_an_older_version_is_read_as_the_current_one(older: None):
    journal = MemoryJournal()
    journal.append("r", 0, older_events())
    event = list(journal.read("r"))[-1]
    assert (event.v, event.data) == (0, {"name": "max_phase_visits", "to": 9, "message": 1})
    assert decode(event) == kinds.LimitRaised("max_phase_visits", 9, 1)
    assert journal.find("r").messages_taken == 1
    assert ("limit_raised", 0) not in registry.kinds()


def test_an_event_of_an_unknown_version_is_rejected():
    with pytest.raises(EventInvalid, match="does not know `limit_raised` version 0"):
        MemoryJournal().append("r", 0, older_events())


# -- rules -----------------------------------------------------------------------------------------------------


def test_a_run_under_earlier_rules_is_blocked_and_can_be_forked_cancelled_and_undone(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as earlier:
        earlier.setattr(versions, "RULES", 0)
        with SyncRuntime.open(root, model=ScriptedModel(ANSWERS)) as rt:
            assert rt.run("s", {"text": "in"}, run_id="older").status == "waiting"
    with SyncRuntime.open(root, model=ScriptedModel([finish("on")] * 9)) as rt:
        assert rt.runs.verify("older").events == rt.runs.find("older").seq
        with pytest.raises(RunBlocked):
            rt.resume("older")
        with pytest.raises(RunBlocked):
            rt.answer("older", "1.1.1", "x")
        assert rt.runs.next_action(rt.runs.find("older")) == NextAction("fork", "older")
        assert rt.runs.undo("older", dry_run=True).restored == ()
        rt.cancel("older")
        assert rt.runs.find("older").status == "cancelled"
        rt.runs.verify("older")


def test_the_question_of_a_waiting_run_is_in_the_list(root: Path):
    with SyncRuntime.open(root) as rt:
        [row] = [row for row in rt.runs.all() if row.run_id == "waits"]
    assert row.wait is not None
    assert (row.wait.message, row.status, row.phase) == ("Which one?", "waiting", "a")
