"""Completion at the prompt of `reyn chat`."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from reyn import SyncRuntime
from reyn.cli.chat.commands import CHAT_COMMANDS
from reyn.cli.chat.terminal import ChatCompleter
from tests.cli.test_agents import write_agent

POET = "---\ntype: agent\nname: poet\nskills: [pair, 'a*']\nagents: [p*]\n---\nHello.\n"


@pytest.fixture
def complete(here: Path):
    """Return the completions of a text at a prompt of an agent."""
    write_agent(here, "poet", POET)
    for name in ("painter", "editor"):
        write_agent(here, name, POET.replace("poet", name))

    def call(text: str, agent: str = "poet") -> list[str]:
        with SyncRuntime.open(here) as runtime:
            completer = ChatCompleter(runtime.async_form, CHAT_COMMANDS, agent)
            return [found.text for found in completer.get_completions(Document(text), CompleteEvent())]

    return call


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/ag", ["/agents"]),
        ("/skills ", ["above", "asking", "pair"]),
        ("/agents ", ["painter"]),
        ("/agents e", []),
        ("run a", ["above", "asking"]),
        ("ask pa", ["pair", "painter"]),
        ("run summ", []),
        ("", []),
        ("read reyn/pro", ["reyn/project/"]),
    ],
)
def test_only_what_the_agent_may_use_is_completed(complete, text: str, found: list[str]):
    assert complete(text) == found


def test_the_default_agent_may_run_all_skills_and_ask_no_agent(complete):
    assert complete("summ", "default") == ["summarize"]
    assert complete("/agents ", "default") == []


def test_an_agent_whose_file_is_being_edited_completes_no_names(here: Path, complete):
    write_agent(here, "poet", "---\ntype: agent\nname: [\n---\n")
    assert complete("run pa") == []
    assert complete("/mem") == ["/memory"]
