"""Workers in processes of their own: kills, a pause beyond the lease, and a drain. Nothing is lost or done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reyn import SyncRuntime
from tests.kernel.test_fan_out import items, write_report
from tests.runtime.test_submitted_branches import EACH
from tests.runtime.worker_process import LEASE, PHASES, Witness
from tests.support import write_skill

ROOT = Path(__file__).parents[2]
RUNS = [f"r{number}" for number in range(16)]
pytestmark = pytest.mark.slow


class Fleet:
    """Workers of one project."""

    def __init__(self, project: Path, witness: Path) -> None:
        self._project, self._witness = project, witness
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        script = [sys.executable, "-m", "tests.runtime.worker_process", str(self._project), str(self._witness)]
        self.workers.append(subprocess.Popen(script, cwd=ROOT))

    @property
    def calls(self) -> list[list[str]]:
        """Process, run and phase of each model call."""
        return [line.split() for line in self._witness.read_text().splitlines()] if self._witness.exists() else []

    def caller_after(self, submit: Callable[[], None]) -> subprocess.Popen[bytes]:
        """Return the worker that makes the next model call after runs are submitted."""
        before = len(self.calls)
        submit()
        self.wait(lambda: len(self.calls) > before)
        return next(one for one in self.workers if one.pid == int(self.calls[before][0]))

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, "the workers do not get on"
            time.sleep(0.005)

    def end(self) -> None:
        for one in self.workers:
            one.kill()
            one.wait()


@contextmanager
def fleet(project: Path) -> Iterator[Fleet]:
    workers = Fleet(project, project / "witness.txt")
    try:
        yield workers
    finally:
        workers.end()


def check_runs(rt: SyncRuntime, calls: list[list[str]], most_repeated: int) -> None:
    """Check that each run has each answer once, and that only calls of processes that died were repeated."""
    for run_id in RUNS:
        assert rt.runs.result(run_id).status == "finished"
        rt.runs.verify(run_id)
        entered = [event.data["phase"] for event in rt.runs.events(run_id) if event.kind == "phase_started"]
        answers = [event for event in rt.runs.events(run_id) if event.kind == "llm_responded"]
        assert (entered, len(answers)) == ([*PHASES], len(PHASES))
    made = Counter((run, phase) for _, run, phase in calls)
    assert made.keys() == {(run, phase) for run in RUNS for phase in PHASES}
    assert sum(made.values()) - len(made) <= most_repeated
    assert rt.services.journal.wakes() == []


def test_three_workers_lose_and_double_nothing_when_they_are_killed_paused_and_drained(tmp_path: Path):
    write_skill(tmp_path, "steps", {one: [then] for one, then in zip(PHASES, [*PHASES[1:], "end"], strict=True)})
    witness = str(tmp_path / "witness.txt")
    with fleet(tmp_path) as workers, SyncRuntime.open(tmp_path, model=Witness(witness), trust=True) as rt:

        def submit(runs: list[str]) -> Callable[[], None]:
            def submit_all() -> None:
                for run_id in runs:
                    rt.submit("steps", {"text": run_id}, run_id=run_id)

            return submit_all

        for _ in range(3):
            workers.start()
        killed = workers.caller_after(submit(RUNS[:6]))
        killed.kill()
        killed.wait()
        workers.start()
        paused = workers.caller_after(submit(RUNS[6:11]))
        os.kill(paused.pid, signal.SIGSTOP)
        time.sleep(2 * LEASE)  # longer than the lease: others are offered its runs
        os.kill(paused.pid, signal.SIGCONT)
        drained = workers.caller_after(submit(RUNS[11:]))
        drained.terminate()
        assert drained.wait(120) == 0
        workers.wait(lambda: all(rt.runs.find(run).status == "finished" for run in RUNS))
        workers.wait(lambda: not rt.services.journal.wakes())
        check_runs(rt, workers.calls, most_repeated=4)  # two slots each of the killed worker and of the drained one


def test_the_branches_of_a_killed_worker_go_on_and_no_recorded_answer_is_requested_again(tmp_path: Path):
    write_report(tmp_path, EACH)
    runs = ["r0", "r1"]
    with fleet(tmp_path) as workers, SyncRuntime.open(tmp_path, model=Witness("/dev/null"), trust=True) as rt:

        def submit() -> None:
            for run_id in runs:
                rt.submit("report", items("a", "b", "c"), run_id=run_id)

        for _ in range(2):
            workers.start()
        killed = workers.caller_after(submit)
        killed.kill()
        killed.wait()
        workers.wait(lambda: all(rt.runs.find(run).status == "finished" for run in runs))
        workers.wait(lambda: not rt.services.journal.wakes())
        rows = rt.runs.all()
        assert len(rows) == 4 * len(runs)
        for row in rows:
            rt.runs.verify(row.run_id)
            assert [event.kind for event in rt.runs.events(row.run_id)].count("llm_responded") == 1
        made = Counter((run, phase) for _, run, phase in workers.calls)
        assert made.keys() == {(row.run_id, "write" if row.parent else "assemble") for row in rows}
        assert sum(made.values()) - len(made) <= 2, "only what the killed worker had in its two slots"
