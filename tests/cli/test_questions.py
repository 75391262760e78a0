"""Questions that a run puts to people: at a terminal, without one, from another process."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reyn.cli import people
from reyn.journal.kinds import Wait
from reyn.kernel.ports import LATER
from reyn.runs.questions import parse_answer
from tests.cli.support import IN, Terminal, write_answers
from tests.support import act, finish, question

TONE = question("Which tone?", suggestions=["formal", "plain"])
CHILD = {"kind": "run_skill", "skill": "asking", "input": {"text": "x"}}


@pytest.fixture
def asks(here: Path) -> Path:
    """A run of `asking` asks for a tone, then finishes."""
    write_answers(here, act(TONE), finish("written"))
    return here


@pytest.fixture
def asks_below(here: Path) -> Path:
    """A run of `above` has a sub-run that asks."""
    write_answers(here, act(CHILD), act(TONE), finish("below"), finish("above"))
    return here


# -- without a terminal -------------------------------------------------------------------------------------


def test_where_nobody_can_be_asked_the_run_waits_and_says_how_to_answer(asks: Path, reyn):
    said = reyn("run", "asking", IN, "--run-id", "r")
    assert said.code == 4
    assert "    asks: Which tone?\nwaiting: Which tone?\nsuggested: formal, plain\n" in said.out
    assert said.out.endswith("next: reyn answer r 1.1.1 VALUE\n")
    listed = reyn("runs").out
    assert "asks: Which tone?" in listed
    assert "next: reyn answer r 1.1.1 VALUE" in listed
    assert reyn("runs", "--json").json[0]["question"]["wait"]["suggestions"] == ["formal", "plain"]


def test_an_answer_lets_the_run_go_on_here(asks: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r")
    said = reyn("answer", "r", "1.1.1", "plain")
    assert said.code == 0
    assert said.out.startswith("run r · resumed at work\n    answered: plain\n")
    assert "finished" in said.out
    shown = reyn("show", "r").out
    assert "asks: Which tone?" in shown
    assert "answered: plain" in shown


def test_an_answer_can_be_left_for_later(asks: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r")
    said = reyn("answer", "r", "1.1.1", "plain", "--no-resume")
    assert (said.code, said.out) == (0, "answered 1.1.1 of r\nnext: reyn resume r\n")
    listed = reyn("runs").out
    assert "asks: Which tone? (answered)" in listed
    assert "next: reyn resume r" in listed
    twice = reyn("answer", "r", "1.1.1", "formal")
    assert (twice.code, "answered already" in twice.err) == (2, True)
    assert reyn("resume", "r", "--json").json["status"] == "finished"


def test_with_json_an_answer_tells_what_became_of_it(asks: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r")
    left = reyn("answer", "r", "1.1.1", "plain", "--no-resume", "--json").json
    assert left == {"run_id": "r", "wait": "1.1.1", "goes_on": "later"}
    reyn("run", "asking", IN, "--run-id", "s")
    assert reyn("answer", "s", "1.1.1", "plain", "--json").json["status"] == "finished"


@pytest.mark.parametrize(
    ("wait", "value", "code"), [("9.9.9", "plain", "RYN414"), ("1.1.1", "", "RYN415"), ("", "x", "RYN414")]
)
def test_an_answer_that_cannot_be_taken_is_refused(asks: Path, reyn, wait: str, value: str, code: str):
    reyn("run", "asking", IN, "--run-id", "r")
    said = reyn("answer", "r", wait, value, "--json")
    assert (said.code, said.json["error"]["code"]) == (2, code)
    assert reyn("runs", "--json").json[0]["status"] == "waiting"


def test_a_question_that_need_not_be_answered_takes_nothing_as_its_answer(here: Path, reyn):
    write_answers(here, act(question("Anything else?", required=False)), finish())
    reyn("run", "asking", IN, "--run-id", "r")
    assert reyn("answer", "r", "1.1.1", "").code == 0
    assert "answered: null" in reyn("show", "r").out


@pytest.mark.parametrize("named", ["r", "r.1.1.1"])
def test_a_sub_run_is_answered_by_its_own_name_or_by_the_one_above(asks_below: Path, reyn, named: str):
    said = reyn("run", "above", IN, "--run-id", "r")
    assert said.code == 4
    assert (
        "    run r.1.1.1 · asking · scripted:answers.jsonl\n      work (visit 1)\n        asks: Which tone?" in said.out
    )
    assert said.out.count("Which tone?") == 2  # where it is asked, and at the end
    assert "next: reyn answer r 1.1.1/1.1.1 VALUE" in said.out
    answered = reyn("answer", named, "1.1.1/1.1.1", "plain")
    assert answered.code == 0
    assert answered.out.startswith(
        "run r · resumed at call\n    run r.1.1.1 · resumed at work\n        answered: plain"
    )
    assert "run_skill asking · ok" in answered.out
    assert reyn("show", "r", "--json").json["artifact"]["data"] == {"text": "above"}


def test_a_resume_without_an_answer_says_what_is_missing(asks: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r")
    said = reyn("resume", "r")
    assert said.code == 2
    assert "next: reyn answer r 1.1.1 VALUE\n" in said.err
    assert reyn("resume", "r", "--json").json["error"]["next"] == "reyn answer r 1.1.1 VALUE"
    named = reyn("--project", str(asks), "resume", "r")
    assert f"next: reyn --project {asks} answer r 1.1.1 VALUE\n" in named.err


@pytest.mark.parametrize(
    ("schema", "words", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, "", ""),
        ({"type": ["string", "null"]}, "", None),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": "integer"}, "5", 5),
        ({"type": "boolean"}, "true", True),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({"enum": ["yes", "no"]}, "yes", "yes"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "5", "5"),
        ({"const": 3}, "3", 3),
        ({}, '"quoted"', "quoted"),
    ],
)
def test_words_become_text_where_the_question_takes_text_and_json_elsewhere(schema, words: str, value):
    assert parse_answer(Wait("w", "question", "?", schema), words) == value


# -- at a terminal ------------------------------------------------------------------------------------------


def reyn_elsewhere(folder: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "reyn", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_question_is_answered_from_a_second_process_and_the_first_goes_on(asks_below: Path, reyn):
    first = Terminal(asks_below, "run", "above", IN, "--run-id", "r")
    first.wait_for("Which tone?")
    first.wait_for("  > ")
    listed = reyn_elsewhere(asks_below, "runs")
    assert "next: reyn answer r 1.1.1/1.1.1 VALUE" in listed
    said = reyn_elsewhere(asks_below, "answer", "r", "1.1.1/1.1.1", "formal")
    assert said == "answered 1.1.1/1.1.1 of r.1.1.1; another process continues the run\n"
    first.wait_for("answered elsewhere: formal")
    assert first.end().code == 0
    assert reyn("show", "r", "--json").json["status"] == "finished"


def test_a_run_that_waits_at_a_terminal_is_cancelled_from_a_second_process(asks_below: Path, reyn):
    first = Terminal(asks_below, "run", "above", IN, "--run-id", "r")
    first.wait_for("  > ")
    reyn_elsewhere(asks_below, "cancel", "r", "--reason", "enough")
    said = first.end()
    assert said.code == 6
    assert "cancelled\x1b[0m: enough" in said.out
    assert {row["status"] for row in reyn("runs", "--json").json} == {"cancelled"}


def test_a_process_that_dies_at_a_question_leaves_it_open(asks_below: Path, reyn):
    first = Terminal(asks_below, "run", "above", IN, "--run-id", "r")
    first.wait_for("  > ")
    first.child.kill()
    first.end()
    listed = reyn("runs").out
    assert "running (interrupted)" in listed
    assert "next: reyn answer r 1.1.1/1.1.1 VALUE" in listed
    assert reyn("answer", "r", "1.1.1/1.1.1", "plain").code == 0


def test_at_a_terminal_a_number_picks_a_suggestion(asks: Path, reyn):
    terminal = Terminal(asks, "run", "asking", IN, "--run-id", "r")
    terminal.wait_for("2. plain")
    terminal.wait_for("  > ")
    terminal.type("2\n")
    said = terminal.end()
    assert said.code == 0
    assert "\x1b[?25h" in said.out  # the cursor is there again
    assert "answered: plain" in reyn("show", "r").out


def test_an_answer_that_does_not_fit_is_asked_for_again(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    """Through the seam itself: no op asks for JSON yet."""
    typed = iter([b"three\n", b"7\n", b"3\n", None])

    async def read_line() -> bytes | None:
        return next(typed)

    monkeypatch.setattr(people, "_read_line", read_line)
    somebody = people.TerminalPeople()
    wait = Wait("w", "question", "How many?", {"type": "integer", "maximum": 5})
    assert asyncio.run(somebody.ask("r", wait)) == 3
    assert asyncio.run(somebody.ask("r", wait)) is LATER


@pytest.mark.parametrize("typed", ["\n", "\x04"])
def test_whoever_gives_no_answer_leaves_a_run_that_waits(asks: Path, reyn, typed: str):
    terminal = Terminal(asks, "run", "asking", IN, "--run-id", "r")
    terminal.wait_for("  > ")
    terminal.type(typed)
    said = terminal.end()
    assert said.code == 4
    assert "next: reyn answer r 1.1.1 VALUE" in said.out
    again = Terminal(asks, "resume", "r")
    again.wait_for("Which tone?")
    again.wait_for("  > ")
    again.type("plain\n")
    assert again.end().code == 0


def test_with_no_input_nobody_is_asked(asks: Path):
    terminal = Terminal(asks, "run", "asking", IN, "--run-id", "r", "--no-input")
    said = terminal.end()
    assert said.code == 4
    assert "  > " not in said.out


def test_a_question_cannot_steer_the_terminal(here: Path):
    write_answers(here, act(question("\x1b[2Jgone?\nfinished", suggestions=["\x1b]0;x\x07"])), finish())
    terminal = Terminal(here, "run", "asking", IN)
    terminal.wait_for("\\x1b[2Jgone?")
    terminal.wait_for("    finished")
    terminal.wait_for("1. \\x1b]0;x\\x07")
    terminal.wait_for("  > ")
    terminal.type("1\n")
    assert terminal.end().code == 0


def test_at_a_terminal_a_line_tells_what_goes_on(asks: Path):
    terminal = Terminal(asks, "run", "asking", IN, "--run-id", "r")
    terminal.wait_for("run r · asking")
    terminal.wait_for("  > ")
    terminal.type("x\n")
    assert re.search(
        r"work · visit 1 · turn 2 · asking scripted:answers.jsonl · \d+ s · \d+ s in all", terminal.end().out
    )


def test_without_a_terminal_nothing_is_loaded_for_one(asks: Path):
    code = (
        "import sys; from reyn.cli.app import run_app; "
        f"run_app(['run', 'asking', {IN!r}]); run_app(['runs']); print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=asks, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")
