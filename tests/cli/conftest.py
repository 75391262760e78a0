from __future__ import annotations

from pathlib import Path

import pytest

from reyn.cli.app import run_app
from tests.cli.support import Output, write_answers
from tests.support import finish, go, write_skill


@pytest.fixture
def reyn(capsys: pytest.CaptureFixture[str]):
    """Run a command line in this process."""

    def call(*arguments: str) -> Output:
        code = run_app(arguments)
        captured = capsys.readouterr()
        return Output(code, captured.out, captured.err)

    return call


@pytest.fixture
def here(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose model answers from `answers.jsonl`, as the current folder.

    Its skills are `pair`, `asking`, which may ask and write files, and `above`, which may run `asking`.
    """
    (project / "reyn.yaml").write_text("model: scripted:answers.jsonl\n")
    write_answers(project, go("second"), finish("end"))
    write_skill(project, "asking", {"work": ["end"]}, ops={"work": "file, ask_user"})
    write_skill(project, "above", {"call": ["end"]}, ops={"call": "run_skill"})
    monkeypatch.chdir(project)
    return project
