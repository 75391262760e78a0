"""A project amid files that are none of its business, and the command line in this process."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

from reyn import SyncRuntime
from reyn.config.user import journal_key
from reyn.models.scripted import ScriptedModel
from tests.fuzz.harness import Case
from tests.fuzz.oracles import check_prompt

CANARIES = {
    "reads-outside": "CANARY-outside-5f81",
    "reads-hidden-file": "CANARY-hidden-77aa",
    "reads-hard-linked-secret": "CANARY-secret-0c3e",
}
"""A secret text for each place that must not be read, by the class of finding that it proves."""


class Terminal(io.StringIO):
    """Output that a command takes for a terminal."""

    def isatty(self) -> bool:
        return True


def command(root: Path, *words: str) -> tuple[int, str]:
    """Run a command line in this process, at a terminal. Returns its exit code and what it printed."""
    from reyn.cli.app import run_app

    printed = Terminal()
    before = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = printed
    try:
        return run_app(["--project", str(root), *words]), printed.getvalue()
    finally:
        sys.stdout, sys.stderr = before


def make_surroundings(around: Path) -> Path:
    """Create a project with links into files outside it; a home with secrets; a repository. Returns its root."""
    root, outside, home = around / "project", around / "outside", around / "home"
    for folder in (root / "reyn", root / ".git" / "hooks", outside, home / ".config" / "reyn"):
        folder.mkdir(parents=True)
    os.environ["HOME"] = str(home)
    os.environ["XDG_CONFIG_HOME"] = str(home / ".config")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        os.environ.pop(name, None)
    (outside / "secret.txt").write_text(CANARIES["reads-outside"])
    secrets = home / ".config" / "reyn" / "secrets.json"
    secrets.write_text(CANARIES["reads-hard-linked-secret"])
    secrets.chmod(0o600)
    journal_key().new_mark()  # the key exists, as for every user who has used Reyn before
    (root / "reyn.yaml").write_text("max_phase_visits: 25\n")
    (root / ".env").write_text(f"TOKEN={CANARIES['reads-hidden-file']}\n")
    (root / ".git" / "config").write_text("[core]\n\tbare = false\n")
    (root / "notes.txt").write_text("a note\n" * 20)
    (root / "reyn" / "draft.txt").write_text("a draft\n")
    (root / "out").symlink_to(outside)
    (root / "reyn" / "out").symlink_to(outside)
    (root / "reyn" / "leak.txt").symlink_to(outside / "secret.txt")
    (root / "reyn" / "up").symlink_to("..")
    (root / "state").symlink_to(root / ".reyn")
    (root / "linked.txt").hardlink_to(secrets)
    return root


class Overheard(ScriptedModel):
    """A scripted model that checks the prompts it receives."""

    def __init__(self, case: Case, answers: list[Any]) -> None:
        super().__init__(answers)
        self._case = case
        self.calls = 0

    async def complete(self, request: Any) -> Any:
        self.calls += 1
        self.turn_starts(request.answered)
        for message in request.messages:
            check_prompt(self._case, message.role, message.text)
        return await super().complete(request)

    def turn_starts(self, answered: int) -> None:
        """Called before an answer."""


def open_runtime(root: Path, model: Any = None, **settings: Any) -> SyncRuntime:
    return SyncRuntime.open(root, model=model, **settings)
