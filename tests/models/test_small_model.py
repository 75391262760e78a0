"""Runs on the real local model: live, killed, resumed, with a warm prompt cache."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reyn import SyncRuntime
from tests.models.small_model import WEIGHTS, real

DEMO = Path(__file__).parent.parent.parent / "examples" / "demo.py"
TEXT = "The old mill opens again on Monday."
SECONDS = 500


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[SyncRuntime]:
    (tmp_path / "reyn.yaml").write_text("model: local\n")
    with SyncRuntime.open(tmp_path) as runtime:
        yield runtime


def calls_of(runtime: SyncRuntime, kind: str) -> list[str]:
    """Return the call of each event of a kind in the run `mill`."""
    if all(row.run_id != "mill" for row in runtime.runs.all()):
        return []
    return [event.data["call"] for event in runtime.runs.events("mill") if event.kind == kind]


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
def test_a_run_killed_during_an_answer_resumes_without_repeating_calls(runtime: SyncRuntime, tmp_path: Path):
    command = [sys.executable, "-c", STARTED, TEXT]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        half = process.stdout.read(20)  # of the second answer
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert half.startswith(b"{")
    assert (calls_of(runtime, "llm_requested"), calls_of(runtime, "llm_responded")) == (["1.1", "2.1"], ["1.1"])

    result = runtime.resume("mill")
    assert (result.status, result.path) == ("finished", ("gist", "title"))
    assert calls_of(runtime, "llm_requested") == ["1.1", "2.1"]
    assert calls_of(runtime, "llm_responded") == ["1.1", "2.1"]
    answers = [event.data for event in runtime.runs.events("mill") if event.kind == "llm_responded"]
    assert [answer["mode"] for answer in answers] == ["grammar", "grammar"]
    assert calls_of(runtime, "validation_error") == []
    assert (
        runtime.runs.verify("mill").events
        == runtime.runs.replay("mill").events
        == len(list(runtime.runs.events("mill")))
    )

    # The prompt cache works across processes: only new text is read, which is less than half of these short prompts.
    again = runtime.run("headline", "The ferry stops in November.")
    assert again.ok
    assert again.usage.cached_tokens > 0.5 * again.usage.input_tokens


@real
def test_the_demo_prints_what_the_readme_promises():
    process_result = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, timeout=SECONDS)
    assert process_result.returncode == 0, process_result.stderr
    for expected in ("smollm2: OK", "gist (visit 1)", "kill -9", "resumed at title", "no differences"):
        assert expected in process_result.stdout
    assert process_result.stdout.count("  ../../.venv/bin/reyn ") == 4
    served = re.search(r"reyn serve .*/runs/(\S+)", process_result.stdout)
    assert served is not None
    with SyncRuntime.open(DEMO.parent / "headline", trust=True) as rt:  # what the page of the run lists
        assert "resumed" in {one.type for one in rt.runs.inspect(served[1]).lines("decisions", 0, 100).lines}


@real
def test_the_server_of_the_local_model_refuses_requests_without_its_key():
    from reyn.models.local_engine import Engine

    engine = Engine(WEIGHTS, 1, 512)
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "filename": "x"})
    for path in ("/v1/chat/completions", "/slots/0?action=save"):
        address = engine._server.listening_address.removeprefix("http://")
        assert address.startswith("127.0.0.1:")
        with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
            headers = {"Content-Type": "application/json", "Authorization": "Bearer guess"}
            connection.request("POST", path, body, headers)
            assert connection.getresponse().status == http.client.UNAUTHORIZED
