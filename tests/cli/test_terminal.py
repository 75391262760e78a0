"""Colour, the live line, closed pipes, and `--stream`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reyn.cli.output import table_lines
from reyn.models import ModelAnswer
from reyn.testing import ScriptedModel
from tests.cli.support import IN, Terminal, write_answers
from tests.support import act, finish, go, question, write_skill

ESCAPE = "\x1b["


@pytest.mark.sampled(6)
@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"NO_COLOR": "0"}, {"TERM": "dumb"}])
@pytest.mark.parametrize(
    "arguments", [("run", "pair", IN, "--run-id", "r"), ("runs",), ("doctor",), ("show", "nobody"), ("--help",)]
)
def test_a_plain_terminal_gets_no_escape_sequences(here: Path, env: dict[str, str], arguments):
    output = Terminal(here, *arguments, env=env).end()
    assert output.out
    assert ESCAPE not in output.out


def test_an_empty_no_color_does_not_turn_off_colour(here: Path):
    assert ESCAPE in Terminal(here, "run", "pair", IN, env={"NO_COLOR": ""}).end().out


def test_a_question_at_a_plain_terminal_has_no_escape_sequences(here: Path):
    write_answers(here, act(question("Sure?")), finish())
    terminal = Terminal(here, "run", "asking", IN, env={"NO_COLOR": "1"})
    before = terminal.wait_for("  > ")
    terminal.type("yes\n")
    assert ESCAPE not in before + terminal.end().out


# -- closed pipes -------------------------------------------------------------------------------------------


def reyn_into_closed_pipe(folder: Path, *arguments: str, both: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command whose output is closed after its first line."""
    program = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen({[sys.executable, '-m', 'reyn', *arguments]!r}, stdout=subprocess.PIPE,"
        f" stderr={'subprocess.STDOUT' if both else 'None'})\n"
        "child.stdout.readline(); child.stdout.close(); sys.exit(child.wait())"
    )
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)


@pytest.fixture
def long_run(here: Path, reyn) -> Path:
    """A run `long` with more output than a pipe holds."""
    write_skill(here, "spin", {"turn": ["turn", "end"]})
    write_answers(here, *(go("turn", f"{number}" + "x" * 200) for number in range(150)), finish())
    assert reyn("run", "spin", IN, "--run-id", "long", "--max-phase-visits", "1000").code == 0
    return here


@pytest.mark.parametrize("arguments", [("events", "long"), ("events", "long", "--json"), ("export", "long")])
def test_a_closed_pipe_ends_a_command_quietly_with_code_141(long_run: Path, arguments):
    done = reyn_into_closed_pipe(long_run, *arguments)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_pipe_that_is_closed_during_a_run_loses_nothing(here: Path, reyn):
    write_skill(here, "spin", {"turn": ["turn", "end"]})
    write_answers(here, *(go("turn", str(number)) for number in range(400)), finish())
    arguments = ("run", "spin", IN, "--run-id", "piped", "--max-phase-visits", "1000")
    done = reyn_into_closed_pipe(here, *arguments)
    assert (done.returncode, done.stderr) == (141, "")
    assert reyn("show", "piped", "--json").json["status"] == "finished"
    assert reyn("verify", "piped").code == 0


def test_a_closed_stderr_loses_nothing_either(here: Path, reyn):
    write_skill(here, "spin", {"turn": ["turn", "end"]})
    write_answers(here, *(go("turn", str(number)) for number in range(400)), finish())
    arguments = ("run", "spin", IN, "--run-id", "piped", "--max-phase-visits", "1000", "--json")
    assert reyn_into_closed_pipe(here, *arguments, both=True).returncode == 141
    assert reyn("show", "piped", "--json").json["status"] == "finished"


@pytest.mark.parametrize(
    "arguments", [("--help",), ("runs", "--help"), ("runs", "--json"), ("show", "nobody"), ("sing",)]
)
def test_every_command_with_closed_output_exits_quietly(here: Path, arguments):
    program = (
        "import os, sys\n"
        "read, write = os.pipe(); os.close(read); os.dup2(write, 1); os.dup2(write, 2)\n"
        f"os.execv({sys.executable!r}, {[sys.executable, '-m', 'reyn', *arguments]!r})"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=here, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (141, "", "")


@pytest.mark.parametrize("arguments", [("runs", "--json"), ("run", "pair", IN, "--stream"), ("show", "r")])
def test_a_command_works_with_stdout_closed_from_the_start(here: Path, reyn, arguments):
    reyn("run", "pair", IN, "--run-id", "r")
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "reyn", *arguments],
        cwd=here,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


