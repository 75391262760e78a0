"""A project that `reyn serve` serves, for tests in a real browser. The fixtures are in `conftest`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forked import run_command

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IN_BROWSER = [
    pytest.mark.sockets,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; `.ci/run` installs it"),
]
"""The marks of a module whose tests use a browser."""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]

NAMED = ("live", "fork", "edited")
"""Models of the project's configuration: a request can name no others."""


class Site:
    """A project that `reyn serve` serves in a process of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.process: subprocess.Popen[str] | None = None
        self.port = 0
        self.login = ""
        self._environment = dict(os.environ) | {"XDG_CONFIG_HOME": str(root / "config")}

    def reyn(self, *arguments: str, check: bool = True) -> str:
        """Run a command in the project, as the user who serves it; return what it prints."""
        done = run_command(("--project", str(self.root), *arguments), self.root, self._environment)
        assert not check or not done.returncode, done.stderr
        return done.stdout.strip()

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "reyn", "--project", str(self.root), *arguments]

    def start(self) -> None:
        command = self._command("serve", "--port", str(self.port), "--json")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self._environment)
        assert self.process.stdout is not None
        started = json.loads(self.process.stdout.readline())
        self.login, self.port = started["login_url"], int(started["url"].rpartition(":")[2])

    def stop(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def script(self, name: str, *answers: Any) -> str:
        """Write a script of answers; return its model, by the name that the project gives it if there is one."""
        lines = [json.dumps(answer) + "\n" for answer in answers]
        (self.root / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        return name if name in NAMED else f"scripted:{name}.jsonl"

    def run(self, skill: str, run: str, *answers: Any, text: str = "in") -> None:
        """Run a skill until it ends or stops, in another process than the server."""
        model = self.script(run, *answers)
        self.reyn(
            "run", skill, json.dumps({"text": text}), "--run-id", run, "--model", model, "--no-input", check=False
        )

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def picture(self, page: Any, name: str) -> None:
        """Take a picture for the docs, if `PICTURES` names the folder for it."""
        if folder := os.environ.get("PICTURES"):
            page.set_viewport_size({"width": 1000, "height": 800})
            page.screenshot(path=Path(folder, f"{name}.png"), animations="disabled")
