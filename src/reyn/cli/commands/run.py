"""`reyn run`."""

from __future__ import annotations

from typing import Any

import click

from reyn.cli.driving import drive
from reyn.cli.output import json_option
from reyn.cli.project import model_name, open_project, parse_input, skill_name


@click.command(epilog='Example: reyn run hello \'{"name": "Ada"}\' --model scripted:answers.jsonl')
@click.argument("skill")
@click.argument("input", required=False)
@click.option("--model", metavar="MODEL", help="scripted:FILE, recorded:RUN, or a name from reyn.yaml.")
@click.option("--run-id", metavar="KEY", help="Name the run; if it exists already, continue it as it was started.")
@click.option("--strict/--lenient", default=None, help="Enforce required fields at every depth.")
@click.option("--output-language", metavar="LANG", help="The language of natural-language output.")
@click.option("--max-phase-visits", type=click.IntRange(min=1), metavar="N", help="Visits of one phase, at most.")
@click.option("--max-phase-retries", type=click.IntRange(min=0), metavar="N", help="Re-prompts in one visit, at most.")
@json_option
def command(skill: str, input: str | None, run_id: str | None, as_json: bool, **settings: Any) -> int:
    """Start a run of SKILL with INPUT.

    SKILL is a name, or a path with a slash in it. INPUT is text, a JSON object of the entry phase's type, an object
    with `type` and `data`, `-` for standard input or `@FILE`.
    """
    given = parse_input(input)
    settings["model"] = model_name(settings["model"])
    with open_project(**settings) as runtime:
        return drive(
            lambda progress: runtime.run(skill_name(skill), given, run_id=run_id, listener=progress), as_json=as_json
        )
