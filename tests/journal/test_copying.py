"""`copy_journal`: everything arrives, in both directions, also after an interruption at any point."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from reyn.errors import BlobMissing, ChainBroken, CopyRefused
from reyn.journal import Answer, Approval, Batch, Blob, Journal, MemoryJournal, Say, Wake, kinds
from reyn.journal.copying import copy_journal
from reyn.journal.results import AccessToken
from reyn.journal.sqlite import SqliteJournal
from reyn.testing.fixtures import NOTE, budget_reserved, budget_settled, events_after, phase_started, run_started
from reyn.testing.journal_suite import begin

LARGE = Blob.of(b'"' + b"x" * 300_000 + b'"')


def fill(journal: Journal, count: int = 6) -> None:
    """Record runs of every kind: charged, forked, imported, deleted, waiting, with messages and wakes."""
    imported = events_after("imported", [run_started("imported"), budget_reserved("1.1", 10, cap=10)])
    journal.import_runs([Batch("imported", 0, imported, [NOTE])], "a file")
    origin = begin(journal, "origin", phase_started(1))
    for number in range(count):
        run_id = f"r{number}"
        bodies = [run_started(run_id), budget_reserved("1.1", 50, cap=1_000), budget_settled("1.1", 5)]
        started = replace(bodies[0], input=kinds.ArtifactRef("note", LARGE.hash)) if number == 2 else bodies[0]
        blobs = [NOTE, LARGE] if number == 2 else [NOTE]
        journal.append(run_id, 0, events_after(run_id, [started, *bodies[1:]], ts=number + 1), blobs)
    point = kinds.ForkPoint("origin", 1, origin[0].hash)
    # Of a machine whose clock is wrong: it started before its origin.
    journal.append("a-fork", 1, events_after("a-fork", [kinds.RunForked("a-fork", point)], origin[:1], ts=0))
    begin(journal, "open", budget_reserved("1.1", 7, day="2026-11-17"))
    journal.delete(["r1"])
    for payload in (Say("hello"), Answer("1", "yes")):
        journal.post("open", payload, [Wake("open", queue="q", priority=3)])
    journal.approve(Approval("skill", "a" * 64, "shell", "ask", "me", 1, "origin"))
    journal.add_access_token(AccessToken("laptop", "b" * 64, ("view",)))


def content_of(journal: Journal) -> dict[str, object]:
    """Return all that a journal shows."""
    rows = journal.runs()
    return {
        "rows": rows,
        "events": {row.run_id: [*journal.read(row.run_id)] for row in rows},
        "inbox": {row.run_id: [one.payload for one in journal.drain(row.run_id)] for row in rows},
        "content": [journal.blob(one.hash) for one in (NOTE, LARGE)],
        "approvals": journal.approvals(),
        "tokens": journal.access_tokens(),
        "charges": journal.charges(),
        "accounts": {name: one for name, one in journal.ledger().accounts.items() if any((one.tokens, one.cost))},
        "reserving": [row.run_id for row in journal.reserving()],
        "removals": journal.removals(),
        "wakes": [(one.run_id, one.queue, one.priority) for one in journal.wakes()][:1],
    }


def check_copy(source: Journal, target: Journal) -> None:
    fill(source)
    report = copy_journal(source, target)
    assert (report.runs, report.added_runs) == (9, 9)
    assert content_of(target) == content_of(source)
    again = copy_journal(source, target)
    assert (again.runs, again.added_runs, again.added_events, again.added_contents) == (9, 0, 0, 0)
    assert content_of(target) == content_of(source)
    # The target is a journal like any other: its budgets hold, and its messages have new numbers.
    last = max(one.id for one in target.drain("open"))
    assert target.post("open", Say("more")) > last
    begin(target, "new")


def test_a_copy_has_everything(tmp_path: Path):
    with closing(SqliteJournal(tmp_path / "a")) as source, closing(SqliteJournal(tmp_path / "b")) as target:
        check_copy(source, target)


def test_a_copy_from_memory_has_everything(tmp_path: Path):
    with closing(SqliteJournal(tmp_path)) as target:
        check_copy(MemoryJournal(), target)


class _Stop(Exception):
    pass


def stopping(journal: Journal, calls: int) -> Callable[[], int]:
    """Let a journal fail after a number of writes; return a function that counts those that are left."""
    left = calls
    for name in ("restore", "approve", "add_access_token", "post", "append", "restore_ledger"):
        work = getattr(journal, name)

        def counted(*arguments: object, work: Callable[..., object] = work) -> object:
            nonlocal left
            if left == 0:
                raise _Stop
            left -= 1
            return work(*arguments)

        setattr(journal, name, counted)
    return lambda: left


def test_an_interrupted_copy_continues_after_any_write():
    source = MemoryJournal()
    fill(source, 3)
    calls = 0
    while True:
        target = MemoryJournal()
        left = stopping(target, calls)
        try:
            copy_journal(source, target)
        except _Stop:
            for name in ("restore", "approve", "add_access_token", "post", "append", "restore_ledger"):
                delattr(target, name)
            copy_journal(source, target)
        assert content_of(target) == content_of(source)
        if left() > 0:
            break
        calls += 1
    assert calls > 8


def test_a_target_with_something_else_is_refused_and_left_as_it_is():
    source, target = MemoryJournal(), MemoryJournal()
    fill(source)
    begin(target, "other")
    with pytest.raises(CopyRefused, match="`other`"):
        copy_journal(source, target)
    assert [row.run_id for row in target.runs()] == ["other"]
    target = MemoryJournal()
    copy_journal(source, target)
    target.append("r2", 3, events_after("r2", [phase_started(1)], [*target.read("r2")]))
    with pytest.raises(CopyRefused, match="`r2`"):
        copy_journal(source, target)


def test_a_journal_whose_runs_are_executed_is_not_copied():
    source, target = MemoryJournal(), MemoryJournal()
    fill(source)
    with source.claim("open"), pytest.raises(CopyRefused, match="executes run `open`"):
        copy_journal(source, target)
    assert target.runs() == []


def test_a_run_that_changes_meanwhile_is_noticed():
    source, target = MemoryJournal(), MemoryJournal()
    fill(source, 3)

    def progress(report: object) -> None:
        row = source.find("origin")
        if row is not None and row.seq == 2:
            source.append("origin", 2, events_after("origin", [phase_started(2)], [*source.read("origin")]))

    with pytest.raises(CopyRefused, match="changed while"):
        copy_journal(source, target, progress)
    copy_journal(source, target)
    assert content_of(target) == content_of(source)


def test_damage_of_the_source_is_found_and_not_copied(tmp_path: Path):
    import sqlite3

    with closing(SqliteJournal(tmp_path)) as source:
        fill(source, 5)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        db.execute("DELETE FROM blobs")
        db.commit()
    with closing(SqliteJournal(tmp_path)) as source, pytest.raises((BlobMissing, ChainBroken)):
        copy_journal(source, MemoryJournal())
