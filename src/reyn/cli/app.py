"""The command line: one group whose commands are imported only when they are called."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from reyn._version import __version__
from reyn.cli.interrupts import INTERRUPTED
from reyn.errors import InternalError, ReynError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "init": "Make a folder a project, with one skill that runs.",
    "new": "Write a new skill from a template.",
    "skills": "List the skills that can be run here.",
    "ops": "List the ops that skills can use, or document one.",
    "lint": "Check a skill and report every finding.",
    "graph": "Draw a skill's graph.",
    "frame": "Show the prompt of a skill, or of an event of a run.",
    "run": "Start a run of a skill and execute it.",
    "runs": "List the runs of this project and their open questions.",
    "show": "Show what a run did, step by step.",
    "events": "Print the events of a run.",
    "resume": "Continue a run that was interrupted, stopped or failed.",
    "answer": "Answer a question of a run and resume it.",
    "cancel": "Stop a run for good.",
    "replay": "Derive a run again from its record and compare every event.",
    "fork": "Start a new run from any event of a run.",
    "rerun": "Start a run again with the same input.",
    "diff": "Show where two runs diverge, and why.",
    "verify": "Check that the record of a run is complete and unchanged.",
    "undo": "Restore the files that a run changed.",
    "export": "Write a run to a file that another machine can read.",
    "import": "Import runs that were exported.",
    "secret": "Store, list and remove secrets.",
    "models": "List available models; pull one.",
    "config": "Show every setting and its origin.",
    "doctor": "Check this installation, and what each open run needs.",
    "completion": "Print a script for shell completion.",
}
_MODULES = {"import": "import_"}
"""Commands whose names are no names of modules."""

BAD_USAGE = 2
BROKEN_PIPE = 141


class LazyGroup(click.Group):
    """Knows its commands by name and one line; imports one when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"reyn.cli.commands.{_MODULES.get(cmd_name, cmd_name)}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Report an error while the context is there: the next command names the project of this one."""
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
@click.option("--project", metavar="DIR", help="The project's folder; else the nearest one above with a reyn.yaml.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.pass_context
def app(ctx: click.Context, project: str | None, debug: bool) -> None:
    """Reyn runs skills: the model decides, the OS controls, the journal remembers."""
    ctx.obj = ctx.obj | {"project": project, "debug": debug}


def run_app(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    flags = words[: words.index("--")] if "--" in words else words
    debug, as_json = "--debug" in flags, "--json" in flags
    try:
        return _call(words, debug=debug, as_json=as_json)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for the interpreter's last flush
        return BROKEN_PIPE
    except OSError as error:
        return _report(InternalError(f"the output cannot be written: {error}"), debug=debug, as_json=False)
    except Exception as error:  # noqa: BLE001 - the last resort: a traceback is for those who ask for it
        return _report(InternalError(f"{type(error).__name__}: {error}"), debug=debug, as_json=as_json)


def _call(words: list[str], **flags: bool) -> int:
    try:
        for word in words:
            word.encode()
        result = app.main(words, prog_name="reyn", standalone_mode=False, obj=flags)
    except UnicodeEncodeError:
        click.echo("Error: the command line is not UTF-8.", err=True)
        return BAD_USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _report(error: ReynError, *, debug: bool, as_json: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    from reyn.cli.output import clean, command_line

    if as_json:
        import msgspec

        next_command = {"next": command_line(error.action)} if error.action else {}
        click.echo(msgspec.json.encode({"error": error.as_json() | next_command}).decode())
        return error.exit_code
    message = "\n".join(clean(line) for line in error.message.split("\n"))
    click.echo(f"{click.style(f'error {error.code}', fg='red', bold=True)}: {message}", err=True)
    if error.hint:
        click.echo(f"  hint: {clean(error.hint)}", err=True)
    if error.action is not None:
        click.echo(f"  next: {clean(command_line(error.action))}", err=True)
    click.echo(f"  docs: {error.docs}", err=True)
    return error.exit_code
