"""`reyn chat`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from reyn.cli.groups import command
from reyn.cli.options import json_option, model_option
from reyn.cli.output import reyn_command
from reyn.cli.project import model_name, open_project, print_assumed_project
from reyn.cli.writer import is_plain, is_terminal, out, wants_json
from reyn.errors import ConversationInvalid, ModelNotInstalled, UsageError

if TYPE_CHECKING:
    from reyn.cli.chat.printing import Printer
    from reyn.runtime import SyncRuntime

_MAX_DIGITS = 18
"""The digits of the number of a message. `int` refuses texts of thousands of digits."""


@command(epilog="Example: reyn chat --continue")
@click.argument("agent", required=False)
@click.option("--continue", "continues", is_flag=True, help="Continue the latest conversation with AGENT.")
@click.option(
    "--run-id", metavar="ID", help="Id of the conversation. If it exists, continue it. With --fork, the id of the copy."
)
@click.option("--fork", metavar="RUN@MESSAGE", help="Copy a conversation and replace message MESSAGE.")
@model_option
@json_option
def chat_command(agent: str, continues: bool, run_id: str | None, fork: str | None, model: str | None) -> int:
    """Talk with AGENT, which can run the skills of the project.

    On a terminal, type a message and press Enter; Alt-Enter begins a new line. Ctrl-C stops the reply; Ctrl-D, or
    Ctrl-C again, leaves the conversation, which can be continued later with everything that runs. `/help` lists the
    commands. If standard input or output is not a terminal, every line of the input is a message, and only replies are
    printed to standard output. The exit code is 1 if a message got no usable answer.

    A conversation is a run: `reyn show`, `reyn frame`, `reyn verify`, `reyn replay`, `reyn fork` and `reyn export` work
    with its id. AGENT is the name of a file in reyn/agents; by default
    the agent of the conversation that is continued, or `default`, which needs no file.

    If the project has no model, or a script of answers as its model, the embedded model answers a new conversation,
    provided that it is installed. A script answers if --model, the variable REYN_MODEL or the file of the agent names
    it.

    --json prints one JSON object a line: messages, pieces of replies, ops, runs, questions, replies.
    """
    if continues and (run_id is not None or fork is not None):
        raise click.UsageError("--continue excludes --run-id and --fork")
    print_assumed_project()
    if sys.stdin is None:  # the caller closed it
        raise UsageError("standard input is closed", hint="Pipe messages to it: `echo hello | reyn chat`.")
    at_terminal = not wants_json() and sys.stdin.isatty() and is_terminal()
    if at_terminal:
        from reyn.cli.project import ask_for_trust

        ask_for_trust()
        _check_installed()
    from reyn.chat import open_conversation
    from reyn.cli.chat.session import talk, talk_in_lines
    from reyn.cli.people import user_name

    runtime = open_project(model=model_name(model))
    name = run_id
    if continues:
        name = _latest(runtime, agent)
    elif fork is not None:
        name = _forked(runtime, fork, run_id, agent)
    answering = model_name(model) or _embedded(runtime, agent, name)
    conversation = open_conversation(runtime.async_form, agent, run_id=name, by=user_name(), model=answering)
    hold = talk_in_lines
    if at_terminal:
        from reyn.cli.chat.terminal import talk_at_terminal as hold
    code = runtime.wait(talk(conversation, runtime.async_form, _printer(at_terminal=at_terminal), hold))
    if at_terminal and runtime.runs.is_recorded(conversation.run_id):
        out.note(f"continue with: reyn chat --run-id {conversation.run_id}")
    return code


def _printer(*, at_terminal: bool) -> Printer:
    from reyn.cli.chat.printing import JsonPrinter, PlainPrinter, TerminalPrinter

    if wants_json():
        return JsonPrinter()
    if not at_terminal or is_plain():
        return PlainPrinter()
    return TerminalPrinter()


def _check_installed() -> None:
    try:
        import prompt_toolkit  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise UsageError(
            "`reyn chat` at a terminal needs the package `prompt_toolkit`",
            hint="Run `pip install 'reyn[chat]'`, or pipe messages: `echo hello | reyn chat`.",
        ) from error


def _embedded(runtime: SyncRuntime, agent: str | None, run_id: str | None) -> str | None:
    """Return the embedded model, for a new conversation in a project without a model or with a script as its model.

    A script of answers is for runs whose prompts are known. In a conversation it would fail at the first message.

    Raises:
        ModelNotInstalled: The project's model is a script, and the embedded model is not installed.
        ModelUntrusted: The project's model needs trust.
    """
    from reyn.models.weights import DEFAULT_WEIGHTS
    from reyn.skills.agents import DEFAULT

    if "REYN_MODEL" in os.environ or (run_id is not None and runtime.runs.is_recorded(run_id)):
        return None
    chosen = runtime.project.agents.load(agent or DEFAULT)
    if chosen.model or chosen.model_class:
        return None
    script = runtime.project.default_model()
    if script and not script.startswith("scripted:"):
        return None
    embedded = [one for one in runtime.project.models() if one.model in ("local", f"local:{DEFAULT_WEIGHTS}")]
    reason = f"the project's model is a script (`{script}`), which cannot converse" if script else ""
    if any(one.is_available for one in embedded):
        reason = reason or "no model is configured"
        out.note(f"{reason}; the embedded model answers, which is small and often wrong")
        out.note(f"choose another with --model NAME; {reyn_command('models')} lists them")
        return "local"
    if not script:
        return None  # the first message fails with an error that says so
    raise ModelNotInstalled(
        f"{reason}, and the embedded model is not available: {embedded[0].why}",
        hint="Run `reyn models pull smollm2`, pass `--model NAME`, or set `model:` in reyn.yaml. "
        "To converse with the script, pass it with `--model`.",
    )


def _latest(runtime: SyncRuntime, agent: str | None) -> str:
    from reyn.chat.services.auto_resume_handler import open_conversations
    from reyn.journal.kinds import AGENT_PREFIX
    from reyn.skills.agents import DEFAULT

    matching = [
        row for row in open_conversations(runtime.async_form) if row.skill == f"{AGENT_PREFIX}{agent or DEFAULT}"
    ]
    if not matching:
        raise ConversationInvalid(
            f"there is no conversation with `{agent or DEFAULT}` to continue", hint="Start one without `--continue`."
        )
    return matching[0].run_id


def _forked(runtime: SyncRuntime, fork: str, run_id: str | None, agent: str | None) -> str:
    """Fork a conversation before a message; return the id of the fork."""
    from reyn.chat.opening import recorded_agent
    from reyn.chat.services.snapshot_journal import find_conversation

    run, _, number = fork.rpartition("@")
    if not run or not number.isascii() or not number.isdigit() or len(number) > _MAX_DIGITS:
        raise click.UsageError(f"`{fork}` is not of the form RUN@MESSAGE, for example 20261116T120000-abc@3")
    conversation = find_conversation(runtime.async_form.runs, run, agent)
    recorded_agent(runtime.project.agents, conversation.row)
    result: Any = runtime.fork(conversation.row.run_id, at=conversation.fork_point(int(number)), run_id=run_id)
    return str(result.run_id)
