"""Derived texts have a version of their own: changing a sentence blocks no run."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.context import render
from reyn.errors import ReplayMismatch
from reyn.kernel import phase_executor, versions
from tests.kernel.doing import Project
from tests.support import act, file, finish, go, question, write_skill

OTHER = versions.WORDING + 1
ANSWERS = [
    "no JSON",
    act(file("read", "long.txt")),
    act(question("Which?")),
    "no JSON either",
    go("b"),
    finish(),
]


@pytest.fixture
def waiting(tmp_path: Path) -> Project:
    """A run that waits, after a rejected answer and a truncated result, under today's wording."""
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file, ask_user"})
    (tmp_path / "long.txt").write_text("long\n" * 5_000)
    project = Project(tmp_path)
    assert project.run("s", ANSWERS).status == "waiting"
    return project


def reword(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next release, in which every derived text reads differently."""
    monkeypatch.setattr(versions, "WORDING", OTHER)
    monkeypatch.setattr(render, "CONTRACT", "Choose a candidate and answer with JSON.\n")
    monkeypatch.setattr(phase_executor, "correction", lambda a, p, m: render.correction(a, p, f"please fix: {m}"))
    monkeypatch.setattr("reyn.contract.judge.short", lambda words: f"reworded: {words}")
    monkeypatch.setattr(render, "PART", 999)


def test_a_run_in_flight_continues_under_a_new_wording(waiting: Project, monkeypatch: pytest.MonkeyPatch):
    recorded = list(waiting.journal.read("k"))
    reword(monkeypatch)
    with waiting.open(ANSWERS) as rt:
        rt.answer("k", "1.3.1", "this one")
        assert rt.resume("k").ok
        [resumed] = waiting.events("run_resumed")
        assert resumed["wording"] == OTHER
        assert list(waiting.journal.read("k"))[: len(recorded)] == recorded
        assert waiting.model.stable(0).startswith("Choose a candidate")
        report = rt.replay("k")
        assert report.events == rt.verify("k").events
        assert report.reworded > 3


def test_turns_that_are_recorded_are_asked_as_recorded(waiting: Project, monkeypatch: pytest.MonkeyPatch):
    """A driver that died in mid-answer left a frame of the old wording: that is what the model is asked again."""
    cut = [event for event in waiting.journal.read("k") if event.seq <= 4]
    assert cut[-1].kind == "llm_requested"
    other = Project(waiting.root)
    other.journal.append("k", 0, cut, [])
    other.journal._blobs.update(waiting.journal._blobs)
    reword(monkeypatch)
    with other.open(ANSWERS) as rt:
        assert rt.resume("k").status == "waiting"
        assert other.model.stable(0) == waiting.model.stable(0)
        assert other.model.stable(1).startswith("Choose a candidate")
        assert rt.replay("k").events == rt.verify("k").events


def test_a_text_that_changed_without_a_new_version_is_found(waiting: Project, monkeypatch: pytest.MonkeyPatch):
    reword(monkeypatch)
    monkeypatch.setattr(versions, "WORDING", OTHER - 1)
    with waiting.open([]) as rt, pytest.raises(ReplayMismatch, match="event 3 `frame_built`: `messages`"):
        rt.replay("k")


def test_a_rule_that_changed_is_found_under_any_wording(waiting: Project, monkeypatch: pytest.MonkeyPatch):
    """Only texts are left out of the comparison: which part of an answer was rejected, and why, is not text."""
    reword(monkeypatch)
    judged = phase_executor.kinds.ValidationError
    monkeypatch.setattr(
        phase_executor.kinds, "ValidationError", lambda call, rule, path, *rest: judged(call, "other", path, *rest)
    )
    with waiting.open([]) as rt, pytest.raises(ReplayMismatch, match="`class` is recorded as 'not_json'"):
        rt.replay("k")


def test_a_run_that_was_resumed_under_several_wordings_is_replayed(waiting: Project, monkeypatch: pytest.MonkeyPatch):
    reword(monkeypatch)
    with waiting.open(ANSWERS[:3]) as rt:
        rt.answer("k", "1.3.1", "this one")
        assert rt.resume("k").status == "failed"  # the script is exhausted
    monkeypatch.setattr(versions, "WORDING", OTHER + 1)
    monkeypatch.setattr(render, "CONTRACT", "Decide.\n")
    with waiting.open(ANSWERS) as rt:
        assert rt.resume("k", retry=True).ok
        assert [event["wording"] for event in waiting.events("run_resumed")] == [OTHER, OTHER + 1]
        assert rt.replay("k").events == rt.verify("k").events
