"""Command lines for every command of Reyn, as a user types them who has just cloned a project.

No argument is the path of a link: a path that the user names is the user's own word, and a program follows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import click

from reyn.cli.app import app

IN = '{"text": "in"}'


class Line(NamedTuple):
    """A command line, and what is typed into it."""

    words: tuple[str, ...]
    text: str = ""


def commands() -> list[str]:
    """Return the names of all commands that do something, groups included if they do."""

    def walk(command: click.Command, name: str, context: click.Context) -> Iterator[str]:
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert found is not None
                yield from walk(found, f"{name} {inner}".strip(), click.Context(found, info_name=inner, parent=context))
        if name and (not isinstance(command, click.Group) or command.invoke_without_command):
            yield name

    return list(walk(app, "", click.Context(app)))


def lines() -> list[Line]:
    """Return every command line, in the order in which they are typed."""
    return [_line(name, case) for name, cases in ARGUMENTS.items() for case in cases]


def first_lines() -> list[Line]:
    """Return one command line for each command, and some for those that do most."""
    return [_line(name, case) for name, cases in ARGUMENTS.items() for case in cases[: 4 if name == "run" else 1]]


def _line(name: str, case: str | tuple[str, str]) -> Line:
    words, text = (case, "") if isinstance(case, str) else case
    return Line((*name.split(), *(IN if word == "IN" else word for word in words.split())), text)


ARGUMENTS: dict[str, tuple[str | tuple[str, str], ...]] = {
    "serve": ("--help",),  # it does not end
    "token new": ("t --scope view",),
    "token list": ("",),
    "token revoke": ("t",),
    "submit": ("quiet IN --run-id submitted",),
    "queue": ("",),
    "worker": ("--help",),  # it does not end
    "workers": ("",),
    "journal copy": (".reyn copied",),
    "watch": ("submitted --help",),
    # Runs of the user's own come first; what is deleted comes last.
    "run": (
        "s IN --run-id own --model scripted:answers.jsonl --no-input",
        "quiet IN --run-id new --model scripted:quiet.jsonl",
        "asks IN --run-id q2 --model scripted:ask.jsonl --no-input",
        "quiet IN --run-id locked --model scripted:quiet.jsonl",
        "s IN",
        "quiet IN",
        "quiet IN --model scripted:stolen.jsonl",
        "quiet IN --model f",
        "agent:helper hello",
        "agent:asking hello --model scripted:script.jsonl",
        "steps IN --model scripted:quiet.jsonl",
        "link-home IN --model scripted:quiet.jsonl",
    ),
    "chat": (
        ("", "hello\n"),
        ("helper", "hello\n"),
        ("asking --run-id c2 --model scripted:script.jsonl", "hello\n/help\n/agents\n/skills\n/memory\n/tools\n"),
        ("--continue", "hello\n"),
        ("outside", "hello\n"),
        ("file", "hello\n"),
    ),
    "init": ("", "made"),
    "new function": ("greet",),
    "new skill": ("mine", "made --local"),
    "skills": ("", "s", "link-home", "part-skill-md", "huge --json"),
    "ops": ("", "file", "mcp_s_t"),
    "lint": ("", "--fix", "s", "part-phases laughs nested"),
    "test": ("", "s"),
    "import-skill": (
        "agentskill",
        "hugeskill",
        ".agents/skills/agentskill --name link-new",
    ),
    "export-skill": ("s --to exports", "part-artifacts --to output/made"),
    "graph": ("s", "part-phases-a-md --format mermaid"),
    "frame": ("s IN", "k 3", "own 3", "s IN --model n --tokens", "asking --model scripted:stolen.jsonl"),
    "context": ("k", "own"),
    "agent list": ("", "--json"),
    "agent new": ("new", "fresh"),
    "agent show": ("helper", "huge", "link-key", "link-environ", "link-zero"),
    "memory list": ("", "--agent helper"),
    "memory show": ("tea", "link-key", "helper/a", "../../../home/notes"),
    "memory search": ("CANARY",),
    "memory edit": ("tea", "link-new", "link-key"),
    "runs": ("", "--json"),
    "show": ("k", "own", "c --json"),
    "usage": ("", "--by model"),
    "events": ("k", "own --json"),
    "answer": ("q it", "q2 --show", "q2 it"),
    "resume": ("q --model scripted:quiet.jsonl", "own --model scripted:answers.jsonl", "--all", "k --retry"),
    "replay": ("k", "own", "new", "c"),
    "fork": (
        "k --run-id f1",
        "own --model scripted:answers.jsonl --no-input",
        "new --at 3 --model scripted:quiet.jsonl",
    ),
    "rerun": ("k", "own --model scripted:quiet.jsonl --no-input"),
    "diff": ("k own", "new own"),
    "verify": ("k", "own", "new"),
    "export": ("new exported.jsonl", "k exported.jsonl", "new -"),
    "import": ("archive.reyn", "huge.jsonl"),
    "index write": ("docs .", "docs reyn --replace"),
    "index list": ("",),
    "index search": ("docs CANARY",),
    "index drop": ("docs",),
    "env make": ("planted",),
    "env lock": ("planted",),
    "env list": ("", "--json"),
    "env show": ("planted",),
    "permissions explain": ("s", "link-home", "agent:helper"),
    "permissions list": ("",),
    "permissions revoke": ("--all",),
    "trust": ("", "--list", "links/home", "--json"),
    "secret list": ("",),
    "secret set": ("PLANTED --from-env OPENAI_API_KEY",),
    "secret allow": ("OPENAI_API_KEY https://example.com",),
    "secret revoke": ("OPENAI_API_KEY https://example.com",),
    "secret rm": ("PLANTED",),
    "models": ("", "--json"),
    "models pull": ("m", "f", "./hostile.gguf"),
    "mcp add": ("notes -- python server.py",),
    "mcp list": ("",),
    "mcp test": ("s", "t", "u", "local --accept"),
    "config": ("", "--json"),
    "config explain": ("model", "mcp.servers"),
    "doctor": ("",),
    "explain": ("RYN001",),
    "completion": ("bash",),
    "chats": ("",),
    "chats list": ("",),
    "chats search": ("hello",),
    "chats show": ("c", "c2"),
    "chats rename": ("c2 title", "c title"),
    "agent rm": ("helper", "link-key", "huge", "link-home"),
    "memory rm": ("tea", "link-key"),
    "cancel": ("q", "own"),
    "undo": ("k", "own", "new --dry-run"),
    "chats delete": ("c c2 --yes",),
    "prune": ("--older-than 0m --dry-run", "--older-than 0m"),
}
