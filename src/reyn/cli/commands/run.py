"""`reyn run`."""

from __future__ import annotations

from typing import Any

import click

from reyn.cli.execution import execute, execution_options
from reyn.cli.project import model_name, open_project, parse_input, print_assumed_project, skill_name
from reyn.cli.settings import setting_options


@click.command(epilog='Example: reyn run hello \'{"name": "Ada"}\' --model scripted:answers.jsonl')
@click.argument("skill")
@click.argument("input", required=False)
@click.option("--run-id", metavar="ID", help="Id of the run. If it exists, continue it.")
@setting_options
@execution_options
def command(
    skill: str, input: str | None, run_id: str | None, no_input: bool, stream: bool, as_json: bool, **settings: Any
) -> int:
    """Start a run of SKILL with INPUT.

    SKILL is a name, or a path that contains a slash. INPUT is text, a JSON object of the entry phase's type, an object
    with `type` and `data`, `-` for standard input, or `@FILE`.

    On a terminal, the run asks its questions there. Ctrl-C interrupts the run, which can then be resumed; a second
    Ctrl-C cancels it.
    """
    parsed = parse_input(input)
    settings["model"] = model_name(settings["model"])
    print_assumed_project()
    return execute(
        lambda runtime, progress: runtime.run(
            skill_name(skill), parsed, run_id=run_id, listener=progress, on_delta=progress.on_delta
        ),
        as_json=as_json,
        no_input=no_input,
        stream=stream,
        opening=open_project,
        **settings,
    )
