"""A submitted run that nobody serves is shown by every command about runs and workers."""

import json
from pathlib import Path

import pytest

from reyn.cli.app import run_app
from tests.support import finish, write_skill

REASON = "no worker serves the queue `slow`"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_skill(tmp_path, "writing", {"draft": ["end"]})
    (tmp_path / "answers.jsonl").write_text(json.dumps(finish()))
    (tmp_path / "reyn.yaml").write_text("model: scripted:answers.jsonl\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_shows_that_nobody_serves_a_run(project: Path, capsys: pytest.CaptureFixture):
    def output(*words: str) -> str:
        assert run_app(words) == 0
        found = capsys.readouterr()
        return found.out + found.err

    assert REASON in output("submit", "writing", '{"text": "in"}', "--run-id", "a", "--queue", "slow", "--label", "gpu")
    for words in (("runs",), ("show", "a"), ("queue",), ("workers",)):
        assert REASON in output(*words), words
    [row] = json.loads(output("runs", "--json"))
    assert (row["display_status"], row["reason"]) == ("queued", REASON)
    assert json.loads(output("show", "a", "--json"))["reason"] == REASON
    output("worker", "--queue", "slow", "--once", "--label", "gpu")
    for words in (("runs",), ("show", "a"), ("queue",), ("workers",)):
        assert "no worker serves" not in output(*words), words
