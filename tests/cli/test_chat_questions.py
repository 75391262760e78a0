"""Questions of skills in `reyn chat`: what `reyn chats show` prints of them, Ctrl-C, the status line, long lines."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn import SyncRuntime
from reyn.chat import QuestionAsked, Reply
from reyn.cli.chat.printing import TerminalPrinter, describe
from reyn.cli.chat.terminal import status_text
from reyn.cli.writer import Styled, wrapped
from reyn.journal.kinds import Charge, Question
from tests.chat.support import recorded_replies, reply, run_skill, skills, start_skill
from tests.cli.support import Terminal, write_answers
from tests.support import act, file, finish, question

COLOUR = "preprocessor:\n  - ask_user: {question: Which colour?, suggestions: [red, blue], into: data.colour}\n"


@pytest.fixture
def here(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose conversations are answered by a script."""
    monkeypatch.setenv("REYN_MODEL", "scripted:answers.jsonl")
    return here


@pytest.fixture
def chat(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    """Hold a conversation in a pipe."""

    def call(text: str, *arguments: str):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return reyn("chat", *arguments)

    return call


# -- reyn chats show ----------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [run_skill, start_skill])
def test_chats_show_has_runs_questions_and_answers(here: Path, chat, reyn, start: Callable[[str], Any]):
    skills(here, "poster", poster=COLOUR)
    answers = [start("poster"), reply("Started."), finish("drawn"), reply("Drawn.")]
    if start is run_skill:
        answers = [start("poster"), finish("drawn"), reply("Drawn.")]
    write_answers(here, *answers)
    assert chat("draw a poster\n/answer 2\n", "--run-id", "c").code == 0
    shown = reyn("chats", "show", "c").out
    background = ", in the background" if start is start_skill else ""
    head = f"1> draw a poster\n   ▸ poster (c.1.1.1){background}\n   ? question: Which colour?\n   = blue ("
    assert shown.startswith(head)
    [message, *_] = reyn("chats", "show", "c", "--json").json
    [run], [asked] = message["runs"], message["questions"]
    assert (run["run"], run["skill"], run["background"]) == ("c.1.1.1", "poster", start is start_skill)
    assert (asked["run"], asked["message"], asked["is_answered"], asked["answer"]) == (
        "c.1.1.1", "Which colour?", True, "blue",
    )  # fmt: skip


def test_chats_show_has_the_questions_of_the_agent_and_those_without_an_answer(here: Path, chat, reyn):
    skills(here, "poster", poster=COLOUR)
    (here / "reyn/agents").mkdir(parents=True)
    (here / "reyn/agents/asker.md").write_text(
        "---\ntype: agent\nname: asker\nallowed_ops: [ask_user, run_skill]\n---\nAsk.\n"
    )
    write_answers(here, act(question("Which tone?")), reply("Done."), run_skill("poster"))
    chat("hi\nloud\ndraw a poster\n", "asker", "--run-id", "c")
    shown = reyn("chats", "show", "c").out
    assert "1> hi\n   ? question: Which tone?\n   = loud (" in shown
    run = "   ▸ poster (c.2.1.1)\n   ? question: Which colour?\n   = no answer\n   ▪ waiting: Which colour?\n"
    assert shown.endswith(f"2> draw a poster\n{run}")


def test_chats_show_has_the_first_line_of_an_approval(here: Path, chat, reyn):
    (here / "reyn/agents").mkdir(parents=True)
    (here / "reyn/agents/writer.md").write_text(
        "---\ntype: agent\nname: writer\nallowed_ops: [file]\npermissions: {file.write: [output/**]}\n---\nWrite.\n"
    )
    (here / "reyn.yaml").write_text("permissions: {file.write: ask}\n")
    assert reyn("trust", "--yes").code == 0
    write_answers(here, act(file("write", "output/a.txt", content="a\n")), reply("Written."))
    chat("write it\n/approve 1\n", "writer", "--run-id", "c")
    shown = reyn("chats", "show", "c").out
    assert "   ? approval: Approve `file write`?" in shown
    assert "   = approve" in shown


# -- Ctrl-C -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ctrl_c_twice_leaves_a_conversation_whose_skill_can_be_continued(here: Path, chat, reyn):
    skills(here, "poster", poster=COLOUR)
    write_answers(here, run_skill("poster"), finish("drawn"), reply("Drawn."))
    terminal = Terminal(here, "chat", "--run-id", "c", env={"PROMPT_TOOLKIT_NO_CPR": "1"})
    terminal.wait_for(">")
    terminal.type("draw a poster\r")
    terminal.wait_for("1. poster asks: Which colour?")
    terminal.type("\x03")
    terminal.wait_for("poster goes on. Ctrl-C again leaves, and it can be continued; /stop cancels it")
    terminal.type("\x03")
    assert terminal.end().code == 0
    with SyncRuntime.open(here) as rt:
        assert [(row.run_id, row.status) for row in rt.runs.all() if row.status == "cancelled"] == []
    assert chat("2\n", "--run-id", "c").out == "Drawn.\n"
    with SyncRuntime.open(here) as rt:
        assert recorded_replies(rt, "c.1.1.1") == ["blue"]


# -- the status line ----------------------------------------------------------------------------------


class Listed(list[Any]):
    is_executing = staticmethod(lambda _: True)
    in_progress = property(lambda self: [*range(9)])


@given(
    agent=st.text("aé日", min_size=1, max_size=60),
    skill=st.text("ab日 ", max_size=90),
    running=st.integers(0, 5),
    questions=st.integers(0, 3),
    tokens=st.integers(0, 10**12),
    columns=st.integers(72, 120),
)
def test_the_status_line_has_a_clock_and_fits(
    agent: str, skill: str, running: int, questions: int, tokens: int, columns: int
):
    from prompt_toolkit.utils import get_cwidth

    row = SimpleNamespace(charge=Charge(calls=1, cost=10**9, currency="USD"))
    runtime: Any = SimpleNamespace(
        runs=SimpleNamespace(is_recorded=lambda _: True),
        services=SimpleNamespace(journal=SimpleNamespace(find=lambda _: row)),
    )
    conversation: Any = SimpleNamespace(
        agent=SimpleNamespace(name=agent),
        usage=SimpleNamespace(total=tokens),
        run_id="c",
        progress=[SimpleNamespace(skill=skill, phase="work")] * running,
        runs=Listed(),
        questions=[SimpleNamespace(run="r")] * questions,
        is_busy=True,
        received=12_345,
    )
    text = status_text(conversation, runtime, columns)
    assert get_cwidth(text) < columns
    assert text[2] == ":"
    assert text.endswith("replying (12,345 characters); Ctrl-C stops")
    assert ("open" in text) == bool(questions)


@pytest.mark.parametrize(
    ("schema", "replies"),
    [({"enum": ["yes", "no"]}, ["yes", "no"]), ({"type": "boolean"}, ["true", "false"]), ({"type": "string"}, [])],
)
def test_a_question_shows_the_replies_that_a_number_selects(schema: dict[str, Any], replies: list[str]):
    first, *others = describe(QuestionAsked("r", Question("1", "question", "Send it?", schema), 1, "letter"))
    assert first == "  ? question: Send it?"
    assert others == [f"      {number}. {reply}" for number, reply in enumerate(replies, start=1)]


# -- long lines ---------------------------------------------------------------------------------------

WORDS = st.lists(st.text("abcé日", min_size=1, max_size=12), min_size=1, max_size=60)


@given(words=WORDS, margin=st.sampled_from(["", "  ", "      "]), columns=st.integers(40, 100))
def test_long_lines_break_between_words_and_keep_their_margin(words: list[str], margin: str, columns: int):
    from prompt_toolkit.utils import get_cwidth

    text = margin + " ".join(words)
    half = len(text) // 2
    rows = wrapped([Styled(text[:half], "1"), Styled(text[half:])], columns)
    lines = ["".join(part.text for part in row) for row in rows]
    below = f"{margin}… " if margin else ""
    assert [
        word for row, line in enumerate(lines) for word in line.removeprefix(below if row else margin).split()
    ] == words
    assert all(line.startswith(below) for line in lines[1:])
    assert all(get_cwidth(line) <= columns for line in lines)


def test_a_word_that_is_wider_than_the_terminal_stays_whole():
    [row] = wrapped([Styled("x" * 100)], 40)
    assert "".join(part.text for part in row) == "x" * 100


@pytest.mark.parametrize("columns", [30, 40, 80])
def test_the_layout_of_a_reply_is_not_broken_again(columns: int, monkeypatch: pytest.MonkeyPatch):
    from prompt_toolkit.utils import get_cwidth

    table = "| a | b |\n|---|---|\n| 1 | " + "cell " * 30 + "|\n"
    text = f"{'word ' * 60}\n\n{table}\n```\n{'code ' * 40}\n```\n\n- {'item ' * 40}\n\n> {'quote ' * 30}\n"
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", screen)
    TerminalPrinter().show(Reply(text))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert "…" not in shown
    assert all(get_cwidth(line.rstrip(" ")) <= columns for line in shown.split("\n"))
