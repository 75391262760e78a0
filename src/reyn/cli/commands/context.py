"""`reyn context`."""

from __future__ import annotations

import click

from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import open_existing_project
from reyn.cli.prompt_bars import budget_json, section_json, to_svg, to_text


@click.command(epilog="Example: reyn context order-17; reyn context order-17 --format svg")
@click.argument("run")
@click.option(
    "--format", "form", type=click.Choice(["text", "svg"]), default="text", show_default=True, help="Output format."
)
@json_option
def command(run: str, form: str, as_json: bool) -> None:
    """Show the tokens of each section of a prompt, for the last prompt of each visit of RUN, and truncated sections.

    RUN is an id or a unique prefix. Tokens are estimates, at four characters a token. For a prompt that was truncated,
    they are the counts of its budget. Cached tokens are those that the provider reported.
    """
    with open_existing_project() as runtime:
        visits = list(runtime.runs.visit_contexts(run))
    if as_json:
        for visit in visits:
            print_json(
                {
                    "seq": visit.seq,
                    "phase": visit.phase,
                    "visit": visit.visit,
                    "turns": visit.turns,
                    "tokens": visit.tokens,
                    "input_tokens": visit.input_tokens,
                    "cached_tokens": visit.cached_tokens,
                    "sections": [section_json(section) for section in visit.sections],
                    "budget": budget_json(visit.budget),
                }
            )
    elif form == "svg":
        click.echo(to_svg(clean(run), visits), nl=False)
    else:
        click.echo(to_text(visits), nl=False)
