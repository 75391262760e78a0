"""`reyn new`."""

from __future__ import annotations

import click

from reyn.cli.project import project_root
from reyn.cli.templates import TEMPLATES
from reyn.cli.writing import write_new
from reyn.skills import Library
from reyn.skills.names import is_valid_name


@click.group(epilog="Example: reyn new skill menu_line --template loop")
def command() -> None:
    """Write the files of something new."""


@command.command("skill", epilog="Example: reyn new skill menu_line --template loop")
@click.argument("name")
@click.option("--template", type=click.Choice(list(TEMPLATES)), default="linear", help="The shape of its graph.")
@click.option("--local", is_flag=True, help="Under reyn/local/, for this machine alone.")
def new_skill(name: str, template: str, local: bool) -> None:
    """Write the skill NAME, with answers that run it once.

    It lints clean; change its phases, its artifacts and its graph to what you want.
    """
    if not is_valid_name(name):
        message = (
            f"`{name}` cannot be used: letters, digits, `_` and `-`, beginning with a letter, and no word like `end`."
        )
        raise click.BadParameter(message, param_hint="NAME")
    library = Library(project_root())
    hidden = next((shelf for known, shelf, _ in library if known == name and shelf == "stdlib"), None)
    made = TEMPLATES[template](name)
    folder = f"reyn/{'local' if local else 'project'}/{name}"
    files = {f"{folder}/{file}": text for file, text in made.files.items()}
    write_new(project_root(), {**files, f"{folder}/cases/first/answers.jsonl": made.script})
    click.echo(f"wrote {folder}")
    if hidden:
        click.echo(f"note: it hides the skill `{name}` of the standard library here")
    click.echo(f"next: reyn run {name} 'Please greet me.' --model scripted:{folder}/cases/first/answers.jsonl")
