"""A run that was killed, and whose record leads to a failure, has failed: only a user retries it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reyn.journal import MemoryJournal
from tests.kernel.support import IN, Project
from tests.kernel.test_fan_out import items, write_report
from tests.support import abort, act, file, go, write_skill

WRITE = "preprocessor:\n  - run_op: {op: {kind: file, op: write, path: output/x, content: y}, into: local.x}\n"
FAILS = WRITE + "  - expression: {condition: \"data.text == 'z'\", message: wrong}\n"
NO_EDGE = {"a": {"end": {"text": "x", "when": "data.text == 'z'"}}}


def write_failing(root: Path, how: str) -> tuple[str, list[Any], Any]:
    """Write a skill that fails; return its name, the answers, and the input."""
    match how:
        case "rejected answers":
            write_skill(root, "s", {"a": ["b"], "b": ["end"]}, ops={"b": "file"})
            return "s", [go("b"), act(file("write", "output/x", content="y")), *["no"] * 3], IN
        case "a step":
            write_skill(root, "s", {"a": ["b"], "b": ["end"]}, phase_keys={"b": FAILS})
            return "s", [go("b")], IN
        case "no edge":
            write_skill(root, "s", NO_EDGE, phase_keys={"a": WRITE})  # type: ignore[arg-type]
            return "s", [], IN
        case "a join":
            write_report(root)
            return "report", [abort(), abort(), abort()], items("a", "b", "c")
        case "a sub-run":
            write_skill(root, "t", {"a": ["end"]}, phase_keys={"a": FAILS})
            write_skill(root, "s", {"@t": ["a"], "a": ["end"]}, entry="@t")
            return "s", [], IN
    raise AssertionError(how)


def cut_off(journal: MemoryJournal, run: str, upto: int) -> MemoryJournal:
    """Return a copy of a journal that ends after some events of a run, with the children that it had begun."""
    cut = MemoryJournal()
    cut._blobs = dict(journal._blobs)
    events = list(journal.read(run))[:upto]
    cut.append(run, 0, events, [])
    for child in (event.data["run"] for event in events if event.kind == "child_started"):
        if journal.find(child) is not None:
            cut.append(child, 0, list(journal.read(child)), [])
    return cut


@pytest.mark.parametrize("how", ["rejected answers", "a step", "no edge", "a join", "a sub-run"])
def test_a_resume_retries_no_failure_that_the_record_leads_to(tmp_path: Path, how: str):
    skill, answers, value = write_failing(tmp_path, how)
    journal = MemoryJournal()
    whole = Project(tmp_path, journal).run(skill, answers, value)
    assert whole.status == "failed"
    failed = [event.kind for event in journal.read("k")].count("phase_failed")
    for upto in range(1, len(list(journal.read("k")))):
        (tmp_path / "output" / "x").unlink(missing_ok=True)
        project = Project(tmp_path, cut_off(journal, "k", upto))
        result = project.resume(answers)
        assert (result.status, result.path, result.reason) == ("failed", whole.path, whole.reason), upto
        assert project.kinds().count("phase_failed") == failed
        assert project.is_sound()
