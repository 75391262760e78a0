"""`reyn graph`."""

from __future__ import annotations

import click

from reyn.cli.output import json_option, print_json
from reyn.cli.project import project_root, skill_name
from reyn.ops import standard_ops
from reyn.skills import Library, load_skill
from reyn.skills.drawing import edges, kind_of, nodes, to_mermaid, to_svg, to_text

FORMATS = {"text": to_text, "mermaid": to_mermaid, "svg": to_svg}


@click.command(epilog="Example: reyn graph hello --format mermaid")
@click.argument("skill")
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)), default="text", show_default=True, help="What to draw it as."
)
@json_option
def command(skill: str, form: str, as_json: bool) -> None:
    """Draw the graph of SKILL: its phases, what may follow what, and where it may finish.

    SKILL is a name, or a path with a slash in it. Broken lines lead back to an earlier phase, a double border marks
    another skill, and the word beside an arrow is the type of artifact that travels along it.
    """
    library = Library(project_root())
    found = load_skill(library.find(skill_name(skill)), standard_ops().vocabulary, library)
    if as_json:
        named = [{"name": node, "kind": kind_of(node)} for node in nodes(found)]
        print_json({"entry": found.entry, "nodes": named, "edges": edges(found)})
    else:
        click.echo(FORMATS[form](found), nl=False)
