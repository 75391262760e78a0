"""A database that another process has locked: a run waits for some time, then stops with a code and can be resumed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.cli.app import run_app
from reyn.errors import StoreUnavailable
from reyn.journal import database
from reyn.testing import ScriptedModel
from tests.faults.support import IN
from tests.support import finish, go

HOLDER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""
ANSWERS = [go("second"), finish()]


@contextmanager
def locked(root: Path, how: str = "BEGIN IMMEDIATE") -> Iterator[subprocess.Popen]:
    """Lock the database in another process."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root / ".reyn/journal.db"), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "held\n"
    try:
        yield holder
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.05)


@pytest.fixture
def failed_run(root: Path) -> Path:
    """A project with a run that failed after one answer."""
    with SyncRuntime.open(root, model=ScriptedModel(ANSWERS[:1])) as rt:
        assert rt.run("pair", {"text": "in"}, run_id="r").status == "failed"
    return root


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_a_run_that_cannot_write_stops_with_a_code_and_can_be_resumed(
    failed_run: Path, how: str, capsys: pytest.CaptureFixture[str]
):
    with locked(failed_run, how):
        for words in (
            ["run", "pair", IN],
            ["resume", "r", "--retry", "--model", f"scripted:{failed_run}/answers.jsonl"],
        ):
            assert run_app(["--project", str(failed_run), *words]) == 1
            errors = capsys.readouterr().err
            assert "error RYN408" in errors
            assert "locked" in errors
    with SyncRuntime.open(failed_run, model=ScriptedModel(ANSWERS)) as rt:
        assert [row.run_id for row in rt.runs.all()] == ["r"]
        assert rt.resume("r", retry=True).ok
        assert rt.runs.replay("r").status == "finished"


@pytest.mark.usefixtures("impatient")
def test_events_recorded_before_the_lock_are_durable(root: Path):
    holding = []

    class Slow(ScriptedModel):
        async def complete(self, request):
            if request.answered == 1:
                holding.append(locked(root))
                holding[0].__enter__()
            return await super().complete(request)

    with SyncRuntime.open(root, model=Slow(ANSWERS)) as rt, pytest.raises(StoreUnavailable, match="locked"):
        rt.run("pair", {"text": "in"}, run_id="r")
    holding[0].__exit__(None, None, None)
    with SyncRuntime.open(root, model=ScriptedModel(ANSWERS)) as rt:
        assert [event.kind for event in rt.runs.events("r")].count("llm_responded") == 1
        assert rt.resume("r").ok


def test_a_short_lock_only_delays_the_run(failed_run: Path):
    with locked(failed_run) as holder, SyncRuntime.open(failed_run, model=ScriptedModel(ANSWERS)) as rt:
        threading.Timer(0.2, holder.stdin.close).start()
        assert rt.resume("r", retry=True).ok
