"""A journal that came with a project is not the user's: nothing in it takes effect until they vouch for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.errors import StoreUnavailable, UserConfigUnavailable
from reyn.models.scripted import ScriptedModel
from tests.journal.stored import editing
from tests.support import act, file, finish, write_skill

ASK = {"permissions": {"file.write": [{"ask": "output/"}]}}
WRITE = act(file("write", "output/a.md", content="new\n"))
IN = {"text": "x"}
REFUSED = "was not created by you"


def open_project(root: Path, *answers: object, trust: bool | None = None) -> SyncRuntime:
    return SyncRuntime.open(root, model=ScriptedModel(list(answers) or [WRITE, finish()]), trust=trust, **ASK)


def as_user(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / name))


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the journal of another user: a standing approval, a run that was approved, one that waits."""
    root = tmp_path / "project"
    write_skill(root, "s", {"a": ["end"]}, ops={"a": "file"})
    as_user("author", tmp_path, monkeypatch)
    with open_project(root) as rt:
        for run in ("always", "approved", "waiting"):
            assert rt.run("s", IN, run_id=run).status == "waiting"
        rt.answer("approved", rt.runs.result("approved").question.id, "approve")
        rt.answer("always", rt.runs.result("always").question.id, {"decision": "approve", "always": True})
        assert rt.resume("always").ok
        assert len(rt.permissions.approvals()) == 1
    shutil.rmtree(root / "output")
    as_user("victim", tmp_path, monkeypatch)
    return root


def contents(root: Path) -> list[str]:
    with editing(root / ".reyn" / "journal.db") as db:
        return list(db.iterdump())


OPERATIONS: dict[str, Callable[[SyncRuntime], object]] = {
    "run": lambda rt: rt.run("s", IN),
    "run again": lambda rt: rt.run("s", IN, run_id="approved"),
    "resume": lambda rt: rt.resume("approved"),
    "answer": lambda rt: rt.answer("waiting", rt.runs.result("waiting").question.id, "approve"),
    "cancel": lambda rt: rt.cancel("waiting"),
    "fork": lambda rt: rt.fork("always"),
    "rerun": lambda rt: rt.rerun("always"),
    "undo": lambda rt: rt.runs.undo("always"),
    "prune": lambda rt: rt.runs.prune(older_than=timedelta(0)),
    "import": lambda rt: rt.runs.import_(list(rt.runs.export("always"))),
    "revoke": lambda rt: rt.permissions.revoke(rt.permissions.approvals()[0].id),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_in_a_shipped_journal_takes_effect(shipped: Path, name: str):
    before = contents(shipped)
    with open_project(shipped) as rt, pytest.raises(StoreUnavailable, match=REFUSED):
        OPERATIONS[name](rt)
    assert contents(shipped) == before
    assert not (shipped / "output").exists()


def test_a_shipped_journal_can_be_read(shipped: Path):
    with open_project(shipped) as rt:
        assert {row.run_id for row in rt.runs.all()} == {"always", "approved", "waiting"}
        rt.runs.verify("always")
        assert rt.runs.replay("always").status == "finished"
        assert rt.runs.undo("always", dry_run=True).is_dry
        assert list(rt.runs.export("always"))


def test_a_shipped_standing_approval_is_honoured_once_a_program_vouches(shipped: Path):
    with open_project(shipped, trust=True) as rt:
        assert rt.resume("approved").ok
        assert rt.run("s", IN).ok
    with open_project(shipped) as rt:
        assert rt.run("s", IN).ok


def test_a_mark_of_another_key_does_not_count(shipped: Path):
    with editing(shipped / ".reyn" / "journal.db") as db:
        [(mark,)] = db.execute("SELECT mark FROM owners").fetchall()
        db.executemany("INSERT INTO owners VALUES (?)", [(mark[:-1] + b"x",), (b"",), (mark[:16],), ("text",)])
    with open_project(shipped) as rt, pytest.raises(StoreUnavailable, match=REFUSED):
        rt.run("s", IN)


def test_a_database_that_was_prepared_is_not_a_new_one(shipped: Path):
    """Its tables are created by Reyn, except for those that hold planted approvals."""
    with editing(shipped / ".reyn" / "journal.db") as db:
        for table in ("runs", "commits", "blobs", "inbox"):
            db.execute(f"DROP TABLE {table}")
        db.execute("DELETE FROM owners")
        db.execute("PRAGMA user_version = 0")
    with open_project(shipped) as rt, pytest.raises(StoreUnavailable, match="missing or not Reyn's"):
        rt.permissions.approvals()
    with open_project(shipped) as rt, pytest.raises(StoreUnavailable):
        rt.run("s", IN)


def test_the_journal_of_a_project_that_was_moved_stays_the_users(tmp_path: Path):
    write_skill(tmp_path / "a", "s", {"a": ["end"]}, ops={"a": "file"})
    with open_project(tmp_path / "a") as rt:
        assert rt.run("s", IN, run_id="k").status == "waiting"
    (tmp_path / "a").rename(tmp_path / "b")
    with open_project(tmp_path / "b") as rt:
        rt.answer("k", rt.runs.result("k").question.id, "approve")
        assert rt.resume("k").ok


def test_reading_creates_no_key(shipped: Path, tmp_path: Path):
    with open_project(shipped) as rt:
        assert rt.runs.all()
    assert not (tmp_path / "victim").exists()


def test_the_key_is_private_and_an_exposed_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"})
    as_user("user", tmp_path, monkeypatch)
    with open_project(tmp_path) as rt:
        rt.run("s", IN)
    key = tmp_path / "user" / "reyn" / "journal.key"
    assert (key.stat().st_mode & 0o777, key.stat().st_size) == (0o600, 32)
    key.chmod(0o644)
    with open_project(tmp_path) as rt, pytest.raises(UserConfigUnavailable, match="other users can read"):
        rt.run("s", IN)
    key.chmod(0o600)
    key.write_bytes(b"short")
    with open_project(tmp_path) as rt, pytest.raises(UserConfigUnavailable, match="not a key"):
        rt.run("s", IN)


@pytest.mark.parametrize("is_missing", [True, False])
def test_where_no_key_can_be_stored_journals_work_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_missing: bool
):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"})
    if is_missing:
        monkeypatch.delenv("XDG_CONFIG_HOME")
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    else:
        monkeypatch.setenv("XDG_CONFIG_HOME", "/proc/nowhere")  # no folder can be created there
    for _ in range(2):
        with open_project(tmp_path) as rt:
            assert rt.run("s", IN, run_id="k").status == "waiting"
