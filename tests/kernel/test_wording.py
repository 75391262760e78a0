"""Derived texts have their own version: a changed sentence blocks no run."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.context import prompt, render
from reyn.errors import ReplayMismatch
from reyn.kernel import versions
from reyn.kernel.visit import phase_executor, turn
from tests.kernel.support import Project
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
    monkeypatch.setattr(prompt, "OPENING", "Choose a candidate and answer with JSON.\n")
    monkeypatch.setattr(turn, "correction", lambda a, p, m: render.correction(a, p, f"please fix: {m}"))
    monkeypatch.setattr("reyn.contract.verdicts.bounded", lambda words: f"reworded: {words}")
    monkeypatch.setattr(render, "READ_LENGTH", 999)


def test_a_run_in_flight_continues_under_a_new_wording(waiting: Project, monkeypatch: pytest.MonkeyPatch):
    recorded = list(waiting.journal.read("k"))
    reword(monkeypatch)
    with waiting.open(ANSWERS) as rt:
        rt.answer("k", "1.3.1", "this one")
        assert rt.resume("k").ok
        [resumed] = waiting.events("run_resumed")
        assert resumed["wording"] == OTHER
        assert list(waiting.journal.read("k"))[: len(recorded)] == recorded
        assert waiting.model.system_message(0).startswith("Choose a candidate")
        report = rt.runs.replay("k")
        assert report.events == rt.runs.verify("k").events
        assert report.reworded > 3


def test_recorded_turns_keep_their_texts(waiting: Project, monkeypatch: pytest.MonkeyPatch):
    """A frame that was recorded before a crash is sent again with its old texts."""
    cut = [event for event in waiting.journal.read("k") if event.seq <= 4]
    assert cut[-1].kind == "llm_requested"
    other = Project(waiting.root)
    other.journal.append("k", 0, cut, [])
    other.journal._blobs.update(waiting.journal._blobs)
    reword(monkeypatch)
    with other.open(ANSWERS) as rt:
        assert rt.resume("k").status == "waiting"
        assert other.model.system_message(0) == waiting.model.system_message(0)
        assert other.model.system_message(1).startswith("Choose a candidate")
        assert rt.runs.replay("k").events == rt.runs.verify("k").events


def test_a_text_that_changed_without_a_new_wording_version_is_detected(
    waiting: Project, monkeypatch: pytest.MonkeyPatch
):
    reword(monkeypatch)
    monkeypatch.setattr(versions, "WORDING", OTHER - 1)
    with waiting.open([]) as rt, pytest.raises(ReplayMismatch, match="event 3 `frame_built`: `messages`"):
        rt.runs.replay("k")


def test_a_changed_rule_is_detected_under_any_wording(waiting: Project, monkeypatch: pytest.MonkeyPatch):
    """Only derived texts are ignored; the rule and the path of a rejection are compared."""
    reword(monkeypatch)
    judged = phase_executor.kinds.ValidationError
    monkeypatch.setattr(
        phase_executor.kinds, "ValidationError", lambda call, rule, path, *rest: judged(call, "other", path, *rest)
    )
    with waiting.open([]) as rt, pytest.raises(ReplayMismatch, match="`class` is recorded as 'not_json'"):
        rt.runs.replay("k")


def test_a_run_resumed_under_several_wordings_replays(waiting: Project, monkeypatch: pytest.MonkeyPatch):
    reword(monkeypatch)
    with waiting.open(ANSWERS[:3]) as rt:
        rt.answer("k", "1.3.1", "this one")
        assert rt.resume("k").status == "failed"  # the script is exhausted
    monkeypatch.setattr(versions, "WORDING", OTHER + 1)
    monkeypatch.setattr(prompt, "OPENING", "Decide.\n")
    with waiting.open(ANSWERS) as rt:
        assert rt.resume("k", retry=True).ok
        assert [event["wording"] for event in waiting.events("run_resumed")] == [OTHER, OTHER + 1]
        assert rt.runs.replay("k").events == rt.runs.verify("k").events


def test_a_truncated_visit_continues_under_a_new_wording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its recorded prompts stay as they were sent; the next ones fit the budget with the new texts."""
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file, ask_user"})
    (tmp_path / "reyn.yaml").write_text("context: {max_prompt_tokens: 900}\n")
    (tmp_path / "long.txt").write_text("long words\n" * 200)
    project = Project(tmp_path)
    answers = [act(file("read", "long.txt")), act(question("Which?")), finish()]
    assert project.run("s", answers, {"text": "The quick brown fox. " * 300}).status == "waiting"
    before = [frame["messages"] for frame in project.events("frame_built")]
    assert all(frame["budget"]["sections"] for frame in project.events("frame_built"))
    reword(monkeypatch)
    monkeypatch.setattr(prompt, "OPENING", "Choose a candidate. " * 40 + "\n")  # takes the place of some of the input
    with project.open(answers) as rt:
        rt.answer("k", "1.2.1", "this one")
        assert rt.resume("k").ok
        frames = project.events("frame_built")
        assert [frame["messages"] for frame in frames[:2]] == before
        assert frames[2]["budget"]["tokens"] <= 900
        assert project.model.system_message(0).startswith("Choose a candidate.")
        assert rt.runs.replay("k").events == rt.runs.verify("k").events
