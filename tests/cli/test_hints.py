"""Hints: the library names no command, the CLI adds commands that exist."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

import reyn
from reyn.cli.app import COMMANDS as COMMAND_NAMES
from reyn.cli.app import app
from reyn.cli.hints import EXAMPLES, NEXT_COMMANDS, full_hint, with_commands
from reyn.documents import nearest
from reyn.errors import FAILURES_OF_SKILLS, FINDINGS, ReynError, RunNotFound, SkillNotFound, all_errors, hint_of
from reyn.skills.allowed_ops import unknown_op_fix

PACKAGE = Path(reyn.__file__).parent
LIBRARY = [path for path in PACKAGE.rglob("*.py") if "cli" not in path.relative_to(PACKAGE).parts]


def texts(path: Path) -> list[str]:
    """Return the string constants of a module that are not docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
    return [node.value for node in constants if isinstance(node.value, str)]


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_message_of_the_library_names_a_command(path: Path):
    found = [text for text in texts(path) for name in re.findall(r"`reyn ([a-z]+)", text) if name in COMMAND_NAMES]
    assert found == []


def test_every_error_has_a_hint():
    assert [cls.code for cls in all_errors() if cls is not ReynError and not full_hint(cls.code, cls.hint)] == []


@pytest.mark.parametrize("code", sorted(NEXT_COMMANDS))
def test_the_commands_of_a_hint_exist(code: str):
    assert code in {cls.code for cls in all_errors()} | FINDINGS.keys()
    names = re.findall(r"`reyn ([a-z]+)", NEXT_COMMANDS[code])
    assert set(names) <= set(COMMAND_NAMES)


def test_commands_are_added_to_the_general_hint_of_a_code():
    assert full_hint("RYN401", RunNotFound.hint) == f"{RunNotFound.hint} `reyn runs` lists the runs."
    longer = f"The reply is stored. {SkillNotFound.hint}"
    assert full_hint("RYN101", longer) == f"{longer} `reyn skills` lists the skills."


def test_commands_contain_the_secret_or_the_weights_that_the_hint_names():
    assert (
        full_hint("RYN704", "Store the secret `TOKEN`.")
        == "Store the secret `TOKEN`. `reyn secret set TOKEN` stores it."
    )
    assert full_hint("RYN508", "Add `key: secret://TOKEN`.").endswith("`reyn secret set TOKEN` stores it.")
    assert full_hint("RYN511", "Pull the weights `smollm2`.").endswith("`reyn models pull smollm2` downloads them.")


def test_a_specific_hint_stays_as_it_is():
    assert full_hint("RYN101", "Did you mean `hello`?") == "Did you mean `hello`?"
    assert full_hint("RYN511", "pip install 'reyn[openai]'") == "pip install 'reyn[openai]'"
    assert full_hint("RYN410", "Answer the question first.") == "Answer the question first."


@pytest.mark.parametrize("code", sorted(EXAMPLES))
def test_the_examples_of_a_code_are_valid_command_lines(code: str):
    assert code in {cls.code for cls in all_errors()} | FINDINGS.keys()
    for line in EXAMPLES[code]:
        program, *arguments = shlex.split(line)
        if program == "reyn":
            parse(app, arguments)
        else:
            assert line.startswith("pip install 'reyn["), line


def parse(command: click.Command, arguments: list[str]) -> None:
    """Parse a command line without running it; `--help` ends the parsing, and counts as valid."""
    try:
        context = command.make_context(command.name, list(arguments), obj={})
    except click.exceptions.Exit:
        return
    rest = [*context._protected_args, *context.args] if isinstance(command, click.Group) else []
    if isinstance(command, click.Group) and rest:
        _, child, rest = command.resolve_command(context, rest)
        assert child is not None
        parse(child, rest)


def test_every_finding_says_how_to_fix_it():
    assert [code for code, kind in FINDINGS.items() if not kind.fix or kind.fix == kind.meaning] == []


RESUMED = [code for code, text in NEXT_COMMANDS.items() if re.search("`reyn resume RUN --retry(?: --upgrade)?`", text)]


@pytest.mark.parametrize("code", RESUMED)
def test_the_fix_of_a_result_names_the_command_that_resumes_it(code: str):
    own = "reyn resume r --allow-unsafe-python --retry"
    shown = full_hint(code, hint_of(code), own)
    assert f"`{own}`" in shown
    assert "resume RUN" not in shown


@pytest.mark.parametrize("cls", [cls for cls in all_errors() if cls.code in NEXT_COMMANDS or "retry" in cls.hint])
def test_a_hint_names_the_current_version_if_the_next_command_uses_it(cls: type[ReynError]):
    """And the next command uses it for each failure whose cause is in the skill, of which a run has its own copy."""
    is_in_skill = cls.code in FAILURES_OF_SKILLS
    assert ("current version" in cls.hint and "retry" in cls.hint) == is_in_skill
    assert ("--retry --upgrade" in NEXT_COMMANDS.get(cls.code, "")) == is_in_skill
    assert any("--upgrade" in line for line in EXAMPLES.get(cls.code, ())) == is_in_skill


@pytest.mark.parametrize("kind", ["mcp:git/status", "mcp:git/*"])
@pytest.mark.parametrize("known", ["", "mcp:git/statu"])
def test_an_unknown_tool_of_an_mcp_server_is_accepted_with_a_command(kind: str, known: str):
    fix = with_commands(unknown_op_fix(kind, [known]))
    assert "ccept the tools of the MCP server `git` with `reyn mcp test git`" in fix
    assert fix.startswith(f"did you mean `{known}`?" if nearest(kind, [known]) else "accept")


def test_lint_and_ops_name_the_command_that_accepts_tools(here: Path, reyn):
    [phase] = here.glob("reyn/*/pair/phases/first.md")
    phase.write_text(re.sub("allowed_ops: .*", "allowed_ops: ['mcp:git/status']", phase.read_text()))
    command = "with `reyn mcp test git`"
    assert command in reyn("lint", "pair").out
    assert command in reyn("lint", "pair", "--json").json[0]["fix"]
    assert command in reyn("run", "pair", "{}").err
    assert command in reyn("ops", "mcp:git/status").err
