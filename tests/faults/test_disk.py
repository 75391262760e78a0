"""A full or read-only disk: an error with a code, no lost events, and a run that continues when there is space."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from reyn import OSRuntime, SyncRuntime
from reyn.errors import StoreUnavailable
from reyn.journal.sqlite import SqliteJournal
from reyn.testing import ScriptedModel
from reyn.testing.crash import Claims, Ledger, LedgerJournal, LedgerModel, violations
from tests.faults.support import IN, Disk, reyn, temporaries
from tests.support import act, file, finish, go, write_skill

INPUT = {"text": "in"}
LONG = "long " * 8_000


# -- the journal's disk -----------------------------------------------------------------------------------


def test_on_a_full_disk_no_run_starts_and_with_space_the_same_command_starts_it(root: Path, disk: Disk):
    disk.move_to(root / ".reyn", "16k")
    result = reyn(root, "run", "pair", IN, "--run-id", "r")
    assert result.is_error("RYN408"), result
    assert "disk" in result.err
    disk.resize("4m")
    assert reyn(root, "run", "pair", IN, "--run-id", "r").code == 0
    assert reyn(root, "verify", "r").code == 0


def test_a_disk_that_fills_up_during_a_run_loses_no_recorded_event(root: Path, disk: Disk):
    """Through the command line: answers of 40 KB each, a disk of 1 MB, then a larger one."""
    write_skill(root, "loop", {"turn": ["turn", "end"]})
    answers = [*(go("turn", f"{number} {LONG}") for number in range(12)), finish()]
    (root / "answers.jsonl").write_text("\n".join(json.dumps(answer) for answer in answers))
    disk.move_to(root / ".reyn", "1m")
    result = reyn(root, "run", "loop", IN, "--run-id", "r")
    assert result.is_error("RYN408"), result
    disk.resize("8m")
    before = reyn(root, "events", "r", "--json").out.splitlines()
    assert sum('"llm_responded"' in line for line in before) > 1
    assert reyn(root, "verify", "r").code == 0
    assert reyn(root, "replay", "r").code == 0
    assert "interrupted" in reyn(root, "runs").out
    assert reyn(root, "resume", "r").code == 0
    assert reyn(root, "events", "r", "--json").out.splitlines()[: len(before)] == before
    assert reyn(root, "replay", "r").code == 0


class GrowingDisk:
    """GrowingDisk one run on a disk that is too small, and makes that larger whenever it is full."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.root, self.disk = root, disk
        self.ledger = Ledger(root / "ledger.jsonl")
        self.failures: list[str] = []

    def until_it_ends(self, answers: list, kilobytes: int) -> None:
        while True:
            try:
                result = asyncio.run(self._drive(answers))
                assert result.ok, result
                return
            except StoreUnavailable as error:
                self.failures.append(error.message)
                kilobytes += 24
                self.disk.resize(f"{kilobytes}k")

    async def _drive(self, answers: list):
        journal = LedgerJournal(SqliteJournal(self.root / ".reyn"), self.ledger)
        model = LedgerModel(ScriptedModel(answers), self.ledger)
        async with OSRuntime.open(self.root, journal=journal, model=model) as runtime:
            return await runtime.run("pair", INPUT, run_id="r")

    def check(self) -> list[str]:
        with SyncRuntime.open(self.root) as runtime:
            runtime.runs.verify("r")
            assert runtime.runs.replay("r").status == "finished"
            claims = Claims.of(runtime.runs.events("r"))
        entries = [entry for entry in self.ledger.read() if entry.run == "r"]
        return violations(entries, claims, kills=len(self.failures))


@pytest.mark.parametrize("kilobytes", range(16, 240, 16))
def test_wherever_the_disk_fills_up_the_run_continues_when_space_is_free(root: Path, disk: Disk, kilobytes: int):
    answers = [
        act(file("write", "workspace:a.txt", content=LONG)),
        act(file("edit", "output/log.txt", old_string="x", new_string="xx", replace_all=True)),
        go("second", LONG),
        finish(),
    ]
    (root / "output").mkdir()
    (root / "output/log.txt").write_text("x\n")
    disk.move_to(root / ".reyn", f"{kilobytes}k")
    drives = GrowingDisk(root, disk)
    drives.until_it_ends(answers, kilobytes)
    assert drives.failures or kilobytes > 100
    assert all("full" in why or "No space" in why or "disk I/O" in why for why in drives.failures), drives.failures
    assert drives.check() == []
    assert (root / "output/log.txt").read_text() == "xx\n"
    written = root / ".reyn/workspace/r/a.txt"
    assert not written.exists() or written.read_text() == LONG  # without space, the op returned an error
    assert temporaries(root) == []


