"""`reyn run`."""

from __future__ import annotations

from typing import Any

import click

from reyn.cli.driving import drive, no_input_option
from reyn.cli.output import json_option
from reyn.cli.project import model_name, open_project, parse_input, skill_name
from reyn.cli.settings import setting_flags


@click.command(epilog='Example: reyn run hello \'{"name": "Ada"}\' --model scripted:answers.jsonl')
@click.argument("skill")
@click.argument("input", required=False)
@click.option("--run-id", metavar="KEY", help="Name the run; if it exists already, continue it as it was started.")
@setting_flags
@no_input_option
@json_option
def command(skill: str, input: str | None, run_id: str | None, no_input: bool, as_json: bool, **settings: Any) -> int:
    """Start a run of SKILL with INPUT.

    SKILL is a name, or a path with a slash in it. INPUT is text, a JSON object of the entry phase's type, an object
    with `type` and `data`, `-` for standard input or `@FILE`.

    Questions of the run are asked at the terminal, if there is one. Ctrl-C interrupts the run, which can then be
    resumed; pressing it again right after cancels the run.
    """
    parsed = parse_input(input)
    settings["model"] = model_name(settings["model"])
    return drive(
        lambda runtime, progress: runtime.run(
            skill_name(skill), parsed, run_id=run_id, listener=progress, on_delta=progress.on_delta
        ),
        as_json=as_json,
        no_input=no_input,
        opening=open_project,
        **settings,
    )
