"""The `reyn` command: global options, the list of commands, and the report of every error.

Each command is imported only when it is called, so `reyn --help` stays fast.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from reyn._version import __version__
from reyn.cli.groups import CommandGroup
from reyn.cli.hints import full_hint, hint_without_project, how_to_explain, with_commands
from reyn.cli.interrupts import EXIT_INTERRUPTED
from reyn.cli.output import command_line
from reyn.cli.writer import Line, Printed, guard_streams, out, styled
from reyn.errors import InternalError, ReynError, UsageError

COMMANDS = {
    "init": "Create a project with one skill that runs.",
    "new": "Create a skill from a template.",
    "skills": "List skills, or describe one.",
    "ops": "List the ops that skills can use, or document one.",
    "lint": "Check skills for errors.",
    "test": "Run the cases of skills with their scripted answers.",
    "import-skill": "Import an Agent Skill, a folder with a SKILL.md.",
    "export-skill": "Write a skill as an Agent Skill.",
    "graph": "Draw the graph of a skill.",
    "frame": "Show the exact prompt of a skill or of a run.",
    "context": "Show where the tokens of a run's prompts went.",
    "chat": "Talk with an agent that can run skills.",
    "chats": "List, search, show, rename and delete conversations.",
    "agent": "Create, list, show and remove agents.",
    "memory": "List, show, edit, remove and search what agents remember.",
    "index": "Write, list, search and drop search indexes of documents.",
    "env": "Make, list and show environments with packages for skills.",
    "run": "Start a run of a skill.",
    "runs": "List runs.",
    "show": "Show what a run did, step by step.",
    "watch": "Follow a run that any process executes.",
    "usage": "Show what model calls used and cost.",
    "events": "Print the events of a run.",
    "resume": "Continue a run that was interrupted, stopped or failed.",
    "answer": "Reply to a question of a run and resume it.",
    "submit": "Start a run that workers execute, or hand one over to them.",
    "worker": "Execute submitted runs.",
    "workers": "List workers.",
    "queue": "List submitted runs that no worker executes.",
    "cancel": "Cancel a run.",
    "replay": "Re-execute a run from its journal and compare every event.",
    "fork": "Start a new run from an event of a run.",
    "rerun": "Start a run again with the same input.",
    "diff": "Show where two runs diverge, and why.",
    "verify": "Check the journal of a run for damage.",
    "undo": "Restore the files that a run changed.",
    "prune": "Delete old runs.",
    "export": "Write a run to a file.",
    "import": "Import exported runs.",
    "journal": "Copy a project from one journal to another.",
    "permissions": "Explain what a skill may do; list and revoke standing approvals.",
    "trust": "Review the settings of a project that grant access, and trust it.",
    "serve": "Serve web pages and the HTTP API of the project.",
    "token": "Create, list and revoke access tokens of the HTTP server.",
    "secret": "Store, list and remove secrets.",
    "models": "List models, or download one.",
    "mcp": "Add, list and test MCP servers.",
    "config": "Show every setting with its origin.",
    "doctor": "Check the installation and list runs that have not ended.",
    "explain": "Explain an error code.",
    "completion": "Print a shell completion script.",
}
_MODULES = {
    "access": ("permissions", "trust"),
    "agents": ("agent", "memory"),
    "authoring": ("init", "new", "skills", "ops", "graph", "frame"),
    "checking": ("lint", "test", "import-skill", "export-skill"),
    "execution": ("run", "resume", "answer", "fork", "rerun", "cancel"),
    "recorded": ("events", "replay", "diff", "verify", "undo", "prune", "export", "import"),
    "workers": ("submit", "worker", "workers", "queue"),
    "serve": ("serve", "token"),
    "status": ("runs", "show", "usage", "context"),
    "system": ("config", "doctor", "explain", "completion", "models"),
}
_MODULE_OF = {command: module for module, commands in _MODULES.items() for command in commands}
"""The module of each command; the others have one of their own."""

BROKEN_PIPE = 141


class _PipeClosed(Exception):
    """The reader of standard output or standard error has closed it."""


@contextmanager
def _pipe_closed() -> Iterator[None]:
    """Raise `_PipeClosed` for a broken pipe: click would exit with code 1 on a `BrokenPipeError`."""
    try:
        yield
    except BrokenPipeError as error:
        raise _PipeClosed from error


class LazyGroup(CommandGroup):
    """A group that knows its commands by name and summary, and imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"reyn.cli.commands.{_MODULE_OF.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _pipe_closed():  # `--help` prints here
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Errors are reported here, while the context knows `--project` for the next command."""
        with _pipe_closed():
            try:
                return super().invoke(ctx)
            except ReynError as error:
                return _report(error, debug=ctx.obj["debug"], as_json=ctx.obj["as_json"])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    epilog='Example: reyn run hello \'{"name": "Ada"}\' --model scripted:answers.jsonl',
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="reyn")
@click.option("--project", metavar="DIR", help="Project folder. Default: the nearest parent with a reyn.yaml.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.pass_context
def app(ctx: click.Context, project: str | None, debug: bool) -> None:
    """Run durable, journaled LLM workflows.

    `reyn COMMAND --help` describes a command. NO_COLOR turns off colour and the live progress line.
    """
    ctx.obj = ctx.obj | {"project": project, "debug": debug}


def run_app(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    guard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug, as_json = "--debug" in flags, "--json" in flags
    try:
        return _call(arguments, debug=debug, as_json=as_json)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except (_PipeClosed, BrokenPipeError):
        out.discard()
        return BROKEN_PIPE
    except OSError as error:
        return _report_outside(
            InternalError(
                f"cannot write the output: {error.strerror or error}", hint="Write it to a place with free space."
            ),
            debug=debug,
            as_json=False,
        )
    except Exception as error:  # noqa: BLE001 - a bug; the traceback is printed with --debug
        return _report_outside(InternalError(f"{type(error).__name__}: {error}"), debug=debug, as_json=as_json)


def _call(arguments: list[str], **flags: bool) -> int:
    try:
        for argument in arguments:
            argument.encode()
        result = app.main(arguments, prog_name="reyn", standalone_mode=False, obj=flags)
    except UnicodeEncodeError:
        return _report(UsageError("the command line is not UTF-8"), **flags)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _report(_usage_error(error), **flags)
    out.flush()
    return result if isinstance(result, int) else 0


def _usage_error(error: click.ClickException) -> UsageError:
    message = error.format_message().rstrip(".").replace("is not a valid integer range", "is not an integer")
    if isinstance(error, click.MissingParameter):  # the choices are in lines of their own
        message = " ".join(message.replace(". Choose from:", "; choose from").split())
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return UsageError(_lower_first(message))
    if isinstance(error, click.NoSuchOption):
        message = _argument_hint(context, error.option_name) or message
    usage = context.get_usage().removeprefix("Usage: ")
    hint = f"See `{context.command_path} --help`."
    return UsageError(_lower_first(message), usage=" ".join(usage.split()), hint=hint)


def _argument_hint(context: click.Context, option: str) -> str:
    """Return the message for an option that has the name of an argument: `--input` instead of `INPUT`."""
    word = option.lstrip("-").replace("-", "_")
    for parameter in context.command.params:
        if isinstance(parameter, click.Argument) and parameter.name in (word, f"{word}s"):
            name = parameter.human_readable_name.strip("[].")
            return f"no such option '{option}': {name} is an argument; pass its value without '{option}'"
    return ""


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _report_outside(error: ReynError, *, debug: bool, as_json: bool) -> int:
    """Report an error that ended the command itself; its output may be closed, too."""
    try:
        return _report(error, debug=debug, as_json=as_json)
    except BrokenPipeError:
        out.discard()
        return BROKEN_PIPE


def _report(error: ReynError, *, debug: bool, as_json: bool) -> int:
    """Print an error and return its exit code."""
    if debug:
        import traceback

        traceback.print_exc()
    from reyn.cli.project import has_project

    hint = hint_without_project(error)
    if hint is None or has_project():
        hint = with_commands(full_hint(error.code, error.hint))
    more = how_to_explain(error.code)
    if as_json:
        next_command = {"next": command_line(error.action)} if error.action else {}
        out.json({"error": error.as_json() | {"hint": hint, "more": more} | next_command})
        return error.exit_code
    message, *details = with_commands(error.message).split("\n")
    lines: list[Printed] = [Line(styled(f"error {error.code}", "red", bold=True), f": {message}")]
    lines += [f"  {detail}" for detail in details]
    lines += [f"  usage: {error.usage}"] if isinstance(error, UsageError) and error.usage else []
    lines += [f"  fix: {hint}"] if hint else []
    lines += [f"  next: {command_line(error.action)}"] if error.action is not None else []
    for line in (*lines, f"  more: {more}"):
        out.note(line)
    return error.exit_code
