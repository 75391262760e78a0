"""The work of the kernel per visit, in calls of Python and built-in functions: a clock would measure the machine."""

from __future__ import annotations

from pathlib import Path

from bench.workload import FIRST, SETTINGS, Answers, write_project
from reyn import OSRuntime, SyncRuntime
from reyn.journal import MemoryJournal
from tests.cost import count_calls


def calls_per_visit(root: Path, *, is_replayed: bool) -> float:
    """Return the calls that one more visit costs: the difference between a short and a long run."""
    counts = {}
    for visits in (10, 40):
        with SyncRuntime(OSRuntime.open(root, model=Answers(visits), journal=MemoryJournal(), **SETTINGS)) as rt:
            assert rt.run("loop", FIRST, run_id="first").ok  # compiles the skill
            if is_replayed:
                counts[visits] = count_calls(lambda rt=rt: rt.replay("first"))
            else:
                counts[visits] = count_calls(lambda rt=rt: rt.run("loop", FIRST, run_id="second"))
    return (counts[40] - counts[10]) / 30


def test_a_visit_makes_a_bounded_number_of_calls(tmp_path: Path):
    write_project(tmp_path)
    # 500, and up to 70 more on a busy machine: the event loop takes a turn, and the inbox is read, after some time.
    assert calls_per_visit(tmp_path, is_replayed=False) <= 600


def test_a_replayed_visit_makes_a_bounded_number_of_calls(tmp_path: Path):
    write_project(tmp_path)
    assert calls_per_visit(tmp_path, is_replayed=True) <= 420
