"""`examples/assistant`: a conversation with two tools and a memory, killed in the middle of a turn and resumed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reyn import SyncRuntime
from tests.models.small_model import real

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "assistant"
FIRST = "I cook for four. What do noodles cost?"
SECOND = "Put enough of them on my list."

KILLED = """
import sys, time
sys.argv = ["assistant.py", *sys.argv[1:]]
import assistant

def hang(*_, **__):
    print("in the tool", flush=True)
    time.sleep(600)

for tool in (assistant.look_up, assistant.add_to_list):
    tool.function = hang
sys.exit(assistant.main())
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "assistant", ignore=shutil.ignore_patterns(".reyn", "__pycache__"))
    return tmp_path / "assistant"


def command(project: Path, *arguments: str, code: str | None = None) -> list[str]:
    program = ["assistant.py"] if code is None else ["-c", code]
    return [sys.executable, *program, "--project", str(project), *arguments]


def say(project: Path, *arguments: str) -> str:
    done = subprocess.run(command(project, *arguments), cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kill_in_a_tool(project: Path, *arguments: str) -> None:
    """Start a turn, and kill the process while it executes a tool."""
    program = command(project, *arguments, code=KILLED)
    environ = os.environ | {"PYTHONPATH": f"{project}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    with subprocess.Popen(program, cwd=project, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any(line == "in the tool\n" for line in lines)
        os.kill(process.pid, signal.SIGKILL)


def conversation(project: Path) -> list[tuple[str, str]]:
    with SyncRuntime.open(project, trust=True) as rt:
        [run] = [row.run_id for row in rt.runs.all()]
        assert rt.runs.replay(run).events == rt.runs.verify(run).events
        return [(message.role, message.text) for message in rt.runs.transcript(run)]


def test_two_turns_use_the_tools_and_the_memory(project: Path):
    assert say(project, FIRST).endswith("A packet of noodles costs 3.10.\n")
    assert say(project, SECOND).endswith("That is enough for four.\n")
    assert json.loads((project / "shopping.json").read_text()) == {"noodles": 2}
    with SyncRuntime.open(project, trust=True) as rt:
        [run] = [row.run_id for row in rt.runs.all()]
        assert [one.text for one in rt.runs.memory(run)] == ["The user cooks for four."]
    roles = [role for role, _ in conversation(project)]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant", "tool", "assistant"]


def test_a_turn_that_is_killed_in_a_tool_is_resumed_with_its_reply(project: Path):
    say(project, FIRST)
    kill_in_a_tool(project, SECOND)
    assert say(project, "--resume").endswith("That is enough for four.\n")
    assert json.loads((project / "shopping.json").read_text()) == {"noodles": 2}
    messages = conversation(project)
    assert [text for role, text in messages if role == "user"] == [FIRST, SECOND]
    assert [role for role, _ in messages][-4:] == ["user", "assistant", "tool", "assistant"]


def test_a_new_message_after_a_kill_keeps_what_the_turn_has_done(project: Path):
    kill_in_a_tool(project, FIRST)
    (project / "answers.jsonl").write_text('""\n"Noodles cost 3.10."\n')
    assert say(project, "Well?").endswith("Noodles cost 3.10.\n")
    messages = conversation(project)
    assert [text for role, text in messages if role == "user"] == [FIRST, "Well?"]
    assert [role for role, _ in messages] == ["user", "assistant", "tool", "tool", "user", "assistant"]


@real
@pytest.mark.skip(reason="the 135M model requests no op for this message since acts are weighed anew")
def test_the_embedded_model_is_killed_in_a_tool_and_resumed(project: Path):
    arguments = ("--model", "local", "--turns", "1")
    message = "What is the price of noodles?"
    kill_in_a_tool(project, *arguments, message)
    assert say(project, *arguments, "--resume").strip()
    messages = conversation(project)
    assert messages[0] == ("user", message)
    assert messages[-1][0] == "assistant"
