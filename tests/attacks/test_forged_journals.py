"""Forged journals. The attacker changes or removes events of a recorded run and computes every hash anew.

The oracle is the list of mutations: each one that changes what a person was asked, replied or approved, or what
followed from it, is reported by `replay` or `verify`. `FREE` lists what no record can prove, with the reason.
"""

from __future__ import annotations

import copy
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.cli.app import run_app
from reyn.config.user import journal_key
from reyn.errors import HistoryInvalid, ReynError, StoreUnavailable
from reyn.journal import MemoryJournal
from reyn.journal.sqlite import SqliteJournal
from reyn.journal.tables import SCHEMA
from reyn.permissions.trust import load_project
from tests.fuzz.archives import Archive
from tests.goldens.__main__ import FOLDER
from tests.kernel.support import Project
from tests.support import act, file, finish, question, write_skill

PEOPLE = {
    *("wait_opened", "wait_answered", "wait_expired", "approval_required", "approval_decided"),
    *("decision_proposed", "decision_reviewed", "file_started", "file_completed", "ask_user_started"),
    *("ask_user_completed", "permission_denied"),
}
REPLIES = [
    b'"approve"',
    b'"reject"',
    b'"defer"',
    b'"yes"',
    b'"plain"',
    b"true",
    b'{"decision":"approve","always":true}',
]
FREE = {
    ("wait_answered", "by"): "a name is what the machine said",
    ("wait_answered", "message"): "the number of a message in an inbox",
    ("approval_required", "op"): "only a label of the question",
    ("file_started", "rule"): "the rules of the project are not part of a run",
    ("file_started", "is_untracked"): "a note for `undo`",
    ("file_started", "result"): "the effect of an op is outside of the run",
    ("file_completed", "status"): "the effect of an op is outside of the run",
    ("file_completed", "result"): "the effect of an op is outside of the run",
    ("file_completed", "bytes"): "the effect of an op is outside of the run",
    ("file_completed", "changed"): "the effect of an op is outside of the run",
    ("file_completed", "unrecorded"): "the effect of an op is outside of the run",
    ("ask_user_started", "rule"): "the rules of the project are not part of a run",
}


def recorded(root: Path) -> dict[str, bytes]:
    """Return archives of runs in which people decide."""
    found = {name: (FOLDER / f"{name}.jsonl").read_bytes() for name in ("approved", "expired")}
    write_skill(root, "s", {"a": ["end"]}, ops={"a": "file, ask_user"})
    project, ask = Project(root), {"permissions": {"file.write": [{"ask": "output/"}]}}
    for name, value in (("yes", "approve"), ("no", "reject"), ("always", {"decision": "approve", "always": True})):
        answers = [act(file("write", f"output/{name}.txt", content="x")), finish()]
        project.run("s", answers, run_id=name, **ask)
        with project.open(answers, **ask) as rt:
            rt.answer(name, rt.runs.result(name).question.id, value, by="ada")
            assert rt.resume(name).ok
            found[name] = b"".join(rt.runs.export(name))
    answers = [act(question("Delete it?")), finish()]
    project.run("s", answers, run_id="asked")
    with project.open(answers) as rt:
        rt.answer("asked", rt.runs.result("asked").question.id, "no")
        assert rt.resume("asked").ok
        found["asked"] = b"".join(rt.runs.export("asked"))
    return found


def others(value: Any, replies: list[str], *, is_reply: bool) -> Iterator[Any]:
    """Yield other values of the same type; for a reply, any other reply."""
    match value:
        case bool():
            yield not value
        case int():
            yield value + 1
        case str() if len(value) == 64 and all(char in "0123456789abcdef" for char in value):
            yield from (reply for reply in replies[: len(replies) if is_reply else 1] if reply != value)
        case "approve" | "reject" | "defer" | "edit" | "expired":
            yield from {"approve", "reject", "defer", "edit", "expired"} - {value}
        case str():
            yield f"{value}x"


def mutations(archive: Archive) -> Iterator[tuple[str, str, Archive]]:
    """Yield archives in which one event of people or of an op has another field, or is missing."""
    replies = [archive.add_blob(content) for content in REPLIES]
    for at, event in enumerate(archive.events):
        if event["kind"] not in PEOPLE:
            continue
        removed = copy.copy(archive)
        removed.events = [copy.deepcopy(one) for one in archive.events]
        del removed.events[at]
        for later in removed.events[at:]:
            later["seq"] -= 1
        yield event["kind"], "(removed)", removed
        for field, value in event["data"].items():
            for other in others(value, replies, is_reply=field == "value"):
                if field == "value" and json.loads(archive.blobs[other]) == json.loads(archive.blobs[value]):
                    continue  # the same reply in other bytes
                changed = copy.copy(archive)
                changed.events = [copy.deepcopy(one) for one in archive.events]
                changed.events[at]["data"][field] = other
                yield event["kind"], field, changed


