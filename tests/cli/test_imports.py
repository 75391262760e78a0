"""Commands import only what they use: help needs no package of Reyn but this one, reading commands need no kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import get_args

import click
import msgspec
import pytest

from reyn.cli import options
from reyn.cli.app import app
from reyn.config import Limits
from reyn.journal import ENDED, Status
from reyn.journal.listing import ShownStatus
from reyn.runs.archive import ImportLimits
from reyn.runs.usage import GROUPINGS
from tests.cli.support import IN, write_answers
from tests.support import act, finish, go, question, write_skill

_HELP = """
import contextlib, io, json, sys
from reyn.cli.app import run_app

def modules_of(command):
    before = set(sys.modules)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run_app([*command, "--help"]) == 0
    assert out.getvalue().startswith(f"Usage: {' '.join(['reyn', *command])}")
    added = set(sys.modules) - before
    for name in added:
        del sys.modules[name]
    return sorted(added)

with contextlib.redirect_stdout(io.StringIO()):
    run_app(["--help"])
contents = [(command, modules_of(command)) for command in json.load(sys.stdin)]
json.dump(contents, sys.stdout)
"""


def _paths(group: click.Group, *above: str) -> list[tuple[str, ...]]:
    """Return all commands below a group, as the words that call them."""
    found = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        found.append((*above, name))
        if isinstance(command, click.Group):
            found += _paths(command, *above, name)
    return found


_COMMANDS = _paths(app)
_PATHLIB = {"pathlib", "pathlib._local", "pathlib._abc", "glob", "ntpath", "pwd", "grp"}
"""`pathlib`, and what it imports in one version of Python or another."""
_SMALL = {*_PATHLIB, "urllib", "urllib.parse", "ipaddress", "math", "shlex"}
"""Modules of the standard library that import nothing else: paths, and the quotes of a command line."""


@cache
def _imports_of_help() -> dict[tuple[str, ...], list[str]]:
    """Return what the help of each command imports beyond what `reyn --help` imports."""
    done = subprocess.run(
        [sys.executable, "-c", _HELP], input=json.dumps(_COMMANDS), capture_output=True, text=True, check=True
    )
    return {tuple(command): modules for command, modules in json.loads(done.stdout)}


@pytest.mark.parametrize("command", _COMMANDS, ids=" ".join)
def test_the_help_of_a_command_imports_nothing_but_the_command(command: tuple[str, ...]):
    modules = _imports_of_help()[command]
    assert {name for name in modules if not name.startswith("reyn.cli.")} <= _SMALL


_READING = {
    "runs": ("runs",),
    "runs --json": ("runs", "--json"),
    "events": ("events", "r"),
    "usage": ("usage",),
    "show": ("show", "r"),
    "show of a limited run": ("show", "limited"),
}
_NOT_FOR_READING = (
    "reyn.kernel",
    "reyn.ops",
    "reyn.contract",
    "reyn.context",
    "reyn.runtime",
    "reyn.lint",
    "reyn.sandbox",
)
_STACKS = {
    "openai",
    "anthropic",
    "litellm",
    "google",
    "httpx",
    "aiohttp",
    "mcp",
    "starlette",
    "rich",
    "asyncio",
    "pydantic",
}


def _loaded(*arguments: str) -> list[str]:
    """Return the modules that a command line has imported when it ends."""
    code = (
        "import json, sys; from reyn.cli.app import run_app; run_app(sys.argv[1:]); print(json.dumps([*sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return modules


def _of(packages: tuple[str, ...], modules: list[str]) -> list[str]:
    return [name for name in modules if f"{name}.".startswith(tuple(f"{package}." for package in packages))]


@pytest.mark.parametrize("arguments", _READING.values(), ids=_READING)
def test_a_command_that_only_looks_imports_no_kernel_and_no_provider(here: Path, reyn, arguments: tuple[str, ...]):
    assert reyn("run", "pair", IN, "--run-id", "r").code == 0
    write_skill(here, "spin", {"turn": ["back", "end"], "back": ["turn"]})
    write_answers(here, go("back"), go("turn"))
    assert reyn("run", "spin", IN, "--run-id", "limited", "--max-phase-visits", "1").code == 3
    assert _of((*_NOT_FOR_READING, *_STACKS), _loaded(*arguments)) == []


@pytest.mark.parametrize("arguments", [("runs",), ("events", "r")], ids=" ".join)
def test_a_command_that_reads_the_journal_alone_parses_no_configuration(here: Path, reyn, arguments: tuple[str, ...]):
    assert reyn("run", "pair", IN, "--run-id", "r").code == 0
    assert _of(("yaml", "reyn.permissions", "reyn.skills", "reyn.jsonschema"), _loaded(*arguments)) == []


def test_lint_of_a_skill_without_python_imports_no_sandbox(here: Path, reyn):
    assert _of(("reyn.kernel", "reyn.sandbox", *_STACKS), _loaded("lint", "pair")) == []


def test_cancel_imports_no_kernel_and_no_provider(here: Path, reyn):
    write_answers(here, act(question("Sure?")), finish())
    assert reyn("run", "asking", IN, "--run-id", "r").code == 4
    assert _of((*_NOT_FOR_READING, *_STACKS), _loaded("cancel", "r")) == []
    assert reyn("runs", "--json").json[0]["status"] == "cancelled"


def test_help_texts_have_the_values_of_the_packages_that_help_does_not_import():
    assert get_args(Status) == options.STATUSES
    assert {*options.STATUSES, *options.SHOWN_STATUSES} == {*get_args(Status), *get_args(ShownStatus)}
    assert options.ENDED == ENDED
    assert options.GROUPINGS == GROUPINGS
    assert tuple(field.name for field in msgspec.structs.fields(Limits)) == options.LIMITS
    assert ImportLimits().bytes == options.MAX_ARCHIVE_BYTES