# -- streaming ----------------------------------------------------------------------------------------------


class Streaming(ScriptedModel):
    """Sends each answer in two pieces."""

    async def complete(self, request) -> ModelAnswer:
        reply = await super().complete(request)
        middle = len(reply.text) // 2
        for piece in (reply.text[:middle], reply.text[middle:]):
            if request.on_delta is not None:
                request.on_delta(piece)
        return reply


@pytest.fixture
def streaming(here: Path, monkeypatch: pytest.MonkeyPatch) -> list:
    answers: list = [go("second"), finish("end")]
    monkeypatch.setattr(
        "reyn.models.catalog.open_model", lambda *args, **names: Streaming(answers, "scripted:answers.jsonl")
    )
    return answers


def test_stream_prints_the_text_of_the_model_before_its_decision(streaming: list, reyn):
    output = reyn("run", "pair", IN, "--stream", "--run-id", "r")
    assert output.code == 0
    lines = output.out.splitlines()
    first = lines.index("  first (visit 1)")
    assert json.loads(lines[first + 1]) == streaming[0]
    assert lines[first + 2] == "    → second (0.50) to second"


def test_without_stream_the_text_of_the_model_is_not_printed(streaming: list, reyn):
    assert '"control"' not in reyn("run", "pair", IN).out


def test_stream_with_json_prints_one_object_a_line_and_the_result_last(streaming: list, reyn):
    output = reyn("run", "pair", IN, "--stream", "--json", "--run-id", "r")
    *deltas, result = [json.loads(line) for line in output.out.splitlines()]
    assert [delta["delta"]["call"] for delta in deltas] == ["1.1", "1.1", "2.1", "2.1"]
    assert {delta["delta"]["run_id"] for delta in deltas} == {"r"}
    text = "".join(delta["delta"]["text"] for delta in deltas[:2])
    assert json.loads(text) == streaming[0]
    assert result["status"] == "finished"


def test_stream_prints_the_answers_of_a_model_that_does_not_stream(here: Path, reyn):
    lines = reyn("run", "pair", IN, "--stream").out.splitlines()
    first = lines.index("  first (visit 1)")
    assert json.loads(lines[first + 1]) == go("second")
    assert lines[first + 2] == "    → second (0.50) to second"


@pytest.mark.parametrize("arguments", [("resume", "r", "--retry"), ("fork", "r"), ("rerun", "r")])
def test_every_command_that_executes_a_run_streams(streaming: list, reyn, arguments):
    streaming.pop()
    assert reyn("run", "pair", IN, "--run-id", "r").code == 1
    streaming.append(finish("end"))
    assert '{"control"' in reyn(*arguments, "--stream").out


def test_answer_streams(streaming: list, reyn):
    streaming[:] = [act(question("Sure?")), finish("end")]
    assert reyn("run", "asking", IN, "--run-id", "r").code == 4
    assert '{"control"' in reyn("answer", "r", "yes", "--stream").out


def test_control_characters_in_streamed_text_are_escaped_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys):
    from reyn.cli.progress import TextStream
    from reyn.models import Delta

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    stream = TextStream()
    stream(Delta("r", "1.1", "a\x1b[2Jb\nc"))
    stream(Delta("r", "2.1", "d"))
    stream.end_line()
    assert capsys.readouterr().out == "a\\x1b[2Jb\nc\nd\n"


@pytest.mark.parametrize(("columns", "rows"), [(200, 1), (80, 2), (60, 3), (44, 0)])
def test_the_last_column_of_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, rows: int):
    """A terminal that is too narrow for that gets a block of lines for each row."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    text = "the receipt is readable and within the policy of the house, or a person has approved what is not"
    header, *lines = map(str, table_lines(("RUN", "STATUS", "WAITING FOR"), [("20261119T2058", "waiting", text)]))
    if not rows:
        assert header == "20261119T2058"
        return
    indent = header.index("WAITING FOR")
    assert lines[0].startswith("20261119T2058  waiting  the receipt")
    assert all(line[:indent].isspace() for line in lines[1:])
    assert all(len(line) <= columns for line in lines)
    assert " ".join(line[indent:] for line in lines) == text
    assert len(lines) == rows
