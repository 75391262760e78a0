from __future__ import annotations

from pathlib import Path

import pytest

from reyn.cli.app import run_app
from tests.cli.support import Said, write_answers
from tests.support import finish, go, write_skill


@pytest.fixture
def reyn(capsys: pytest.CaptureFixture[str]):
    """One command line; what it says, and its exit code."""

    def call(*words: str) -> Said:
        code = run_app(words)
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return call


@pytest.fixture
def here(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose model answers from `answers.jsonl`; with the skills `pair`, `asking`, which may ask and write,
    and `above`, which may run `asking`."""
    (project / "reyn.yaml").write_text("model: scripted:answers.jsonl\n")
    write_answers(project, go("second"), finish("end"))
    write_skill(project, "asking", {"work": ["end"]}, ops={"work": "file, ask_user"})
    write_skill(project, "above", {"call": ["end"]}, ops={"call": "run_skill"})
    monkeypatch.chdir(project)
    return project
