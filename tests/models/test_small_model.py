"""Runs on the small model itself, as a user starts them: live, killed, resumed, with what it has read kept."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reyn import SyncRuntime
from tests.models.small_model import real

DEMO = Path(__file__).parent.parent.parent / "examples" / "demo.py"
TEXT = "The old mill opens again on Monday."
SECONDS = 500


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[SyncRuntime]:
    (tmp_path / "reyn.yaml").write_text("model: local\n")
    with SyncRuntime.open(tmp_path) as runtime:
        yield runtime


def asked(runtime: SyncRuntime, kind: str) -> list[str]:
    """The calls of the run `mill`, each as often as it has an event of a kind."""
    if all(row.run_id != "mill" for row in runtime.runs()):
        return []
    return [event.data["call"] for event in runtime.events("mill") if event.kind == kind]


STARTED = """
import sys
from pathlib import Path
from reyn import SyncRuntime

def show(delta):
    if delta.call == "2.1":
        print(delta.text, end="", flush=True)

with SyncRuntime.open(".") as runtime:
    runtime.run("headline", sys.argv[1], run_id="mill", on_delta=show)
"""


@real
def test_a_run_that_is_killed_in_mid_answer_is_resumed_and_asks_for_nothing_twice(runtime: SyncRuntime, tmp_path: Path):
    words = [sys.executable, "-c", STARTED, TEXT]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        half = process.stdout.read(20)  # of the second answer
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert half.startswith(b"{")
    assert (asked(runtime, "llm_requested"), asked(runtime, "llm_responded")) == (["1.1", "2.1"], ["1.1"])

    result = runtime.resume("mill")
    assert (result.status, result.path) == ("finished", ("gist", "title"))
    assert asked(runtime, "llm_requested") == ["1.1", "2.1"]
    assert asked(runtime, "llm_responded") == ["1.1", "2.1"]
    answers = [event.data for event in runtime.events("mill") if event.kind == "llm_responded"]
    assert [answer["mode"] for answer in answers] == ["grammar", "grammar"]
    assert asked(runtime, "validation_error") == []
    assert runtime.verify("mill").events == runtime.replay("mill").events == len(list(runtime.events("mill")))

    # What a process has read, another need not read: only the little that is new.
    again = runtime.run("headline", "The ferry stops in November.")
    assert again.ok
    assert again.usage.cached_tokens > 0.8 * again.usage.input_tokens


@real
def test_the_demo_keeps_what_the_readme_promises():
    done = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    for promised in ("smollm2 is here", "gist (visit 1)", "kill -9", "resumed at title", "no differences"):
        assert promised in done.stdout
    assert done.stdout.count("  ../../.venv/bin/reyn ") == 3
