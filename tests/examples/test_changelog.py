"""The example `changelog`: a real MCP server, a fetched page, an approved change; killed and resumed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import run_command
from tests.models.fake_server import FakeServer, silence, whole

pytestmark = pytest.mark.sockets
EXAMPLE = Path(__file__).parents[2] / "examples/changelog"
PAGE = b"<h1>Keep a changelog</h1><p>Changelogs are for humans.</p>"
BEFORE = "# Changelog\n\n## Unreleased\n"
AFTER = BEFORE + "- Added: tea\n- Fixed: the kettle\n"


class Repository:
    """A Git repository with the example in it, trusted, and a page on a loopback server instead of the public one."""

    def __init__(self, root: Path, url: str) -> None:
        self.root = root
        shutil.copytree(EXAMPLE, root, dirs_exist_ok=True)
        (root / "CHANGELOG.md").write_text(BEFORE)
        answers = (root / "answers.jsonl").read_text()
        (root / "answers.jsonl").write_text(answers.replace("https://keepachangelog.com/en/1.1.0/", url))
        host = url.removeprefix("http://").partition("/")[0]
        (root / "reyn.local.yaml").write_text(f"permissions: {{web: [{{allow: 'private:{host}'}}]}}\n")
        for arguments in (
            ("init", "-q"),
            ("add", "CHANGELOG.md"),
            ("-c", "user.name=test", "-c", "user.email=test@example.org", "commit", "-qm", "Add tea"),
        ):
            subprocess.run(("git", *arguments), cwd=root, check=True, capture_output=True)
        assert self.reyn("trust", "--yes").returncode == 0

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "reyn", *arguments]

    @property
    def environment(self) -> dict[str, str]:
        scripts = str(Path(sys.executable).parent)
        return {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}

    def reyn(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command(arguments, self.root, self.environment)

    def asked(self) -> str:
        """Return the id of the open question."""
        return str(json.loads(self.reyn("answer", "k", "--show", "--json").stdout)["question"]["id"])

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        return subprocess.Popen(
            self.command(*arguments), cwd=self.root, env=self.environment, stdin=quiet, stdout=quiet, stderr=quiet
        )


@pytest.fixture
def server():
    with FakeServer(whole("text/html", PAGE)) as running:
        yield running


def test_the_changelog_is_written_after_the_approval(tmp_path: Path, server: FakeServer):
    repository = Repository(tmp_path, server.url)
    first = repository.reyn("run", "changelog", server.url, "--run-id", "k", "--no-input")
    assert first.returncode == 4, first.stderr
    assert (tmp_path / "CHANGELOG.md").read_text() == BEFORE
    shown = repository.reyn("runs", "--json").stdout
    assert "+- Added: tea" in shown or "Added: tea" in repository.reyn("show", "k").stdout
    done = repository.reyn("answer", "k", repository.asked(), '{"decision": "approve"}')
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "CHANGELOG.md").read_text() == AFTER
    results = {
        event["kind"]: event
        for line in repository.reyn("events", "k", "--json").stdout.splitlines()
        for event in [json.loads(line)]
    }
    assert {"mcp:git/git_log_completed", "web_fetch_completed", "file_completed"} <= results.keys()
    assert len(server.requests) == 1
    assert repository.reyn("replay", "k").returncode == 0
    assert repository.reyn("verify", "k").returncode == 0
    assert repository.reyn("undo", "k").returncode == 0
    assert (tmp_path / "CHANGELOG.md").read_text() == BEFORE


def test_a_run_that_was_killed_while_it_fetched_the_page_continues(tmp_path: Path):
    with FakeServer(silence, whole("text/html", PAGE)) as server:
        repository = Repository(tmp_path, server.url)
        process = repository.start("run", "changelog", server.url, "--run-id", "k", "--no-input")
        try:
            server.wait_for(lambda: len(server.requests) == 1)
        finally:
            process.kill()
            process.wait()
        resumed = repository.reyn("resume", "k", "--no-input")
        assert resumed.returncode == 4, resumed.stderr
        assert repository.reyn("answer", "k", repository.asked(), '{"decision": "approve"}').returncode == 0
    assert (tmp_path / "CHANGELOG.md").read_text() == AFTER
    kinds = [json.loads(line)["kind"] for line in repository.reyn("events", "k", "--json").stdout.splitlines()]
    assert kinds.count("mcp:git/git_log_completed") == 1
    assert kinds.count("web_fetch_completed") == 1
    assert repository.reyn("replay", "k").returncode == 0
