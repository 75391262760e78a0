"""The command line: one group whose commands are imported only when they are called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from reyn._version import __version__
from reyn.errors import ReynError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "run": "Start a run of a skill and drive it to its end.",
    "resume": "Continue a run that was interrupted, stopped or failed.",
    "runs": "List the runs of this project.",
    "show": "Tell what a run did, step by step.",
    "events": "Print the events of a run.",
    "replay": "Derive a run again from its record and compare every event.",
    "verify": "Check that a run's record is whole and unchanged.",
}

INTERRUPTED = 130


class LazyGroup(click.Group):
    """Knows its commands by name and one line; imports one when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"reyn.cli.commands.{cmd_name}").command
        return command

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
    ctx.obj = {"project": project, "debug": debug}


def run_app(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    try:
        result = app.main(words, prog_name="reyn", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except ReynError as error:
        if debug:
            raise
        _tell(error, as_json="--json" in words)
        return error.exit_code
    return result if isinstance(result, int) else 0


def _tell(error: ReynError, *, as_json: bool) -> None:
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"error": error.as_json()}).decode())
        return
    click.echo(f"{click.style(f'error {error.code}', fg='red', bold=True)}: {error.message}", err=True)
    if error.hint:
        click.echo(f"  hint: {error.hint}", err=True)
    click.echo(f"  docs: {error.docs}", err=True)