def is_reported(archive: Archive, root: Path) -> bool:
    try:
        with SyncRuntime.open(root, journal=MemoryJournal()) as rt:
            for run in rt.runs.import_(archive.lines()).imported:
                rt.runs.verify(run)
                rt.runs.replay(run)
    except ReynError:
        return True
    return False


def test_every_change_of_what_people_decided_is_reported(tmp_path: Path):
    empty = tmp_path / "empty"
    empty.mkdir()
    missed: set[tuple[str, str]] = set()
    count = 0
    for content in recorded(tmp_path).values():
        assert not is_reported(Archive(content), empty)
        for kind, field, forged in mutations(Archive(content)):
            count += 1
            if not is_reported(forged, empty):
                missed.add((kind, field))
    assert count > 300
    assert missed - FREE.keys() == set()


@pytest.mark.parametrize("value", ["approve", {"decision": "approve", "always": True}])
def test_a_no_that_became_a_yes_in_all_of_its_events_is_reported(tmp_path: Path, value: Any):
    archive = Archive(recorded(tmp_path)["no"])
    for event in archive.events:
        if event["kind"] == "wait_answered":
            event["data"]["value"] = archive.add_blob(json.dumps(value, separators=(",", ":")).encode())
        if event["kind"] == "approval_decided":
            event["data"] |= {"decision": "approve"}
            event["data"].pop("result", None)
    assert is_reported(archive, tmp_path)


QUESTIONS = {"approval_required", "wait_opened", "wait_answered", "approval_decided", "run_resumed"}


def without_questions(archive: Archive, standing: str = "") -> Archive:
    """Remove the question about the op and its approval; `standing` names a run that gave a standing one instead."""
    archive.events = [event for event in archive.events if event["kind"] not in QUESTIONS]
    for seq, event in enumerate(archive.events, start=1):
        event["seq"] = seq
    if standing:
        started = next(event for event in archive.events if event["kind"] == "file_started")
        started["data"]["approval"]["standing"] = standing
    return archive


def test_an_approval_that_was_removed_with_its_question_is_reported(tmp_path: Path):
    assert is_reported(without_questions(Archive(recorded(tmp_path)["yes"])), tmp_path)


def test_a_standing_approval_that_no_run_gave_is_reported(tmp_path: Path):
    assert is_reported(without_questions(Archive(recorded(tmp_path)["yes"]), standing="yes"), tmp_path)


def swap_content(archive: Archive) -> None:
    """The op writes something else than the preview showed; digest, question and reply stay."""
    new, old = archive.add_blob(b"evil"), b"x"
    for event in archive.events:
        data = event["data"]
        for key in ("text", "args"):
            blob = archive.blobs.get(data.get(key), b"")
            if b'"content":"x"' in blob.replace(b" ", b""):
                data[key] = archive.add_blob(blob.replace(b'"x"', b'"evil"'))
        for change in (*data.get("changes", ()), *([data["change"]] if "change" in data else [])):
            assert archive.blobs[change["after"]] == old
            change["after"] = new


def swap_preview(archive: Archive) -> None:
    """The person saw a harmless text."""
    for event in archive.events:
        data = event["data"]
        if event["kind"] == "approval_required":
            data["preview"] = archive.add_blob(archive.blobs[data["preview"]].replace(b"+x", b"+y"))
        if event["kind"] == "wait_opened":
            data["wait"]["message"] = data["wait"]["message"].replace("+x", "+y")


def swap_rule(archive: Archive) -> None:
    """The person was asked for another rule."""
    for event in archive.events:
        if event["kind"] in ("approval_required", "approval_decided"):
            event["data"]["rule"] = event["data"]["rule"].replace("output/", "other/")
        if event["kind"] == "wait_opened":
            event["data"]["wait"]["message"] = event["data"]["wait"]["message"].replace("ask output/", "ask other/")


@pytest.mark.parametrize("forge", [swap_content, swap_preview, swap_rule])
def test_an_approval_of_another_action_is_reported_by_verify(tmp_path: Path, forge: Callable[[Archive], None]):
    archive = Archive(recorded(tmp_path)["yes"])
    forge(archive)
    with pytest.raises(HistoryInvalid):
        verified(archive, tmp_path)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("file_started", "approval", None),
        ("approval_decided", "always", True),
        ("approval_decided", "by", "boss"),
        ("approval_required", "args", b"{}"),
    ],
)
def test_verify_alone_reports_an_approval_that_its_reply_did_not_give(
    tmp_path: Path, kind: str, field: str, value: Any
):
    archive = Archive(recorded(tmp_path)["yes"])
    for event in archive.events:
        if event["kind"] == kind and value is None:
            del event["data"][field]
        elif event["kind"] == kind:
            event["data"][field] = archive.add_blob(value) if isinstance(value, bytes) else value
    with pytest.raises(HistoryInvalid):
        verified(archive, tmp_path)


