"""`reyn graph`."""

from __future__ import annotations

import click

from reyn.cli.output import json_option, print_json
from reyn.cli.project import project_ops, project_root, skill_name
from reyn.skills import Library, load_skill
from reyn.skills.drawing import edges, kind_of, nodes, to_mermaid, to_svg, to_text

FORMATS = {"text": to_text, "mermaid": to_mermaid, "svg": to_svg}


@click.command(epilog="Example: reyn graph hello --format mermaid")
@click.argument("skill")
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)), default="text", show_default=True, help="Output format."
)
@json_option
def command(skill: str, form: str, as_json: bool) -> None:
    """Draw the graph of SKILL: phases, transitions and ends.

    SKILL is a name, or a path that contains a slash. Each arrow has the artifact type that is passed on, and when to
    choose it. `↺`, or a dashed line, leads back to an earlier phase. `@` marks another skill. SVG needs Graphviz.
    """
    library = Library(project_root())
    loaded = load_skill(library.find(skill_name(skill)), project_ops().vocabulary, library)
    if as_json:
        drawn = [{"name": node, "kind": kind_of(node)} for node in nodes(loaded)]
        print_json({"entry": loaded.entry, "nodes": drawn, "edges": edges(loaded)})
    else:
        click.echo(FORMATS[form](loaded), nl=False)
