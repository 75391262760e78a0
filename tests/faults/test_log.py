"""The journal's log, `journal.db-wal`: a run whose driver was killed and whose log is damaged or missing.

A log belongs to its database: without it, SQLite opens the database as of the last checkpoint and reports no error.
What is left then is a run as it was some commits ago, whole and resumable; what came after it is asked for again.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reyn import OSRuntime
from reyn.errors import InternalError, ReynError, RunNotFound
from reyn.journal import sqlite
from reyn.testing import ScriptedModel
from reyn.testing.crash import KILLED, in_child
from tests.faults.support import reyn
from tests.support import finish, go, write_skill

VISITS = 30
ANSWERS = [*(go("turn", str(number)) for number in range(VISITS)), finish()]


class Killed:
    """A run that was killed with half of its commits in the database and half in the log."""

    def __init__(self, folder: Path) -> None:
        self.root, self._saved = folder / "project", folder / "saved"
        self.root.mkdir()
        write_skill(self.root, "loop", {"turn": ["turn", "end"]})
        (self.root / "reyn.yaml").write_text("max_phase_visits: 100\n")
        assert in_child(self._until_killed) == KILLED
        shutil.copytree(self.root, self._saved)
        self.log = (self._saved / ".reyn/journal.db-wal").read_bytes()
        self.events = self._events()

    def _until_killed(self) -> None:
        class Fatal(ScriptedModel):
            async def complete(self, request):
                if request.answered == VISITS // 2:
                    sqlite._COMMITS_PER_CHECKPOINT = 1_000_000
                if request.answered == VISITS - 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                return await super().complete(request)

        sqlite._COMMITS_PER_CHECKPOINT = 5
        runtime = OSRuntime.open(self.root, model=Fatal(ANSWERS))
        asyncio.run(runtime.run("loop", {"text": "in"}, run_id="r"))

    def restore(self, log: bytes | None) -> None:
        """The project as the kill left it, with another log, or none."""
        shutil.rmtree(self.root)
        shutil.copytree(self._saved, self.root)
        (self.root / ".reyn/journal.db-shm").unlink(missing_ok=True)
        (self.root / ".reyn/journal.db-wal").unlink()
        if log is not None:
            (self.root / ".reyn/journal.db-wal").write_bytes(log)

    def _events(self) -> list[bytes]:
        runtime = OSRuntime.open(self.root)
        found = [event.raw for event in runtime.runs.events("r")]
        runtime.services.journal.close()
        return found

    def left(self) -> list[bytes]:
        """What is left of the run: part of its history, from the beginning, and nothing else."""
        found = self._events()
        assert self.events[: len(found)] == found
        return found

    def resume(self) -> None:
        async def work() -> None:
            async with OSRuntime.open(self.root, model=ScriptedModel(ANSWERS)) as runtime:
                runtime.runs.verify("r")
                assert (await runtime.resume("r")).ok
                assert (await runtime.runs.replay("r")).status == "finished"
                runtime.runs.verify("r")

        asyncio.run(work())


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    return Killed(tmp_path_factory.mktemp("killed"))


def test_a_journal_with_its_log_is_complete(killed: Killed):
    killed.restore(killed.log)
    assert killed.left() == killed.events
    killed.resume()


def test_without_its_log_the_run_continues_from_the_last_checkpoint(killed: Killed):
    killed.restore(None)
    assert 0 < len(killed.left()) < len(killed.events)
    killed.resume()


def test_a_truncated_log_loses_only_the_events_after_the_truncation(killed: Killed):
    lengths = []
    for length in range(0, len(killed.log), len(killed.log) // 25):
        killed.restore(killed.log[:length])
        lengths.append(len(killed.left()))
        killed.resume()
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 5


def test_a_flipped_bit_in_the_log_does_not_mix_histories(killed: Killed):
    chance = random.Random(9)
    for at in sorted({*range(0, 32, 3), *(chance.randrange(len(killed.log)) for _ in range(40))}):
        damaged = bytearray(killed.log)
        damaged[at] ^= 1 << chance.randrange(8)
        killed.restore(bytes(damaged))
        try:
            killed.left()
            killed.resume()
        except InternalError:
            raise
        except ReynError:
            continue


def test_a_journal_that_was_never_checkpointed_is_lost_with_its_log(tmp_path: Path):
    write_skill(tmp_path, "loop", {"turn": ["turn", "end"]})

    def until_killed() -> None:
        class Fatal(ScriptedModel):
            async def complete(self, request):
                os.kill(os.getpid(), signal.SIGKILL)

        runtime = OSRuntime.open(tmp_path, model=Fatal([]))
        asyncio.run(runtime.run("loop", {"text": "in"}, run_id="r"))

    assert in_child(until_killed) == KILLED
    for name in ("journal.db-wal", "journal.db-shm"):
        (tmp_path / ".reyn" / name).unlink()
    for words in (("show", "r"), ("verify", "r"), ("resume", "r")):
        result = reyn(tmp_path, *words)
        assert (result.code, f"error {RunNotFound.code}" in result.err) == (2, True), result
