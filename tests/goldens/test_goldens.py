"""Stored journals of the current rules: readable, verifiable, and replayed. Later rules keep them readable."""

from __future__ import annotations

from pathlib import Path

import pytest

import reyn.context.prompt as prompt
import reyn.context.render as render
import reyn.kernel.visit.turn as turn
from reyn import SyncRuntime
from reyn.errors import ReplayMismatch, RunBlocked
from reyn.journal import MemoryJournal
from reyn.kernel import versions
from reyn.kernel.versions import RULES
from reyn.testing import ScriptedModel
from tests.goldens.__main__ import FOLDER, RUNS, make_all
from tests.support import finish, go

FILES = sorted(FOLDER.glob("*.jsonl"))


def imported(path: Path, root: Path) -> tuple[SyncRuntime, tuple[str, ...]]:
    rt = SyncRuntime.open(root, journal=MemoryJournal())
    return rt, rt.runs.import_(path.read_bytes().splitlines(keepends=True)).imported


def test_every_run_has_a_golden_journal():
    assert {path.stem for path in FILES} == RUNS.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_journal_verifies_and_replays(path: Path, tmp_path: Path):
    rt, runs = imported(path, tmp_path)
    with rt:
        for run in runs:
            assert rt.runs.verify(run).events > 3
            assert rt.runs.result(run).run_id == run
            assert rt.runs.replay(run).events == rt.runs.verify(run).events


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_frame_of_a_golden_journal_is_available_as_a_value(path: Path, tmp_path: Path):
    rt, runs = imported(path, tmp_path)
    with rt:
        for run in runs:
            for seq in [event.seq for event in rt.runs.events(run) if event.kind == "frame_built"]:
                frame = rt.runs.context_frame(run, seq)
                assert list(frame.messages) == [one for one in rt.runs.prompt_at(run, seq) if one[0] != "answer"]
                assert not frame.warnings


# -- an older version, made up ---------------------------------------------------------------------------------


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The archive of a run under rules 0, which this release does not support."""
    with monkeypatch.context() as release:
        release.setattr(versions, "RULES", 0)
        return make_all(tmp_path, ["plain"])["plain"]


def test_a_run_of_rules_that_are_not_supported_can_be_read_and_not_replayed(older: list[bytes], tmp_path: Path):
    with SyncRuntime.open(tmp_path, journal=MemoryJournal()) as rt:
        rt.runs.import_(older)
        assert rt.runs.verify("plain").events == len(list(rt.runs.events("plain")))
        assert rt.runs.result("plain").ok
        with pytest.raises(RunBlocked, match="rules 0"):
            rt.runs.replay("plain")


def test_a_fork_continues_a_run_of_rules_that_are_not_supported(older: list[bytes], tmp_path: Path):
    """The fork starts between two visits under the current rules; its replay derives the events after the fork."""
    model = ScriptedModel([go("check"), finish("forked")] * 9)
    with SyncRuntime.open(tmp_path, journal=MemoryJournal(), model=model) as rt:
        rt.runs.import_(older)
        at = next(event.seq for event in rt.runs.events("plain") if event.kind == "phase_completed")
        result = rt.fork("plain", at=at + 3, run_id="fork")
        assert result.artifact == {"type": "note", "data": {"text": "forked"}}
        assert rt.runs.find("fork").rules == RULES
        assert rt.runs.verify("fork").events > at
        report = rt.runs.replay("fork")
        assert (report.inherited, report.events) == (at, rt.runs.verify("fork").events)


def test_a_frame_of_another_wording_has_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rt, _ = imported(FOLDER / "plain.jsonl", tmp_path)
    monkeypatch.setattr(prompt, "OPENING", "Be nice.\n")
    with rt:
        seq = next(event.seq for event in rt.runs.events("plain") if event.kind == "frame_built")
        frame = rt.runs.context_frame("plain", seq)
        assert frame.warnings == (
            "another version of Reyn, or a hook, phrased this prompt; its exact text is in the messages",
        )
        assert list(frame.messages) == [one for one in rt.runs.prompt_at("plain", seq) if one[0] != "answer"]


def test_golden_runs_are_reproduced_byte_for_byte(tmp_path: Path):
    for name, lines in make_all(tmp_path).items():
        assert b"".join(lines) == (FOLDER / f"{name}.jsonl").read_bytes(), name


def loud_correction(answer: str, path: str, message: str) -> tuple:
    return render.correction(answer, path, message.upper())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "changed"),
    [
        (prompt, "OPENING", "Be nice.\n"),
        (render, "RECORDED", "workspace:.elsewhere/"),
        (turn, "correction", loud_correction),
    ],
)
def test_a_changed_rule_is_detected(tmp_path: Path, monkeypatch, module, name: str, changed):
    """Each of these changes derived events, so replay must detect it without a new rules version."""
    monkeypatch.setattr(module, name, changed)
    failed = []
    for path in FILES:
        rt, runs = imported(path, tmp_path)
        with rt:
            for run in runs:
                try:
                    rt.runs.replay(run)
                except ReplayMismatch:
                    failed.append(run)
    assert failed
