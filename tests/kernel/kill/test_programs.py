"""Programs and python steps under kills: what has no lasting effect is repeated, anything else asks the operator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.sandbox.backends import BACKENDS
from reyn.sandbox.process import Backend
from reyn.testing.crash import KILLED
from tests.attacks.test_sandbox import survivors, usable
from tests.kernel.kill.scenario import Scenario, kill_points
from tests.kernel.kill.scenarios import RUN, executing, writing_program
from tests.kernel.kill.test_unsafe import resume
from tests.support import act, finish, write_skill

needs_processes = pytest.mark.skipif(all(backend.problem for backend in BACKENDS), reason="no process sandbox")


@needs_processes
def test_steps_and_reading_programs_are_repeated_after_a_kill(arena: Path):
    assert executing(arena / "project").kill_everywhere() == {}


@needs_processes
def test_a_writing_program_is_never_repeated_without_asking(arena: Path):
    scenario = writing_program(arena / "project")
    points = scenario.rehearse()
    asked = 0
    for number in kill_points(points, 3):
        scenario.reset()
        assert scenario.execute_in_child(kill_at=number) == KILLED
        result = resume(scenario)
        if result.status == "waiting":
            asked += 1
            assert (result.question.reason, "`sandboxed_exec`" in result.question.message) == ("unsafe", True)
            result = resume(scenario, "done" if lines(scenario) else "again")
        assert result.ok
        assert lines(scenario) == ["line"], f"{number} {points[number - 1]}"
    assert asked


def lines(scenario: Scenario) -> list[str]:
    path = scenario.root / ".reyn/workspace" / RUN / "lines.txt"
    return path.read_text().split() if path.exists() else []


def start(root: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start a run in a process of its own."""
    command = [sys.executable, "-m", "reyn", "run", "s", '{"text": "in"}', "--run-id", "k", "--no-input", *options]
    return subprocess.Popen(
        [*command, "--model", "scripted:answers.jsonl"],
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for(mark: str, reyn: subprocess.Popen[bytes]) -> None:
    """Wait until the program of the run is executing."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert reyn.poll() is None, "the run ended before its program started"
        for process in Path("/proc").iterdir():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0") if process.name.isdigit() else []
            except OSError:
                continue
            if words[:1] in ([b"sh"], [b"/bin/sh"]) and mark.encode() in words and b"exec" not in words[2]:
                return
    raise AssertionError("the program did not start")


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_program_ends_when_reyn_is_killed_and_is_repeated_by_a_resume(tmp_path: Path, backend: Backend):
    usable(backend)
    mark = f"killed-{os.getpid()}-{time.monotonic_ns()}"
    (tmp_path / "flag").write_text("")
    program = {
        "kind": "sandboxed_exec",
        "argv": ["sh", "-c", "while [ -e flag ]; do :; done; echo over", mark],
        "read_paths": ["."],
    }
    execute_and_kill(tmp_path, program, mark, backend.name)
    (tmp_path / "flag").unlink()
    with SyncRuntime.open(tmp_path, model="scripted:answers.jsonl", trust=True) as runtime:
        assert runtime.resume("k").ok
        kinds = [event.kind for event in runtime.runs.events("k")]
        assert kinds.count("sandboxed_exec_started") == kinds.count("sandboxed_exec_completed") == 1


def test_a_shell_command_ends_when_reyn_is_killed_and_a_resume_asks(tmp_path: Path):
    mark = f"killed-{os.getpid()}-{time.monotonic_ns()}"
    program = {"kind": "shell", "cmd": f"sh -c 'while :; do :; done' {mark}"}
    execute_and_kill(tmp_path, program, mark, "auto", "--allow-shell")
    with SyncRuntime.open(tmp_path, model="scripted:answers.jsonl", trust=True, allow_shell=True) as runtime:
        result = runtime.resume("k")
        assert (result.status, result.question.reason) == ("waiting", "unsafe")


def execute_and_kill(root: Path, program: dict, mark: str, backend: str, *options: str) -> None:
    write_skill(
        root,
        "s",
        {"a": ["end"]},
        ops={"a": "sandboxed_exec, shell"},
        skill_keys="permissions: {exec: [sh], shell: true}\n",
    )
    answers = "\n".join(json.dumps(answer) for answer in (act(program), finish()))
    (root / "answers.jsonl").write_text(answers)
    (root / "reyn.yaml").write_text(
        f"permissions: {{exec: [{{allow: sh}}], shell: allow}}\nsandbox: {{backend: {backend}}}\n"
    )
    trusted = subprocess.run([sys.executable, "-m", "reyn", "trust", "--yes"], cwd=root, capture_output=True)
    assert trusted.returncode == 0, trusted.stderr
    reyn = start(root, *options)
    try:
        wait_for(mark, reyn)
    finally:
        reyn.send_signal(signal.SIGKILL)
        reyn.wait()
    assert survivors(mark) == []