def test_a_standing_approval_of_a_run_that_is_missing_is_named(tmp_path: Path):
    [finding] = verified(without_questions(Archive(recorded(tmp_path)["yes"]), standing="ghost"), tmp_path)
    assert "its run `ghost` is not here" in finding


def verified(archive: Archive, root: Path) -> tuple[str, ...]:
    """Import a run, and return what `verify` cannot check."""
    with SyncRuntime.open(root, journal=MemoryJournal()) as rt:
        [run] = rt.runs.import_(archive.lines()).imported
        return rt.runs.verify(run).unchecked


# -- what the database itself would execute ---------------------------------------------------------------------

PLANTED = (
    "CREATE TRIGGER planted AFTER INSERT ON {table} BEGIN INSERT INTO inbox (run_id, payload) VALUES ('r', x'00'); END",
    "CREATE INDEX planted ON {table} (1)",
    "CREATE VIEW planted AS SELECT * FROM {table}",
    "ALTER TABLE {table} ADD COLUMN planted AS (abs(1)) VIRTUAL",
    "DROP TABLE {table}; CREATE VIEW {table} AS WITH c AS (SELECT 1 UNION SELECT * FROM c) SELECT * FROM c",
)


@pytest.mark.parametrize("table", re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", SCHEMA))
def test_a_journal_with_a_definition_of_its_own_is_not_opened(tmp_path: Path, table: str):
    """A trigger on `runs` replied to every question itself; a view instead of `owners` had no end."""
    SqliteJournal(tmp_path / "own").close()
    content = (tmp_path / "own" / "journal.db").read_bytes()
    for version, statement in enumerate(PLANTED):
        path = tmp_path / str(version) / "journal.db"
        path.parent.mkdir(mode=0o700)
        path.write_bytes(content)
        with closing(sqlite3.connect(path)) as db:
            db.executescript(f"{statement.format(table=table)}; PRAGMA user_version = {version % 2}")
            before = list(db.iterdump())
        for is_read_only in (True, False):
            with pytest.raises(StoreUnavailable):
                SqliteJournal(path.parent, is_read_only=is_read_only)
        with closing(sqlite3.connect(path)) as db:
            assert list(db.iterdump()) == before


HIDDEN = {
    "sqlite_autoindex_runs_1": (
        "INSERT INTO runs VALUES (1, 'k', 's', 1, 0, '', '', 0, '', 1, 0, x'00', '{}', 'running', 0, 1)"
    ),
    "sqlite_autoindex_approvals_1": "INSERT INTO approvals VALUES (1, 's', '', '', '', '', 0, 'k', '')",
    "inbox_by_run": "INSERT INTO inbox (run_id, payload) VALUES ('k', x'00')",
}


@pytest.mark.parametrize("index", [*HIDDEN, "page"])
def test_a_journal_whose_indexes_hide_rows_is_not_trusted(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """What an index lacks, `reyn trust` does not count, and another query finds."""
    (tmp_path / "reyn.yaml").write_text("tools: ['planted.module:tool']\n")
    SqliteJournal(tmp_path / ".reyn").close()
    path = tmp_path / ".reyn" / "journal.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM owners")  # it came with the project
        if index != "page":
            db.execute(HIDDEN[index])
            db.execute("PRAGMA writable_schema = ON")
            names = (index, "sqlite_autoindex_owners_1")  # one has rows, the other has none
            pages = dict(db.execute("SELECT name, rootpage FROM sqlite_master WHERE name IN (?, ?)", names))
            for name, other in (names, names[::-1]):
                db.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (pages[other], name))
        else:
            db.execute("CREATE TABLE unused (x)")
            db.execute("DROP TABLE unused")  # a free page
        db.commit()
    if index == "page":
        content = bytearray(path.read_bytes())
        content[36:40] = bytes(4)  # the header counts no free page
        path.write_bytes(content)
    monkeypatch.chdir(tmp_path)
    run_app(("trust", "--yes"))
    assert "RYN412" in capsys.readouterr().err
    assert load_project(tmp_path).trust.state == "not trusted"
    journal = SqliteJournal(tmp_path / ".reyn", owner=journal_key())
    with closing(journal):
        assert not journal.is_own()
