"""Ctrl-C, with real signals: the first interrupts the run, the second cancels it."""

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
UNTIL_INPUT = "await asyncio.to_thread(sys.stdin.readline)"
SECONDS = 60
"""Timeout for a process that is expected to end."""


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


def wait_for(stream, text: str) -> None:
    while text not in (line := stream.readline()):
        assert line, f"{text!r} not printed"


def test_ctrl_c_interrupts_the_run_which_can_be_resumed(here: Path, reyn):
    child = start(here)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=SECONDS)
    assert child.returncode == 130
    assert "interrupted; the run is saved. Press Ctrl-C again to cancel it.\nnext: reyn resume r\n" in err
    assert "Traceback" not in err
    assert "running (interrupted)" in reyn("runs").out
    assert reyn("resume", "r").code == 0


def test_with_json_an_interrupted_run_prints_its_status(here: Path):
    child = start(here, "--json")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=SECONDS)
    assert child.returncode == 130
    assert json.loads(out)["status"] == "running"


def test_a_second_ctrl_c_during_cleanup_cancels_the_run(here: Path, reyn):
    child = start(here, cleanup=UNTIL_INPUT, grace=SECONDS)
    child.send_signal(signal.SIGINT)
    wait_for(child.stderr, "unwinding")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate("go on\n", timeout=SECONDS)
    assert (child.returncode, "Traceback" in err) == (6, False)
    assert "cancelled: Ctrl-C twice" in out
    assert "next: reyn fork r" in out
    assert reyn("runs", "--json").json[0]["status"] == "cancelled"


def test_a_second_ctrl_c_after_cleanup_cancels_the_run(here: Path, reyn):
    child = start(here, "--json", grace=SECONDS)
    child.send_signal(signal.SIGINT)
    wait_for(child.stderr, "Press Ctrl-C again")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=SECONDS)
    assert child.returncode == 6
    assert json.loads(out)["status"] == "cancelled"


PRESSED = """
import atexit, os, signal, sys
from reyn.cli import app, interrupts, main

def press(kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
    kill(pid, number)

def press_twice(*args, **flags):
    try:
        press()
    finally:
        press()

class PressedAtItsEnd:
    __del__ = lambda self, press=press: press()

def after(function, action):
    return lambda *args: (function(*args), action())[0]

MOMENT
main()
"""
MOMENTS = {
    "before the command": ("interrupts.ExitGuard.install = after(interrupts.ExitGuard.install, press_twice)", 130),
    "in the command and its cleanup": ("app._call = press_twice", 130),
    "in a finalizer of the command": ("app._call = lambda *args, **flags: PressedAtItsEnd() and 7", 130),
    "after the command": ("app._call = lambda *args, **flags: 7; app.run_app = after(app.run_app, press_twice)", 130),
    "on the way out": ("interrupts.ExitGuard.run = after(interrupts.ExitGuard.run, press)", 0),
    "in an exit handler": (
        "interrupts.ExitGuard.install = after(interrupts.ExitGuard.install, lambda: atexit.register(press))",
        0,
    ),
    "in the last exit handler": ("atexit.register(press)", 0),
    "while the interpreter is torn down": ("sys.last = PressedAtItsEnd()", 0),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_at_any_moment_prints_no_traceback(moment: str):
    code, expected = MOMENTS[moment]
    arguments = [sys.executable, "-c", PRESSED.replace("MOMENT", code), "--version"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr.strip()) == (expected, "")


def test_repeated_ctrl_c_ends_a_process_whose_cleanup_hangs(here: Path):
    child = start(here, cleanup=HANGS)
    deadline = time.monotonic() + SECONDS
    while child.poll() is None and time.monotonic() < deadline:
        child.send_signal(signal.SIGINT)
        time.sleep(0.01)  # signals that fall together count as one
    _, err = child.communicate(timeout=SECONDS)
    assert (child.returncode in (6, 130), "Traceback" in err) == (True, False)


def test_the_live_line_counts_seconds_during_a_model_call(here: Path):
    terminal = Terminal(here, "run", "pair", IN, "--run-id", "r", program=("-c", program(grace=SECONDS)))

    def seconds() -> str:
        terminal.wait_for("first · visit 1 · turn 1 · calling scripted:answers.jsonl · ")
        return terminal.wait_for(" s")

    first = seconds()
    while seconds() == first:
        pass
    terminal.child.send_signal(signal.SIGINT)
    terminal.wait_for("Press Ctrl-C again")
    terminal.child.send_signal(signal.SIGINT)
    assert terminal.end().code == 6


def test_ctrl_c_at_a_question_interrupts_the_run(here: Path, reyn):
    write_answers(here, act(question("Sure?")), finish())
    terminal = Terminal(here, "run", "asking", IN, "--run-id", "r")
    terminal.wait_for("  > ")
    terminal.child.send_signal(signal.SIGINT)
    output = terminal.end()
    assert output.code == 130
    assert "next: reyn resume r" in output.out
    assert "reply from another process" not in output.out
    assert reyn("runs", "--json").json[0]["next"] == "reyn answer r 1.1.1 'your reply'"


def test_ctrl_c_before_the_first_answer_of_a_fork_names_the_fork(here: Path, reyn):
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
    assert "next: reyn resume other" in err
