"""Two processes that execute one run produce a single history."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reyn import OSRuntime
from reyn.errors import AppendConflict, RunBusy
from reyn.journal.sqlite import SqliteJournal
from reyn.testing import ScriptedModel
from tests.support import finish, go

pytestmark = pytest.mark.slow

HOLDER = """
import asyncio, sys
from reyn import OSRuntime
from reyn.testing import ScriptedModel

class Slow(ScriptedModel):
    async def complete(self, request):
        print("asked", flush=True)
        await asyncio.sleep(60)

async def main():
    async with OSRuntime.open(sys.argv[1], model=Slow([])) as rt:
        await rt.run("pair", {"text": "in"}, run_id="shared")

asyncio.run(main())
"""


def open_runtime(root: Path, journal=None) -> OSRuntime:
    return OSRuntime.open(root, model=ScriptedModel([go("second"), finish()]), journal=journal)


def test_a_second_process_is_refused_until_the_first_dies(project: Path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(project)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert holder.stdout.readline() == "asked\n"

        async def contend():
            async with open_runtime(project) as rt:
                assert rt.runs.display_status(rt.runs.find("shared")) == "running"
                with pytest.raises(RunBusy, match=f"executed by process {holder.pid}"):
                    await rt.resume("shared")
                result = await rt.run("pair", {"text": "in"}, run_id="shared", wait=False)
                assert result.status == "running"

        asyncio.run(contend())
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()

    async def take_over():
        async with open_runtime(project) as rt:
            assert rt.runs.display_status(rt.runs.find("shared")) == "running (interrupted)"
            result = await rt.resume("shared")
            assert result.ok
            resumed = [event.data for event in rt.runs.events("shared") if event.kind == "run_resumed"]
            assert [event["open_intents"] for event in resumed] == [["1.1"]]
            await rt.runs.replay("shared")

    asyncio.run(take_over())


def test_without_the_lock_one_process_wins_and_the_other_gets_a_conflict(project: Path):
    """The lock only saves work; the expected sequence number guarantees a single history."""

    class Unlocked(SqliteJournal):
        def claim(self, run_id):
            from contextlib import nullcontext

            return nullcontext()

    class Overtaken(ScriptedModel):
        async def complete(self, request):
            async with open_runtime(project, Unlocked(project / ".reyn")) as other:
                await other.resume("shared")
            return await super().complete(request)

    async def main():
        model = Overtaken([go("second"), finish()])
        async with OSRuntime.open(project, model=model, journal=Unlocked(project / ".reyn")) as rt:
            with pytest.raises(AppendConflict, match="another driver appended first"):
                await rt.run("pair", {"text": "in"}, run_id="shared")
            assert [event.kind for event in rt.runs.events("shared")].count("skill_completed") == 1
            await rt.runs.replay("shared")
            rt.runs.verify("shared")

    asyncio.run(main())


def test_reading_a_run_does_not_block_a_driver(project: Path):
    journal = SqliteJournal(project / ".reyn")
    child = os.fork()
    if child == 0:
        looking = SqliteJournal(project / ".reyn")
        while True:
            looking.is_claimed("r")
    try:
        for _ in range(3_000):
            with journal.claim("r"):
                pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        journal.close()


def test_a_suspended_reader_does_not_block_a_driver(project: Path):
    """A reader may be suspended while it holds its shared lock."""
    journal = SqliteJournal(project / ".reyn")
    path = project / ".reyn" / "locks" / "r.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        claim = journal.claim("r")
        driver = threading.Thread(target=claim.__enter__)
        driver.start()
        driver.join(0.3)  # longer than a driver waits for another one
        assert driver.is_alive()
    driver.join(60)
    assert journal.is_claimed("r")
    claim.__exit__(None, None, None)
    journal.close()
