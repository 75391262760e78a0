"""Ctrl-C, with real signals: once, a run stops and can be resumed; twice, it is cancelled for good."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cli.support import IN, Terminal, write_answers
from tests.support import act, finish, question

SLOW = """
import asyncio, sys
import reyn.models.catalog as catalog
from reyn.testing import ScriptedModel

class Slow(ScriptedModel):
    async def complete(self, request):
        try:
            await asyncio.sleep(60)
        finally:
            print("unwinding", file=sys.stderr, flush=True)
            await asyncio.sleep(PAUSE)

catalog.open_model = lambda *args, **names: Slow([], "scripted:answers.jsonl")
from reyn.cli.app import run_app
sys.exit(run_app())
"""


def start(folder: Path, *more: str, pause: float = 0) -> subprocess.Popen:
    program = SLOW.replace("PAUSE", str(pause))
    child = subprocess.Popen(
        [sys.executable, "-c", program, "run", "pair", IN, "--run-id", "r", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=dict(os.environ),
    )
    beginning = child.stderr if "--json" in more else child.stdout
    assert beginning.readline().startswith("run r · pair")
    assert beginning.readline() == "  first (visit 1)\n"
    return child


def wait_for(stream, words: str) -> None:
    while words not in (line := stream.readline()):
        assert line, f"{words!r} never came"


def test_once_interrupts_and_the_run_can_be_resumed(here: Path, reyn):
    child = start(here)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "interrupted; nothing is lost. Next: reyn resume r" in err
    assert "Traceback" not in err
    assert "running (interrupted)" in reyn("runs").out
    assert reyn("resume", "r").code == 0


def test_with_json_an_interrupted_run_tells_where_it_stands(here: Path):
    child = start(here, "--json")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 130
    assert json.loads(out)["status"] == "running"


def test_twice_while_it_unwinds_cancels_for_good(here: Path, reyn):
    child = start(here, pause=0.5)
    child.send_signal(signal.SIGINT)
    wait_for(child.stderr, "unwinding")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, "Traceback" in err) == (6, False)
    assert "cancelled: Ctrl-C twice" in out
    assert "next: reyn fork r" in out
    assert reyn("runs", "--json").json[0]["status"] == "cancelled"


def test_twice_a_moment_after_cancels_for_good(here: Path, reyn):
    child = start(here, "--json")
    child.send_signal(signal.SIGINT)
    wait_for(child.stderr, "Ctrl-C again cancels")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 6
    assert json.loads(out)["status"] == "cancelled"


def test_a_process_that_does_not_unwind_can_be_left(here: Path):
    child = start(here, pause=60)
    deadline = time.monotonic() + 30
    while child.poll() is None and time.monotonic() < deadline:
        child.send_signal(signal.SIGINT)
        time.sleep(0.2)  # signals that fall together count as one
    _, err = child.communicate(timeout=30)
    assert (child.returncode in (6, 130), "Traceback" in err) == (True, False)


def test_at_a_terminal_the_time_goes_on_while_a_model_thinks(here: Path):
    program = ("-c", SLOW.replace("PAUSE", "0"))
    terminal = Terminal(here, "run", "pair", IN, "--run-id", "r", program=program)
    terminal.wait_for("first · visit 1 · turn 1 · asking scripted:answers.jsonl · 0 s")
    terminal.wait_for("asking scripted:answers.jsonl · 1 s")
    terminal.child.send_signal(signal.SIGINT)
    terminal.wait_for("Ctrl-C again cancels")
    terminal.child.send_signal(signal.SIGINT)
    assert terminal.end().code == 6


def test_at_a_question_once_interrupts(here: Path, reyn):
    write_answers(here, act(question("Sure?")), finish())
    terminal = Terminal(here, "run", "asking", IN, "--run-id", "r")
    terminal.wait_for("  > ")
    terminal.child.send_signal(signal.SIGINT)
    said = terminal.end()
    assert said.code == 130
    assert "Next: reyn resume r" in said.out
    assert "answered elsewhere" not in said.out
    assert reyn("runs", "--json").json[0]["next"] == "reyn answer r 1.1.1 VALUE"


def test_a_fork_can_be_interrupted_before_its_first_answer(here: Path, reyn):
    reyn("run", "pair", IN, "--run-id", "r")
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW.replace("PAUSE", "0"), "fork", "r", "--run-id", "other"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=here,
    )
    deadline = time.monotonic() + 30
    while not any(row["run_id"] == "other" for row in reyn("runs", "--json").json):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "Next: reyn resume other" in err
