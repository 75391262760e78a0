"""Ctrl-C, with real signals: once, a run stops and can be resumed; twice, it is cancelled for good."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
            CLEANUP

catalog.open_model = lambda *args, **names: Slow([], "scripted:answers.jsonl")
from reyn.cli import interrupts, main
interrupts._GRACE_SECONDS = GRACE
main()
"""
HANGS = "await asyncio.sleep(600)"
UNTIL_TOLD = "await asyncio.to_thread(sys.stdin.readline)"
SECONDS = 60
"""How long a process may take that is expected to end; only a process that hangs takes as long."""


def program(cleanup: str = "pass", grace: int = 0) -> str:
    """A program whose model never answers. `grace` is how many seconds a second Ctrl-C counts."""
    return SLOW.replace("CLEANUP", cleanup).replace("GRACE", str(grace))


def start(folder: Path, *more: str, cleanup: str = "pass", grace: int = 0) -> subprocess.Popen:
    child = subprocess.Popen(
        [sys.executable, "-c", program(cleanup, grace), "run", "pair", IN, "--run-id", "r", *more],
        stdin=subprocess.PIPE,
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
    _, err = child.communicate(timeout=SECONDS)
    assert child.returncode == 130
    assert "interrupted; nothing is lost. Next: reyn resume r" in err
    assert "Traceback" not in err
    assert "running (interrupted)" in reyn("runs").out
    assert reyn("resume", "r").code == 0


def test_with_json_an_interrupted_run_tells_where_it_stands(here: Path):
    child = start(here, "--json")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=SECONDS)
    assert child.returncode == 130
    assert json.loads(out)["status"] == "running"


def test_twice_while_it_unwinds_cancels_for_good(here: Path, reyn):
    child = start(here, cleanup=UNTIL_TOLD, grace=SECONDS)
    child.send_signal(signal.SIGINT)
    wait_for(child.stderr, "unwinding")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate("go on\n", timeout=SECONDS)
    assert (child.returncode, "Traceback" in err) == (6, False)
    assert "cancelled: Ctrl-C twice" in out
    assert "next: reyn fork r" in out
    assert reyn("runs", "--json").json[0]["status"] == "cancelled"


def test_twice_a_moment_after_cancels_for_good(here: Path, reyn):
    child = start(here, "--json", grace=SECONDS)
    child.send_signal(signal.SIGINT)
    wait_for(child.stderr, "Ctrl-C again cancels")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=SECONDS)
    assert child.returncode == 6
    assert json.loads(out)["status"] == "cancelled"


PRESSED = """
import atexit, os, signal, sys
from reyn.cli import app, interrupts, main

def press(kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
    kill(pid, number)

def press_twice(*_):
    try:
        press()
    finally:
        press()

class PressedAtItsEnd:
    __del__ = lambda self, press=press: press()

def after(function, do):
    return lambda *args: (function(*args), do())[0]

MOMENT
main()
"""
MOMENTS = {
    "before the command": ("interrupts.ExitGuard.install = after(interrupts.ExitGuard.install, press_twice)", 130),
    "in the command and its cleanup": ("app._call = press_twice", 130),
    "in a finalizer of the command": ("app._call = lambda words: PressedAtItsEnd() and 7", 130),
    "after the command": ("app._call = lambda words: 7; app.run_app = after(app.run_app, press_twice)", 130),
    "on the way out": ("interrupts.ExitGuard.run = after(interrupts.ExitGuard.run, press)", 0),
    "in an exit handler": (
        "interrupts.ExitGuard.install = after(interrupts.ExitGuard.install, lambda: atexit.register(press))",
        0,
    ),
    "in the last exit handler": ("atexit.register(press)", 0),
    "while the interpreter is torn down": ("sys.last = PressedAtItsEnd()", 0),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_no_moment_is_wrong_for_ctrl_c(moment: str):
    code, expected = MOMENTS[moment]
    words = [sys.executable, "-c", PRESSED.replace("MOMENT", code), "--version"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr.strip()) == (expected, "")


def test_a_process_that_does_not_unwind_can_be_left(here: Path):
    child = start(here, cleanup=HANGS)
    deadline = time.monotonic() + SECONDS
    while child.poll() is None and time.monotonic() < deadline:
        child.send_signal(signal.SIGINT)
        time.sleep(0.01)  # signals that fall together count as one
    _, err = child.communicate(timeout=SECONDS)
    assert (child.returncode in (6, 130), "Traceback" in err) == (True, False)


def test_at_a_terminal_the_time_goes_on_while_a_model_thinks(here: Path):
    terminal = Terminal(here, "run", "pair", IN, "--run-id", "r", program=("-c", program(grace=SECONDS)))

    def seconds() -> str:
        terminal.wait_for("first · visit 1 · turn 1 · asking scripted:answers.jsonl · ")
        return terminal.wait_for(" s")

    first = seconds()
    while seconds() == first:
        pass
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
        [sys.executable, "-c", program(), "fork", "r", "--run-id", "other"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=here,
    )
    wait_for(child.stdout, "run other")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=SECONDS)
    assert child.returncode == 130
    assert "Next: reyn resume other" in err
