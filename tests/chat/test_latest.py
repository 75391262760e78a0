"""The list of conversations reads a bounded number of runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from reyn.chat.services.snapshot_journal import latest_conversations
from reyn.config.budgets import DayBudgets
from reyn.journal import MemoryJournal
from reyn.runs.reading import RecordedRuns
from reyn.testing.fixtures import events_after, run_started


def test_old_conversations_are_found_below_many_newer_runs(monkeypatch: pytest.MonkeyPatch):
    journal = MemoryJournal()
    for number in range(700):
        name = f"r{number:03}"
        skill = {0: "agent:ada", 1: "agent:gone", 2: "agent:ada", 699: "agent:gone"}.get(number, "pair")
        started = replace(run_started(name), skill=skill)
        journal.append(name, 0, events_after(name, [started], ts=number + 1))
    read: list[int] = []
    runs = RecordedRuns(lambda: journal, DayBudgets, lambda: 0)

    def page(*arguments: object, limit: int, **options: object):
        found = RecordedRuns.page(runs, *arguments, limit=limit, **options)  # type: ignore[arg-type]
        read.append(len(found.rows))
        return found

    monkeypatch.setattr(runs, "page", page)
    found = [one.row.run_id for one in latest_conversations(runs, ["ada", "default"], 20)]
    assert found == ["r699", "r002", "r000"]  # an agent that is no more: only among the newest runs
    assert sum(read) <= 500 + 2 * 20
