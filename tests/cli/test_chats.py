"""`reyn chats`: list, search, show, rename and delete conversations."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from reyn.journal.kinds import AGENT_PREFIX
from tests.chat.support import ask_agent, reply, skills
from tests.cli.support import Terminal, write_answers
from tests.support import act, finish, go

LATER = {"kind": "start_skill", "skill": "report", "input": {"text": "x"}}


@pytest.fixture
def chat(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    """Hold a conversation in a pipe."""

    def call(text: str, *arguments: str):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REYN_MODEL", "scripted:answers.jsonl")
            return reyn("chat", *arguments)

    return call


@pytest.fixture
def tea(here: Path, chat, reyn) -> str:
    """A conversation of two messages."""
    write_answers(here, reply("Tea is fine."), reply("Green tea, then.\nOr black."))
    chat("What do I drink?\nAnything else?\n", "--run-id", "tea")
    return "tea"


@pytest.fixture
def busy(here: Path, chat, reyn) -> str:
    """A conversation that started a run in the background, and received its end."""
    skills(here, "report")
    write_answers(here, act(LATER), reply("It has begun."), finish("done"), reply("It is done."))
    chat("write a report\n", "--run-id", "busy")
    reyn("resume", "--all")
    return "busy"


def listed(reyn) -> list[str]:
    return [row["run_id"] for row in reyn("chats", "--json").json]


@pytest.mark.slow
def test_conversations_are_listed_latest_first(here: Path, tea: str, chat, reyn):
    write_answers(here, reply("Hello."))
    chat("hi\n", "--run-id", "second")
    assert listed(reyn) == ["second", "tea"]
    assert reyn("chats", "list", "--json").json == reyn("chats", "--json").json
    assert listed(reyn)[:1] == [row["run_id"] for row in reyn("chats", "list", "--limit", "1", "--json").json]
    first = reyn("chats", "--json").json[1]
    assert first | {"updated": 0} == {
        "run_id": "tea",
        "agent": "default",
        "status": "waiting",
        "updated": 0,
        "messages": 2,
        "title": "",
        "first_message": "What do I drink?",
        "first_message_chars": 16,
        "fork_of": "",
    }
    assert "What do I drink?" in reyn("chats").out


def test_a_project_without_conversations_says_how_to_start_one(here: Path, reyn):
    assert reyn("chats").out == "no conversations; start one with `reyn chat`\n"
    assert reyn("chats", "--json").json == []


@pytest.mark.slow
@pytest.mark.parametrize("words", [["GREEN"], ["drink", "black"], ["tea"]])
def test_conversations_are_searched_by_all_words(tea: str, reyn, words: list[str]):
    assert "tea  What do I drink?" in reyn("chats", "search", *words).out


def test_a_search_shows_the_latest_message_that_matches(tea: str, reyn):
    [found] = reyn("chats", "search", "tea", "--json").json
    assert found["match"] == {"number": 2, "role": "agent", "excerpt": "Green tea, then. Or black."}
    assert "    2: Green tea, then. Or black." in reyn("chats", "search", "tea").out
    assert reyn("chats", "search", "cocoa").out == "no conversation contains cocoa\n"
    assert reyn("chats", "search", "cocoa", "--json").json == []


def test_a_title_is_an_event_of_the_conversation(tea: str, reyn):
    assert reyn("chats", "rename", "tea", "  What to buy ").out == "renamed tea\n"
    assert reyn("chats", "--json").json[0]["title"] == "What to buy"
    assert "What to buy" in reyn("chats").out
    assert reyn("chats", "search", "BUY", "--json").json[0]["match"] is None
    assert json.loads(reyn("events", "tea", "--json").out.splitlines()[-1])["kind"] == "conversation_renamed"
    assert reyn("replay", "tea").code == reyn("verify", "tea").code == 0
    assert reyn("chats", "rename", "tea", "").out == "removed the title of tea\n"
    assert reyn("chats", "--json").json[0]["title"] == ""


def test_a_renamed_conversation_goes_on(here: Path, tea: str, chat, reyn):
    reyn("chats", "rename", "tea", "Drinks")
    write_answers(here, reply("One."), reply("Two."), reply("Water."))
    assert chat("and today?\n", "--run-id", "tea").out == "Water.\n"
    assert reyn("replay", "tea").code == 0
    assert reyn("chats", "--json").json[0]["title"] == "Drinks"


def test_a_conversation_that_has_ended_can_be_renamed(here: Path, chat, reyn):
    write_answers(here, reply("Hello."))
    chat("hi\n", "--run-id", "c")
    assert reyn("cancel", "c").code == 0
    assert reyn("chats", "rename", "c", "Short").code == 0
    [found] = reyn("chats", "--json").json
    assert (found["title"], found["status"]) == ("Short", "cancelled")
    assert reyn("replay", "c").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("title", ["x" * 201, "two\nlines", "\x1b[31mred"])
def test_a_title_that_cannot_be_printed_in_a_line_is_refused(tea: str, reyn, title: str):
    output = reyn("chats", "rename", "tea", title)
    assert output.code == 2
    assert "the title" in output.err
    assert "\x1b" not in output.err


@pytest.mark.parametrize("command", [["show", "p"], ["rename", "p", "Title"], ["delete", "p", "--yes"]])
def test_a_run_that_is_no_conversation_is_refused(here: Path, reyn, command: list[str]):
    write_answers(here, go("second"), finish())
    reyn("run", "pair", '{"text": "in"}', "--run-id", "p")
    output = reyn("chats", *command)
    assert output.code == 2
    assert "RYN426" in output.err
    assert reyn("show", "p").code == 0


def test_deleting_needs_a_confirmation(tea: str, reyn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    output = reyn("chats", "delete", "tea")
    assert output.code == 2
    assert "--yes" in output.err
    assert reyn("chats", "delete", "tea", "--dry-run").out == "would delete tea\n"
    assert listed(reyn) == ["tea"]


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "left"), [("n", ["tea"]), ("y", [])])
def test_a_terminal_asks_before_it_deletes(here: Path, tea: str, reyn, answer: str, left: list[str]):
    terminal = Terminal(here, "chats", "delete", "tea")
    terminal.wait_for("will delete tea")
    terminal.wait_for("Delete 1 run? [y/N]")
    terminal.type(f"{answer}\n")
    terminal.end()
    assert listed(reyn) == left


def test_a_conversation_is_deleted_with_its_background_runs(busy: str, here: Path, reyn):
    rows = reyn("runs", "--json").json
    assert sorted(row["skill"] for row in rows) == [f"{AGENT_PREFIX}default", "report"]
    report = reyn("chats", "delete", "busy", "--yes", "--json").json
    assert report["runs"] == sorted(row["run_id"] for row in rows)
    assert reyn("runs", "--json").json == []
    assert reyn("chats", "show", "busy").code == 2


def test_a_conversation_that_a_fork_continues_stays(tea: str, chat, reyn):
    chat("other\n", "--fork", "tea@2")
    output = reyn("chats", "delete", "tea", "--yes")
    assert output.code == 2
    fork = next(run for run in listed(reyn) if run != "tea")
    assert f"RYN420: run `tea` is needed by run `{fork}`" in output.err
    assert len(listed(reyn)) == 2
    assert reyn("chats", "delete", *listed(reyn), "--yes").code == 0
    assert listed(reyn) == []


def test_a_conversation_whose_background_run_was_forked_stays(busy: str, here: Path, reyn):
    write_answers(here, act(LATER), reply("a"), finish("done"), reply("b"))
    [run] = [row["run_id"] for row in reyn("runs", "--json").json if row["skill"] == "report"]
    assert reyn("fork", run, "--at", "1").code == 0
    assert reyn("chats", "delete", "busy", "--yes").code == 2
    assert listed(reyn) == ["busy"]


def test_the_conversation_with_another_agent_is_not_deleted_alone(here: Path, chat, reyn):
    reyn("agent", "new", "designer")
    (here / "reyn/agents/editor.md").write_text("---\ntype: agent\nname: editor\nagents: [designer]\n---\nEdit.\n")
    write_answers(here, ask_agent("designer", "Which colour?"), reply("Green."), reply("The designer says green."))
    chat("Which colour?\n", "editor", "--run-id", "shop")
    refused = reyn("chats", "delete", "shop.1.1.1", "--yes")
    assert (refused.code, "is a part of run `shop`" in refused.err) == (2, True)
    assert reyn("verify", "shop").code == 0
    assert reyn("chats", "delete", "shop", "--yes").out == "deleted shop\ndeleted shop.1.1.1\n"


def test_a_long_first_message_is_truncated_in_json(here: Path, chat, reyn):
    write_answers(here, reply("Long."))
    chat(f"{'x' * 5000}\n", "--run-id", "long")
    [found] = reyn("chats", "--json").json
    assert (found["first_message"], found["first_message_chars"]) == ("x" * 500, 5000)