def test_a_disk_that_fills_up_during_a_model_call_loses_no_recorded_event(root: Path, disk: Disk):
    disk.move_to(root / ".reyn", "2m")
    fillers: list[Path] = []

    class Filling(ScriptedModel):
        async def complete(self, request):
            if request.answered == 1:
                fillers.append(disk.fill())
            return await super().complete(request)

    answers = [go("second", LONG), finish(LONG)]
    with SyncRuntime.open(root, model=Filling(answers)) as rt, pytest.raises(StoreUnavailable):
        rt.run("pair", INPUT, run_id="r")
    with SyncRuntime.open(root) as rt:
        kinds = [event.kind for event in rt.runs.events("r")]
        assert kinds.count("llm_responded") == 1
        assert rt.runs.verify("r").events == len(kinds)
        with pytest.raises(StoreUnavailable):  # still no space
            rt.resume("r", model="scripted:answers.jsonl")
    fillers[0].unlink()
    with SyncRuntime.open(root, model=ScriptedModel(answers)) as rt:
        assert rt.resume("r").ok
        assert rt.runs.replay("r").status == "finished"


# -- the disk that files are written to -------------------------------------------------------------------


def run_ops(root: Path, answers: list) -> list[dict]:
    """Execute a run and return the results of its file ops."""
    with SyncRuntime.open(root, model=ScriptedModel(answers)) as rt:
        result = rt.run("pair", INPUT, run_id="r")
        assert result.ok, result
        done = [event.data["result"] for event in rt.runs.events("r") if event.kind == "file_completed"]
        rt.runs.verify("r")
        assert rt.runs.replay("r").status == "finished"
        return [json.loads(rt.runs.content(name)) for name in done]


TOO_LARGE = "y" * 300_000
CHANGES = {
    "write": file("write", "output/out/a.txt", content=TOO_LARGE),
    "edit": file("edit", "output/out/a.txt", old_string="original", new_string=TOO_LARGE),
    "new": file("write", "output/out/new.txt", content=TOO_LARGE),
    "folder": file("write", "output/out/deep/er/new.txt", content=TOO_LARGE),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_write_to_a_full_disk_is_an_op_error_and_leaves_no_file(root: Path, disk: Disk, change: str):
    disk.move_to(root / "output/out", "128k")
    original = root / "output/out/a.txt"
    original.write_text("original\n")
    small = file("write", "output/out/small.txt", content="small\n")
    failed, after = run_ops(root, [act(CHANGES[change]), act(small), go("second"), finish()])
    assert (failed["status"], "No space left" in failed["error"]) == ("error", True)
    assert after["status"] == "ok"
    assert original.read_text() == "original\n"
    assert temporaries(root) == []
    assert not (root / "output/out/new.txt").exists()


def test_a_write_to_a_read_only_disk_is_an_op_error(root: Path, disk: Disk):
    disk.move_to(root / "output/out", "128k")
    original = root / "output/out/a.txt"
    original.write_text("original\n")
    disk.make_read_only()
    ops = [file("write", "output/out/a.txt", content="new"), file("delete", "output/out/a.txt")]
    for failed in run_ops(root, [act(*ops), go("second"), finish()]):
        assert (failed["status"], "Read-only" in failed["error"]) == ("error", True)
    assert original.read_text() == "original\n"


# -- a state directory that is read-only ------------------------------------------------------------------


def test_a_read_only_state_directory_allows_reading_but_no_runs(root: Path, disk: Disk):
    disk.move_to(root / ".reyn", "4m")
    assert reyn(root, "run", "pair", IN, "--run-id", "done").code == 0
    (root / "answers.jsonl").write_text(json.dumps(go("second")))
    assert reyn(root, "run", "pair", IN, "--run-id", "failed").code == 1
    disk.make_read_only()
    for words in (("runs",), ("show", "done"), ("events", "done"), ("verify", "done"), ("replay", "done")):
        assert reyn(root, *words).code == 0, words
    for words in (("run", "pair", IN), ("resume", "failed", "--retry")):
        assert reyn(root, *words).is_error("RYN408"), words
    disk.make_writable()
    (root / "answers.jsonl").write_text("\n".join(json.dumps(answer) for answer in (go("second"), finish())))
    assert reyn(root, "resume", "failed", "--retry").code == 0


def test_a_file_that_cannot_be_restored_on_a_full_disk_is_named(root: Path, disk: Disk):
    disk.move_to(root / "output/out", "256k")
    original = root / "output/out/a.txt"
    original.write_text(LONG)

    class Filling(ScriptedModel):
        async def complete(self, request):
            if request.answered == 1:
                disk.fill()
            return await super().complete(request)

    answers = [act(file("write", "output/out/a.txt", content="short\n")), "no", "no", go("second"), finish()]
    with SyncRuntime.open(root, model=Filling(answers), max_phase_retries=1) as rt:
        result = rt.run("pair", INPUT, run_id="r")
        assert result.status == "failed"
        assert result.warnings == (
            "`output/out/a.txt` was not restored: another program changed it, or it cannot be written",
        )
        (root / "output/out/filler").unlink()
        assert temporaries(root) == []
        assert rt.runs.undo("r").restored == ("output/out/a.txt",)
    assert original.read_text() == LONG
