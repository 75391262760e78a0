"""The next action of a failed run works: the printed command is executed, after the fix that the hint names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.support import write_answers
from tests.support import act, finish, write_skill

STEP = "preprocessor: [{python: {module: ./step.py, function: size, mode: MODE, into: data.size, output_schema: {}}}]\n"
ENTRY = "permissions: {python: [{module: ./step.py, function: size, mode: MODE, reason: counts}], shell: true}\n"


def next_arguments(output: str) -> list[str]:
    """Return the arguments of the command that the output names."""
    [line] = re.findall(r"^next: reyn (.*)$", output, re.MULTILINE)
    return shlex.split(line)


def with_step(here: Path, mode: str, source: str) -> Path:
    folder = write_skill(
        here, "s", {"a": ["end"]}, phase_keys={"a": STEP.replace("MODE", mode)}, skill_keys=ENTRY.replace("MODE", mode)
    )
    (folder / "step.py").write_text(source)
    write_answers(here, finish("x"))
    return folder


def test_a_step_that_failed_is_retried_with_the_fixed_skill(here: Path, reyn):
    """The run's own copy of the module would fail again."""
    folder = with_step(here, "safe", "def size(artifact):\n    return 1 // 0\n")
    failed = reyn("run", "s", '{"text": "in"}', "--run-id", "r")
    assert (failed.code, next_arguments(failed.out)) == (1, ["resume", "r", "--retry", "--upgrade"])
    (folder / "step.py").write_text("def size(artifact):\n    return 1\n")
    assert reyn("resume", "r", "--retry").code == 1
    assert reyn(*next_arguments(failed.out)).code == 0


@pytest.mark.parametrize("fix", ["phases/a.md", ""])
def test_rejected_answers_are_retried_with_better_instructions(here: Path, reyn, fix: str):
    folder = write_skill(here, "s", {"a": ["end"]})
    write_answers(here, *["no"] * 3, finish("x"))
    failed = reyn("run", "s", '{"text": "in"}', "--run-id", "r", "--max-phase-retries", "2")
    assert "(RYN202)" in failed.out
    if fix:
        (folder / fix).write_text((folder / fix).read_text() + "\nAnswer with an object.\n")
    assert reyn(*next_arguments(failed.out)).code == 0


def test_an_unsafe_step_is_retried_with_the_switch(here: Path, reyn):
    with_step(here, "unsafe", "def size(artifact):\n    return 1\n")
    failed = reyn("run", "s", '{"text": "in"}', "--run-id", "r")
    assert next_arguments(failed.out) == ["resume", "r", "--allow-unsafe-python", "--retry"]
    assert next_arguments(reyn("show", "r").out) == next_arguments(failed.out)
    assert reyn(*next_arguments(failed.out)).code == 0


def test_the_switches_of_a_command_are_part_of_the_next_one(here: Path, reyn):
    write_skill(here, "s", {"a": ["end"]}, ops={"a": "ask_user"})
    write_answers(here, act({"kind": "ask_user", "question": "Which?"}), finish("x"))
    waiting = reyn("run", "s", '{"text": "in"}', "--run-id", "r", "--allow-unsafe-python", "--allow-shell")
    arguments = next_arguments(waiting.out)
    assert arguments[:4] == ["answer", "r", "--allow-shell", "--allow-unsafe-python"]
    assert reyn(*[*arguments[:-1], "blue"]).code == 0


def test_a_recording_without_an_answer_is_continued_with_another_model(here: Path, reyn):
    write_skill(here, "s", {"a": ["end"]})
    write_answers(here, finish("x"))
    assert reyn("run", "s", '{"text": "in"}', "--run-id", "origin").code == 0
    failed = reyn("run", "s", '{"text": "other"}', "--run-id", "r", "--model", "recorded:origin")
    assert "(RYN504)" in failed.out
    arguments = next_arguments(failed.out)
    assert arguments == ["resume", "r", "--retry", "--model", "MODEL"]
    assert reyn(*[*arguments[:-1], "scripted:answers.jsonl"]).code == 0
