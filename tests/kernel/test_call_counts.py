"""The work of the kernel per visit, in calls of Python and built-in functions: a clock would measure the machine.

Counted in a replay, which executes the same code as a live run and does the same work on every machine.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.workload import FIRST, SETTINGS, Answers, write_project
from reyn import OSRuntime, SyncRuntime
from reyn.journal import MemoryJournal
from tests.cost import count_calls


def calls_of_a_replay(root: Path, visits: int) -> int:
    runtime = OSRuntime.open(root, model=Answers(visits), journal=MemoryJournal(), **SETTINGS)
    with asyncio.Runner() as runner, SyncRuntime(runtime, runner) as rt:  # in this thread, whose calls are counted
        assert rt.run("loop", FIRST, run_id="r").ok
        return count_calls(lambda: rt.runs.replay("r"))


def test_a_visit_makes_a_bounded_number_of_calls(tmp_path: Path):
    write_project(tmp_path)
    more = calls_of_a_replay(tmp_path, 25) - calls_of_a_replay(tmp_path, 5)
    assert more / 20 <= 440
