"""Questions of a run: at a terminal, without one, and answered by another process."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from reyn.cli import people
from reyn.cli.output import command_line
from reyn.errors import ReplyInvalid
from reyn.journal import Event
from reyn.journal.family import offered_replies, parse_reply
from reyn.journal.kinds import Question
from reyn.journal.sqlite import SqliteJournal
from reyn.kernel.runtime_types import LATER
from reyn.kernel.visit.waits import SUGGESTIONS, reply_schema
from reyn.kernel.world.inbox import answer_error
from reyn.runs.next_action import answer_action
from tests.cli.support import IN, Terminal, write_answers
from tests.support import act, file, finish, question

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


def test_without_a_terminal_the_run_waits_and_prints_the_answer_command(asks: Path, reyn):
    output = reyn("run", "asking", IN, "--run-id", "r")
    assert output.code == 4
    assert "    asks: Which tone?\nwaiting for input: Which tone?\nsuggested: formal, plain\n" in output.out
    assert output.out.endswith("next: reyn answer r 1.1.1 formal\n")
    assert "waiting  just now  Which tone?" in reyn("runs").out
    [listed] = reyn("runs", "--json").json
    assert listed["next"] == "reyn answer r 1.1.1 formal"
    assert listed["question"]["suggestions"] == ["formal", "plain"]


def test_a_question_of_several_lines_is_printed_line_by_line_below_its_first(here: Path, reyn):
    write_answers(here, act(question("Send it?\nDear Ada,\nthe rice is here.")), finish("sent"))
    output = reyn("run", "asking", IN, "--run-id", "r")
    assert "    asks: Send it? …\nwaiting for input: Send it?\n    Dear Ada,\n    the rice is here.\n" in output.out


def test_a_command_says_that_usage_was_not_reported_also_after_an_earlier_command_called_the_model(asks: Path, reyn):
    assert "used: tokens not reported, " in reyn("run", "asking", IN, "--run-id", "r").out
    reyn("answer", "r", "plain", "--no-resume")
    assert "used: tokens not reported, " in reyn("cancel", "r").out + reyn("show", "r").out


def test_the_events_of_a_run_are_not_read_to_find_and_answer_its_question(asks: Path, reyn, monkeypatch):
    reads: list[str] = []
    original = SqliteJournal.read

    def read(journal: SqliteJournal, run_id: str, after: int = 0) -> Iterator[Event]:
        reads.append(run_id)
        return original(journal, run_id, after)

    reyn("run", "asking", IN, "--run-id", "r")
    monkeypatch.setattr(SqliteJournal, "read", read)
    assert reyn("answer", "r", "plain", "--no-resume").code == 0
    assert reads == []
    reyn("run", "asking", IN, "--run-id", "r2")
    reads.clear()
    assert reyn("answer", "r2", "plain").code == 0
    assert len(reads) <= 4  # to resume, for warnings, for the budget, for the changed files


def test_answer_resumes_the_run(asks: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r")
    output = reyn("answer", "r", "1.1.1", "plain")
    assert output.code == 0
    assert output.out.startswith("run r · resumed at work\n    reply: plain\n")
    assert "ask_user ·" not in output.out, "the question and the reply have their own lines"
    assert "finished" in output.out
    timeline = reyn("show", "r").out
    assert "asks: Which tone?" in timeline
    assert "reply: plain" in timeline


OFFERED: list[tuple[str, ...]] = [("formal", "plain"), (), ("one",)]


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_show_has_the_options_of_every_question_once(here: Path, reyn, order: tuple[int, ...]):
    asked = [(f"Question {number}?", OFFERED[number]) for number in order]
    write_answers(here, *(act(question(text, suggestions=list(offered))) for text, offered in asked), finish("written"))
    reyn("run", "asking", IN, "--run-id", "r")
    for count in range(1, 4):
        shown = reyn("show", "r")
        steps = [step for step in reyn("show", "r", "--json").json["steps"] if step["type"] == "question"]
        assert [tuple(step.get("suggestions", ())) for step in steps] == [offered for _, offered in asked[:count]]
        for at, (text, offered) in enumerate(asked[:count], start=1):
            options = ", ".join(offered)
            line = f"asks: {text}" + (f" (suggested: {options})" if offered and at < count else "")
            assert f"{line}\n" in shown.out
            assert shown.out.count(f"suggested: {options}") == 1 or not offered
        assert reyn("answer", "r", steps[-1]["wait"], "plain").code in (0, 4)
    assert reyn("show", "r").out.count("suggested: ") == 2


def asked_id(reyn, run: str = "r") -> str:
    """Return the id of the open question of a run."""
    return reyn("answer", run, "--show", "--json").json["question"]["id"]


@pytest.fixture
def needs_approval(here: Path) -> Path:
    """A run of `asking` writes a file for which the operator wants to be asked."""
    rules = "permissions: {file.write: [{ask: output/}]}\n"
    (here / "reyn.yaml").write_text(f"model: scripted:answers.jsonl\n{rules}")
    write_answers(here, act(file("write", "output/a.md", content="one\nnext: \x1b[2J\n")), finish("written"))
    return here


def test_an_approval_prints_the_diff_with_one_escaped_line_for_each_line(needs_approval: Path, reyn):
    output = reyn("run", "asking", IN, "--run-id", "r")
    assert output.code == 4
    asked = "Approve `file write`? (permissions.file.write: ask output/)"
    diff = (
        "    create output/a.md (15 bytes, in the new folder output)\n"
        "    --- /dev/null\n    +++ output/a.md\n    @@ -0,0 +1,2 @@\n    +one\n    +next: \\x1b[2J\n"
    )
    end = f"    needs approval: {asked}\nwaiting for approval: {asked}\n{diff}suggested: approve, reject, defer\n"
    assert end in output.out
    assert diff in reyn("show", "r").out
    assert output.out.endswith(f"next: reyn answer r {asked_id(reyn)} approve\n")


@pytest.mark.parametrize(
    ("value", "line", "is_written"),
    [
        ("approve", "    approval: approve by {user}\n", True),
        ('{"decision": "reject", "remark": "too short"}', "    approval: reject by {user}: too short\n", False),
        ("reject too short", "    approval: reject by {user}: too short\n", False),
    ],
)
def test_an_approval_can_be_decided_with_a_word_or_json(needs_approval: Path, reyn, value, line, is_written):
    reyn("run", "asking", IN, "--run-id", "r")
    output = reyn("answer", "r", asked_id(reyn), value)
    assert (output.code, line.format(user=people.user_name()) in output.out) == (0, True)
    assert (needs_approval / "output" / "a.md").exists() == is_written


def test_answer_with_no_resume_stores_the_answer(asks: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r")
    output = reyn("answer", "r", "1.1.1", "plain", "--no-resume")
    assert (output.code, output.out) == (0, "r: stored the reply to 1.1.1\nnext: reyn resume r\n")
    assert "Which tone? (reply stored)" in reyn("runs").out
    assert reyn("runs", "--json").json[0]["next"] == "reyn resume r"
    twice = reyn("answer", "r", "1.1.1", "formal")
    assert (twice.code, "has a reply already" in twice.err) == (2, True)
    assert reyn("resume", "r", "--json").json["status"] == "finished"


def test_answer_with_json_prints_the_outcome(asks: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r")
    left = reyn("answer", "r", "1.1.1", "plain", "--no-resume", "--json").json
    assert left == {"run_id": "r", "question_id": "1.1.1", "is_continued": False}
    reyn("run", "asking", IN, "--run-id", "s")
    assert reyn("answer", "s", "1.1.1", "plain", "--json").json["status"] == "finished"


@pytest.mark.parametrize(
    ("wait", "value", "code"), [("9.9.9", "plain", "RYN414"), ("1.1.1", "", "RYN415"), ("", "x", "RYN414")]
)
def test_an_invalid_answer_is_rejected(asks: Path, reyn, wait: str, value: str, code: str):
    reyn("run", "asking", IN, "--run-id", "r")
    output = reyn("answer", "r", wait, value, "--json")
    assert (output.code, output.json["error"]["code"]) == (2, code)
    assert reyn("runs", "--json").json[0]["status"] == "waiting"


def test_an_empty_value_skips_an_optional_question(here: Path, reyn):
    write_answers(here, act(question("Anything else?", required=False)), finish())
    reyn("run", "asking", IN, "--run-id", "r")
    assert reyn("answer", "r", "1.1.1", "").code == 0
    assert "reply: null" in reyn("show", "r").out


@pytest.mark.parametrize("named", ["r", "r.1.1.1"])
def test_a_sub_run_is_answered_by_its_id_or_by_its_ancestor(asks_below: Path, reyn, named: str):
    output = reyn("run", "above", IN, "--run-id", "r")
    assert output.code == 4
    assert "    run r.1.1.1 · asking · scripted:answers.jsonl\n      work (visit 1)\n        asks: " in output.out
    assert output.out.count("Which tone?") == 2  # where it is asked, and at the end
    assert "next: reyn answer r 1.1.1/1.1.1 formal" in output.out
    answered = reyn("answer", named, "1.1.1/1.1.1", "plain")
    assert answered.code == 0
    assert answered.out.startswith("run r · resumed at call\n    run r.1.1.1 · resumed at work\n        reply: plain")
    assert "run_skill asking · ok" in answered.out
    assert reyn("show", "r", "--json").json["artifact"]["data"] == {"text": "above"}


@pytest.mark.parametrize(
    ("schema", "suggestions", "reply"),
    [
        ({"enum": ["red", "blue"]}, (), "red"),
        ({"type": "boolean"}, (), "true"),
        ({"type": "integer", "minimum": 3, "maximum": 5}, (), "3"),
        ({"type": "integer", "maximum": -5}, (), "-- -5"),
        ({"type": "string"}, (), "'your reply'"),
        ({"type": "string", "maxLength": 4}, (), "your"),
        ({"type": "string"}, ("plain", "formal"), "plain"),
        ({"type": "string"}, ("x" * 100, "--help"), "-- --help"),
        ({"type": "integer"}, ("many",), "1"),
        ({"type": ["null", "string"]}, (), "VALUE"),
        ({"type": "string", "pattern": "^[0-9]{4}$"}, (), "VALUE"),
        ({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}, (), """'{"n":1}'"""),
    ],
)
def test_the_next_command_has_a_reply_that_the_question_accepts(
    schema: dict[str, Any], suggestions: tuple[str, ...], reply: str
):
    asked = Question("1.1.1", "question", "Which?", schema, suggestions=suggestions)
    assert command_line(answer_action("r", asked)) == f"reyn answer r 1.1.1 {reply}"


def test_the_example_of_a_negative_reply_is_accepted_as_printed(here: Path, reyn):
    write_answers(here, act(question("How cold?")), finish("written"))
    reyn("run", "asking", IN, "--run-id", "r")
    assert reyn("answer", "r", "1.1.1", "--", "-5").code == 0


def test_resume_without_an_answer_prints_the_answer_command(asks: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r")
    output = reyn("resume", "r")
    assert output.code == 2
    assert "next: reyn answer r 1.1.1 formal\n" in output.err
    assert reyn("resume", "r", "--json").json["error"]["next"] == "reyn answer r 1.1.1 formal"
    named = reyn("--project", str(asks), "resume", "r")
    assert f"next: reyn --project {asks} answer r 1.1.1 formal\n" in named.err


@pytest.mark.parametrize(
    ("schema", "text", "value"),
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
def test_an_answer_is_text_if_the_question_takes_text_else_json(schema, text: str, value):
    assert parse_reply(Question("w", "question", "?", schema), text) == value


# -- at a terminal ------------------------------------------------------------------------------------------


def reyn_process(folder: Path, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "reyn", *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_answer_of_a_second_process_continues_the_first(asks_below: Path, reyn):
    first = Terminal(asks_below, "run", "above", IN, "--run-id", "r")
    first.wait_for("Which tone?")
    first.wait_for("  > ")
    assert "Which tone?" in reyn_process(asks_below, "runs")
    output = reyn_process(asks_below, "answer", "r", "1.1.1/1.1.1", "formal")
    assert output == "r.1.1.1: stored the reply to 1.1.1/1.1.1; another process continues the run\n"
    first.wait_for("reply from another process: formal")
    assert first.end().code == 0
    assert reyn("show", "r", "--json").json["status"] == "finished"


def test_a_second_process_cancels_a_run_that_waits_at_a_terminal(asks_below: Path, reyn):
    first = Terminal(asks_below, "run", "above", IN, "--run-id", "r")
    first.wait_for("  > ")
    reyn_process(asks_below, "cancel", "r", "--reason", "enough")
    output = first.end()
    assert output.code == 6
    assert "cancelled\x1b[0m: enough" in output.out
    assert {row["status"] for row in reyn("runs", "--json").json} == {"cancelled"}


def test_a_killed_process_leaves_its_question_open(asks_below: Path, reyn):
    first = Terminal(asks_below, "run", "above", IN, "--run-id", "r")
    first.wait_for("  > ")
    first.child.kill()
    first.end()
    assert "running (interrupted)" in reyn("runs").out
    assert reyn("runs", "--json").json[0]["next"] == "reyn answer r 1.1.1/1.1.1 formal"
    assert reyn("answer", "r", "1.1.1/1.1.1", "plain").code == 0


def test_at_a_terminal_a_number_selects_a_suggestion(asks: Path, reyn):
    terminal = Terminal(asks, "run", "asking", IN, "--run-id", "r")
    terminal.wait_for("2. plain")
    terminal.wait_for("  > ")
    terminal.type("2\n")
    output = terminal.end()
    assert output.code == 0
    assert "\x1b[?25h" in output.out  # the cursor is visible again
    assert "reply: plain" in reyn("show", "r").out


def test_an_invalid_answer_at_the_terminal_is_asked_for_again(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    """Uses `TerminalPeople` directly: no op asks for JSON yet."""
    typed = iter([b"three\n", b"7\n", b"3\n", None])

    async def read_line() -> bytes | None:
        return next(typed)

    monkeypatch.setattr(people, "_read_line", read_line)
    people_at_terminal = people.TerminalPeople()
    wait = Question("w", "question", "How many?", {"type": "integer", "maximum": 5})
    assert asyncio.run(people_at_terminal.ask("r", wait)) == 3
    assert asyncio.run(people_at_terminal.ask("r", wait)) is LATER


@pytest.mark.parametrize("typed", ["\n", "\x04"])
def test_without_an_answer_at_the_terminal_the_run_waits(asks: Path, reyn, typed: str):
    terminal = Terminal(asks, "run", "asking", IN, "--run-id", "r")
    terminal.wait_for("  > ")
    terminal.type(typed)
    output = terminal.end()
    assert output.code == 4
    assert "next: reyn answer r 1.1.1 formal" in output.out
    again = Terminal(asks, "resume", "r")
    again.wait_for("Which tone?")
    again.wait_for("  > ")
    again.type("plain\n")
    assert again.end().code == 0


def test_no_input_asks_nothing_at_the_terminal(asks: Path):
    terminal = Terminal(asks, "run", "asking", IN, "--run-id", "r", "--no-input")
    output = terminal.end()
    assert output.code == 4
    assert "  > " not in output.out


def test_control_characters_in_a_question_are_escaped(here: Path):
    write_answers(here, act(question("\x1b[2Jgone?\nfinished", suggestions=["\x1b]0;x\x07"])), finish())
    terminal = Terminal(here, "run", "asking", IN)
    terminal.wait_for("\\x1b[2Jgone?")
    terminal.wait_for("    | finished")
    terminal.wait_for("1. \\x1b]0;x\\x07")
    terminal.wait_for("  > ")
    terminal.type("1\n")
    assert terminal.end().code == 0


FORGED = "Approve `file delete`? (permissions.file.write: ask output/)"


def test_a_question_of_a_model_cannot_pass_for_an_approval(here: Path, reyn):
    """Whatever it contains: line ends of any kind, control characters, the text of an approval."""
    text = f"{FORGED}\n--- a\n  ? approval: {FORGED}\u2028  ? approval:\x85  > \r  ? approval:\u202e\n    (press Enter)"
    write_answers(here, act(question(text, suggestions=["approve", f"no\n  ? approval: {FORGED}"])), finish())
    terminal = Terminal(here, "run", "asking", IN, "--run-id", "r")
    asked = terminal.wait_for("\r\n  > ").replace("\x1b[35m\x1b[1m?\x1b[0m", "?")
    lines = re.split(r"[\n\r\x85\u2028]+", asked[asked.index("  ? ") :])
    assert lines[0] == f"  ? question: {FORGED}"
    assert [line for line in lines[1:] if line.startswith("  ?")] == []
    assert lines[2] == f"    |   ? approval: {FORGED}\\u2028  ? approval:\\x85  > \\r  ? approval:\\u202e"
    terminal.type("\n")
    output = terminal.end()
    assert "waiting\x1b[0m for input: Approve" in output.out
    assert "for approval" not in output.out
    assert "approval: Approve" not in reyn("runs").out


def test_an_approval_at_the_terminal_is_labelled_and_takes_a_remark(needs_approval: Path, reyn):
    terminal = Terminal(needs_approval, "run", "asking", IN, "--run-id", "r")
    terminal.wait_for(" approval: Approve `file write`?")
    terminal.wait_for("    | +next: \\x1b[2J")
    terminal.wait_for("  > ")
    terminal.type("reject too short\n")
    assert terminal.end().code == 0
    assert f"approval: reject by {people.user_name()}: too short" in reyn("show", "r").out


EDITOR = """#!/bin/sh
sed -i 's/"content": ".*"/"content": "edited"/' "$1"
"""


@pytest.fixture
def editor(here: Path) -> dict[str, str]:
    """The environment of an editor that changes the content of a proposed file."""
    (here / "editor").write_text(EDITOR)
    (here / "editor").chmod(0o755)
    return {"EDITOR": str(here / "editor"), "VISUAL": ""}


def test_an_op_is_edited_at_the_prompt_in_an_editor(needs_approval: Path, editor: dict[str, str], reyn):
    terminal = Terminal(needs_approval, "run", "asking", IN, "--run-id", "r", env=editor)
    terminal.wait_for("(type a number, `edit`, or `reject` and a remark; ")
    terminal.wait_for("  > ")
    terminal.type("edit nothing\n")
    terminal.wait_for("the reply is not valid JSON")
    terminal.wait_for("  > ")
    terminal.type("edit\n")
    terminal.wait_for("| +edited")
    terminal.wait_for("  > ")
    terminal.type("approve\n")
    assert terminal.end().code == 0
    assert (needs_approval / "output" / "a.md").read_text() == "edited"
    assert "approval: edit by" in reyn("show", "r").out


def test_answer_edit_opens_an_editor_or_takes_json(needs_approval: Path, editor: dict[str, str], reyn):
    reyn("run", "asking", IN, "--run-id", "r", "--no-input")
    terminal = Terminal(needs_approval, "answer", "r", asked_id(reyn), "edit", "--no-input", env=editor)
    assert "+edited" in terminal.end().out
    args = {"kind": "file", "op": "write", "path": "output/a.md", "content": "again"}
    assert "+again" in reyn("answer", "r", asked_id(reyn), f"edit {json.dumps(args)}").out
    assert reyn("answer", "r", asked_id(reyn), "edit").code == 2
    assert reyn("answer", "r", asked_id(reyn), "approve").code == 0
    assert (needs_approval / "output" / "a.md").read_text() == "again"


def test_an_editor_that_saves_nothing_replies_nothing(needs_approval: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r", "--no-input")
    terminal = Terminal(needs_approval, "answer", "r", asked_id(reyn), "edit", env={"EDITOR": "true", "VISUAL": ""})
    output = terminal.end()
    assert (output.code, "nothing was saved" in output.out) == (2, True)
    assert (reyn("runs", "--json").json[0]["status"]) == "waiting"


def test_a_deferred_approval_is_not_asked_again_at_once(needs_approval: Path, reyn):
    terminal = Terminal(needs_approval, "run", "asking", IN, "--run-id", "r")
    terminal.wait_for("  > ")
    terminal.type("defer\n")
    output = terminal.end()
    assert (output.code, "  > " in output.out) == (4, False)
    again = Terminal(needs_approval, "answer", "r", asked_id(reyn), "defer")
    output = again.end()
    assert (output.code, "  > " in output.out) == (4, False)
    assert reyn("runs").out.count("approval: Approve `file write`?") == 1
    last = Terminal(needs_approval, "resume", "r")
    last.wait_for("  > ")
    last.type("1\n")
    assert last.end().code == 0
    assert (needs_approval / "output" / "a.md").exists()


def test_answer_show_prints_everything_that_is_to_be_approved(needs_approval: Path, reyn):
    lines = [f"line {number}\x1b" for number in range(5_000)]
    write_answers(needs_approval, act(file("write", "output/a.md", content="\n".join(lines))), finish())
    waiting = reyn("run", "asking", IN, "--run-id", "r")
    assert "[truncated: the first 20,000 of" in waiting.out
    assert "+line 4999" not in waiting.out
    output = reyn("answer", "r", "--show")
    assert output.out.startswith(
        f"r {asked_id(reyn)}: approval\n    Approve `file write`? (permissions.file.write: ask"
    )
    assert "    +line 4999\\x1b\n    \\ No newline at end of file\nsuggested: " in output.out
    shown = reyn("answer", "r", "--show", "--json").json
    assert shown["message"].endswith("+line 4999\x1b\n\\ No newline at end of file\n")
    assert reyn("answer", "r").code == 2
    assert reyn("answer", "r", "approve", "--show").code == 2
    assert not (needs_approval / "output" / "a.md").exists()


def test_a_review_is_printed_and_answered_with_a_remark(here: Path, reyn):
    phase = here / "reyn" / "project" / "asking" / "phases" / "work.md"
    phase.write_text(phase.read_text().replace("type: phase\n", "type: phase\nrequires_approval: true\n"))
    write_answers(here, finish("first"), finish("second"))
    waiting = reyn("run", "asking", IN, "--run-id", "r")
    assert "waiting for approval: Approve the decision of phase `work`: finish?\n    reason: " in waiting.out
    assert waiting.out.endswith(f"next: reyn answer r {asked_id(reyn)} approve\n")
    assert reyn("answer", "r", asked_id(reyn), "reject make it longer").code == 4
    assert f"approval: reject by {people.user_name()}: make it longer" in reyn("show", "r").out
    assert reyn("answer", "r", asked_id(reyn), "approve", "--json").json["artifact"]["data"] == {"text": "second"}


def test_the_live_line_shows_the_current_activity(asks: Path):
    terminal = Terminal(asks, "run", "asking", IN, "--run-id", "r")
    terminal.wait_for("run r · asking")
    terminal.wait_for("  > ")
    terminal.type("x\n")
    assert re.search(
        r"work · visit 1 · turn 2( · calling scripted:answers.jsonl)? · \d+ s · total \d+ s", terminal.end().out
    )


def test_without_a_terminal_rich_is_not_imported(asks: Path):
    code = (
        "import sys; from reyn.cli.app import run_app; "
        f"run_app(['run', 'asking', {IN!r}]); run_app(['runs']); print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=asks, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


# -- answers without a wait id ------------------------------------------------------------------------------


def test_answer_needs_no_question_id_while_a_question_is_open(asks: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r")
    assert reyn("answer", "r", "plain").code == 0
    assert "reply: plain" in reyn("show", "r").out


def test_answer_without_a_question_id_finds_the_question_of_a_sub_run(asks_below: Path, reyn):
    reyn("run", "above", IN, "--run-id", "r")
    assert reyn("answer", "r", "plain").code == 0
    assert reyn("show", "r", "--json").json["status"] == "finished"


def test_answer_without_an_open_question_is_an_error(asks: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r")
    reyn("answer", "r", "plain")
    output = reyn("answer", "r", "plain")
    assert output.code == 2
    assert "error RYN414: run `r` has no open question; its status is finished" in output.err


def test_answer_with_only_the_question_id_is_an_error(asks: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r")
    output = reyn("answer", "r", "1.1.1")
    assert (output.code, "the reply is missing" in output.err) == (2, True)
    assert reyn("runs", "--json").json[0]["question"]["is_answered"] is False


def test_answer_with_too_many_arguments_is_a_usage_error(asks: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r")
    assert reyn("answer", "r", "1.1.1", "in", "plain", "words", "--json").json["error"]["code"] == "RYN710"
    assert reyn("answer", "r", "--json").json["error"]["code"] == "RYN710"


def test_answer_without_a_question_id_refuses_a_second_answer(asks: Path, reyn):
    reyn("run", "asking", IN, "--run-id", "r")
    reyn("answer", "r", "plain", "--no-resume")
    output = reyn("answer", "r", "formal")
    assert (output.code, "has a reply already" in output.err) == (2, True)


def test_questions_of_runs_that_execute_together_are_asked_one_after_the_other(monkeypatch):
    asked: list[int] = []

    async def ask_line() -> tuple[str, bool]:
        asked.append(1)
        assert len(asked) == 1, "another question waits for its reply"
        for _ in range(5):
            await asyncio.sleep(0)
        asked.clear()
        return "yes", True

    monkeypatch.setattr("reyn.cli.people._ask_line", ask_line)

    async def ask_both() -> list[str]:
        terminal, schema = people.TerminalPeople(), {"type": "string"}
        waits = [Question(str(number), "question", "Which?", schema) for number in range(2)]
        return await asyncio.gather(*(terminal.ask("k", wait) for wait in waits))

    assert asyncio.run(ask_both()) == ["yes", "yes"]


KINDS = {
    "enum": ({"enum": ["red", "green"]}, (), ["red", "green"]),
    "numbers": ({"enum": [2, 4, 8]}, (), [2, 4, 8]),
    "const": ({"const": "go"}, (), ["go"]),
    "boolean": ({"type": "boolean"}, (), [True, False]),
    "text": ({"type": "string"}, ("formal", "plain"), ["formal", "plain"]),
    "optional": ({"type": ["string", "null"]}, ("formal",), ["formal"]),
    "approval": (reply_schema(), SUGGESTIONS, list(SUGGESTIONS)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_offered_reply_is_accepted_as_it_is_written_and_by_its_number(kind: str):
    schema, suggestions, values = KINDS[kind]
    reason = kind if kind == "approval" else "question"
    question = Question("1", reason, "Which?", schema, suggestions=suggestions)
    for number, (text, value) in enumerate(zip(offered_replies(question), values, strict=True), start=1):
        assert parse_reply(question, text) == value
        assert parse_reply(question, text.upper()) == value
        assert answer_error(question, "1", value) == ""
        if str(number) not in offered_replies(question):
            assert parse_reply(question, str(number)) == value


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "integer", "maximum": 12}, "the reply is not a number"),
        ({"type": ["number", "null"]}, "the reply is not a number"),
        ({"type": ["number", "boolean"]}, "the reply is not valid JSON"),
        ({"type": "array"}, "the reply is not valid JSON"),
        ({}, "the reply is not valid JSON"),
    ],
)
def test_words_in_reply_to_a_question_for_a_number_are_no_number(schema: dict[str, Any], reason: str):
    with pytest.raises(ReplyInvalid, match=reason):
        parse_reply(Question("1", "question", "How many?", schema), "many")


def test_a_number_is_itself_where_the_question_takes_numbers():
    question = Question("1", "question", "How many?", {"type": "integer"}, suggestions=("10", "20"))
    assert [parse_reply(question, text) for text in ("1", "10")] == [1, 10]


def test_a_refused_reply_names_the_accepted_ones(here: Path, reyn):
    [phase] = here.glob("reyn/*/pair/phases/first.md")
    ask = "preprocessor:\n  - ask_user: {question: Which?, schema: {enum: [red, green]}, into: data.colour}\n"
    phase.write_text(phase.read_text().replace("---\n", f"---\n{ask}", 1))
    output = reyn("run", "pair", IN, "--run-id", "r", "--no-input")
    assert "\naccepted: red, green\n" in output.out
    refused = reyn("answer", "r", "blue")
    assert refused.code == 2
    assert "fix: The replies are `red`, `green`.\n" in refused.err
    assert "\naccepted: red, green\n" in reyn("answer", "r", "--show").out
    assert reyn("answer", "r", "--show", "--json").json["replies"] == ["red", "green"]
    assert reyn("answer", "r", "2", "--no-resume").code == 0
