"""The modules that a reply passes, as the page on one decision lists them, are compared with a trace of the command."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from reyn.cli.app import run_app
from reyn.cli.commands import execution
from reyn.runtime import OSRuntime
from tests.cli.support import IN, write_answers
from tests.support import act, finish, question, write_skill

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "one-decision.md"
MAX_MODULES = 18


def documented() -> list[str]:
    section = PAGE.read_text(encoding="utf-8").partition("## A reply to a question")[2]
    return re.findall(r"^\| \d+ \| `([\w.]+)` \|", section, re.MULTILINE)


def test_the_page_lists_the_modules_that_a_reply_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "reyn.yaml").write_text("model: scripted:answers.jsonl\n")
    write_skill(tmp_path, "asking", {"work": ["end"]}, ops={"work": "ask_user"})
    write_answers(tmp_path, act(question("Which tone?")), finish())
    monkeypatch.chdir(tmp_path)
    assert run_app(("run", "asking", IN, "--run-id", "r")) == 4
    modules: dict[str, None] = {}

    def note(frame: Any, event: str, _: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("reyn."):
            modules[name] = None

    def traced(*args: Any) -> Any:
        runtime: OSRuntime = args[-1]
        runtime.runs.all()  # what is opened and checked on first use is open
        runtime.services.check_owner()
        assert not runtime.services.journal.is_claimed("r")
        assert runtime.services.scrubber.scrub_value("x") == "x"
        sys.setprofile(note)
        try:
            return post(*args)
        finally:
            sys.setprofile(None)

    post = execution._post
    monkeypatch.setattr(execution, "_post", traced)
    assert run_app(("answer", "r", "formal", "--no-resume")) == 0
    assert list(modules) == documented()
    assert len(modules) <= MAX_MODULES
