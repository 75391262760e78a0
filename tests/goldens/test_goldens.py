"""Journals of every rules version, for good: readable and whole always; derived again where the rules are carried."""

from __future__ import annotations

from pathlib import Path

import pytest

import reyn.context.render as render
import reyn.kernel.phase_executor as phase_executor
from reyn import SyncRuntime
from reyn.errors import ReplayMismatch, RunBlocked
from reyn.journal import MemoryJournal
from reyn.kernel.run_orchestrator import CARRIED, RULES_VERSION
from tests.goldens.__main__ import RUNS, make_all

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("rules-*/*.jsonl"))


def rules_of(path: Path) -> int:
    return int(path.parent.name.removeprefix("rules-"))


def imported(path: Path, root: Path) -> tuple[SyncRuntime, tuple[str, ...]]:
    rt = SyncRuntime.open(root, journal=MemoryJournal())
    return rt, rt.import_(path.read_bytes().splitlines(keepends=True)).imported


def test_every_version_has_its_journals():
    assert {rules_of(path) for path in FILES} == set(range(1, RULES_VERSION + 1))
    assert {path.stem for path in FILES if rules_of(path) == RULES_VERSION} == RUNS.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_golden_journal_is_whole_and_derived_again(path: Path, tmp_path: Path):
    rt, runs = imported(path, tmp_path)
    with rt:
        for run in runs:
            assert rt.verify(run).events > 3
            assert rt.result(run).run_id == run
            if rules_of(path) in CARRIED:
                assert rt.replay(run).events == rt.verify(run).events
            else:
                with pytest.raises(RunBlocked, match=f"rules version {rules_of(path)}"):
                    rt.replay(run)


def test_the_same_runs_give_the_same_bytes_today(tmp_path: Path):
    for name, lines in make_all(tmp_path).items():
        assert b"".join(lines) == (HERE / f"rules-{RULES_VERSION}" / f"{name}.jsonl").read_bytes(), name


def loud_correction(answer: str, path: str, message: str) -> tuple:
    return render.correction(answer, path, message.upper())


@pytest.mark.parametrize(
    ("module", "name", "changed"),
    [
        (render, "CONTRACT", render.CONTRACT + "- Be nice.\n"),
        (render, "KEPT", "workspace:.elsewhere/"),
        (phase_executor, "correction", loud_correction),
        (phase_executor, "successors", lambda skill, phase: ()),
    ],
)
def test_a_rule_changed_on_purpose_is_found(tmp_path: Path, monkeypatch, module, name: str, changed):
    """Any of these changes what is derived; without a new rules version it must not pass."""
    monkeypatch.setattr(module, name, changed)
    failed = []
    for path in FILES:
        if rules_of(path) in CARRIED:
            rt, runs = imported(path, tmp_path)
            with rt:
                for run in runs:
                    try:
                        rt.replay(run)
                    except ReplayMismatch:
                        failed.append(run)
    assert failed
