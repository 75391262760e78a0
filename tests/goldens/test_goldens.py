"""Journals of every rules version: always readable and verifiable, replayed where the rules are supported."""

from __future__ import annotations

from pathlib import Path

import pytest

import reyn.context.prompt as prompt
import reyn.context.render as render
import reyn.kernel.visit.phase_executor as phase_executor
import reyn.kernel.visit.turn as turn
from reyn import SyncRuntime
from reyn.errors import ReplayMismatch, RunBlocked
from reyn.journal import MemoryJournal
from reyn.kernel.versions import RULES, SUPPORTED_RULES
from reyn.testing import ScriptedModel
from tests.goldens.__main__ import RUNS, make_all
from tests.support import finish, go

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("rules-*/*.jsonl"))


def rules_of(path: Path) -> int:
    return int(path.parent.name.removeprefix("rules-"))


def imported(path: Path, root: Path) -> tuple[SyncRuntime, tuple[str, ...]]:
    rt = SyncRuntime.open(root, journal=MemoryJournal())
    return rt, rt.import_(path.read_bytes().splitlines(keepends=True)).imported


def test_every_rules_version_has_golden_journals():
    assert {rules_of(path) for path in FILES} == set(range(1, RULES + 1))
    assert {path.stem for path in FILES if rules_of(path) == RULES} == RUNS.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_golden_journal_verifies_and_replays(path: Path, tmp_path: Path):
    rt, runs = imported(path, tmp_path)
    with rt:
        for run in runs:
            assert rt.verify(run).events > 3
            assert rt.result(run).run_id == run
            if rules_of(path) in SUPPORTED_RULES:
                assert rt.replay(run).events == rt.verify(run).events
            else:
                with pytest.raises(RunBlocked, match=f"rules {rules_of(path)}"):
                    rt.replay(run)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_frame_of_a_golden_journal_is_available_as_a_value(path: Path, tmp_path: Path):
    rt, runs = imported(path, tmp_path)
    with rt:
        for run in runs:
            for seq in [event.seq for event in rt.events(run) if event.kind == "frame_built"]:
                frame = rt.context_frame(run, seq)
                assert list(frame.messages) == [one for one in rt.prompt_at(run, seq) if one[0] != "answer"]
                assert bool(frame.warnings) == (rules_of(path) not in SUPPORTED_RULES)


def test_a_fork_continues_a_run_of_rules_that_are_not_supported(tmp_path: Path):
    """The fork starts between two visits under the current rules; its replay derives the events after the fork."""
    path = HERE / "rules-4" / "plain.jsonl"
    model = ScriptedModel([go("check"), finish("forked")] * 9)
    with SyncRuntime.open(tmp_path, journal=MemoryJournal(), model=model) as rt:
        rt.import_(path.read_bytes().splitlines(keepends=True))
        at = next(event.seq for event in rt.events("plain") if event.kind == "phase_completed")
        result = rt.fork("plain", at=at + 3, run_id="fork")
        assert result.artifact == {"type": "note", "data": {"text": "forked"}}
        assert rt.find("fork").rules == RULES
        assert rt.verify("fork").events > at
        report = rt.replay("fork")
        assert (report.inherited, report.events) == (at, rt.verify("fork").events)


def test_golden_runs_are_reproduced_byte_for_byte(tmp_path: Path):
    for name, lines in make_all(tmp_path).items():
        assert b"".join(lines) == (HERE / f"rules-{RULES}" / f"{name}.jsonl").read_bytes(), name


def loud_correction(answer: str, path: str, message: str) -> tuple:
    return render.correction(answer, path, message.upper())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "changed"),
    [
        (prompt, "OPENING", "Be nice.\n"),
        (render, "FULL_CONTENT", "workspace:.elsewhere/"),
        (turn, "correction", loud_correction),
        (phase_executor, "successors", lambda skill, phase: ()),
    ],
)
def test_a_changed_rule_is_detected(tmp_path: Path, monkeypatch, module, name: str, changed):
    """Each of these changes derived events, so replay must detect it without a new rules version."""
    monkeypatch.setattr(module, name, changed)
    failed = []
    for path in FILES:
        if rules_of(path) in SUPPORTED_RULES:
            rt, runs = imported(path, tmp_path)
            with rt:
                for run in runs:
                    try:
                        rt.replay(run)
                    except ReplayMismatch:
                        failed.append(run)
    assert failed
