"""A database that another process holds: a run waits for it a while, then stops with a code, and goes on later."""

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
from reyn.journal import sqlite
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
def held(root: Path, how: str = "BEGIN IMMEDIATE") -> Iterator[subprocess.Popen]:
    """Another process that holds the database, until its standard input is closed."""
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
    monkeypatch.setattr(sqlite, "_BUSY_SECONDS", 0.05)


@pytest.fixture
def begun(root: Path) -> Path:
    """A project with a run that failed after one answer."""
    with SyncRuntime.open(root, model=ScriptedModel(ANSWERS[:1])) as rt:
        assert rt.run("pair", {"text": "in"}, run_id="r").status == "failed"
    return root


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_a_run_that_cannot_write_stops_with_a_code_and_goes_on_later(
    begun: Path, how: str, capsys: pytest.CaptureFixture[str]
):
    with held(begun, how):
        for words in (["run", "pair", IN], ["resume", "r", "--retry", "--model", f"scripted:{begun}/answers.jsonl"]):
            assert run_app(["--project", str(begun), *words]) == 1
            said = capsys.readouterr().err
            assert "error RYN408" in said
            assert "locked" in said
    with SyncRuntime.open(begun, model=ScriptedModel(ANSWERS)) as rt:
        assert [row.run_id for row in rt.runs()] == ["r"]
        assert rt.resume("r", retry=True).ok
        assert rt.replay("r").status == "finished"


@pytest.mark.usefixtures("impatient")
def test_what_was_recorded_before_the_lock_stays(root: Path):
    holding = []

    class Slow(ScriptedModel):
        async def complete(self, request):
            if request.answered == 1:
                holding.append(held(root))
                holding[0].__enter__()
            return await super().complete(request)

    with SyncRuntime.open(root, model=Slow(ANSWERS)) as rt, pytest.raises(StoreUnavailable, match="locked"):
        rt.run("pair", {"text": "in"}, run_id="r")
    holding[0].__exit__(None, None, None)
    with SyncRuntime.open(root, model=ScriptedModel(ANSWERS)) as rt:
        assert [event.kind for event in rt.events("r")].count("llm_responded") == 1
        assert rt.resume("r").ok


def test_a_lock_that_is_let_go_is_waited_for(begun: Path):
    with held(begun) as holder, SyncRuntime.open(begun, model=ScriptedModel(ANSWERS)) as rt:
        threading.Timer(0.2, holder.stdin.close).start()
        assert rt.resume("r", retry=True).ok
