"""`reyn new`."""

from __future__ import annotations

import keyword

import click

from reyn.cli.files import write_new_files
from reyn.cli.groups import CommandGroup
from reyn.cli.project import project_root
from reyn.cli.templates import TEMPLATES, function_template
from reyn.skills import Library
from reyn.skills.names import is_valid_name


@click.group(cls=CommandGroup, for_names="skill", epilog="Example: reyn new skill menu_line --template loop")
def command() -> None:
    """Create files from a template."""


_INPUT = '{"type": "user_message", "data": {"text": "Please greet me."}}\n'


@command.command("skill", epilog="Example: reyn new skill menu_line --template loop")
@click.argument("name")
@click.option(
    "--template", type=click.Choice(list(TEMPLATES)), default="linear", show_default=True, help="Shape of the graph."
)
@click.option("--local", is_flag=True, help="Write to reyn/local/, which is not shared.")
def new_skill(name: str, template: str, local: bool) -> None:
    """Create the skill NAME with scripted answers for one run.

    Then edit its phases, artifacts and graph.
    """
    if not is_valid_name(name):
        message = f"`{name}` is invalid or reserved; use letters, digits, `_` and `-`, and start with a letter"
        raise click.BadParameter(message, param_hint="NAME")
    library = Library(project_root())
    is_shadowing = any(known == name and shelf == "stdlib" for known, shelf, _ in library)
    skill = TEMPLATES[template](name)
    folder = f"reyn/{'local' if local else 'project'}/{name}"
    files = {f"{folder}/{file}": text for file, text in skill.files.items()}
    case = {"answers.jsonl": skill.script, "input.json": _INPUT}
    files |= {f"{folder}/cases/first/{file}": text for file, text in case.items()}
    write_new_files(project_root(), files)
    click.echo(f"created {folder}")
    if is_shadowing:
        click.echo(f"note: it replaces the standard skill `{name}` in this project")
    click.echo(f"next: reyn run {name} 'Please greet me.' --model scripted:{folder}/cases/first/answers.jsonl")


@command.command("function", epilog="Example: reyn new function title_of")
@click.argument("name")
def new_function(name: str) -> None:
    """Create the module NAME.py with a function and a tool.

    A model executes the function; scripted answers for one call are created, too. Then edit its types and its
    docstring, which contains the instructions for the model.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower() or not is_valid_name(name):
        message = f"`{name}` is not the name of a Python module; begin with a letter, then letters, digits and `_`"
        raise click.BadParameter(message, param_hint="NAME")
    module, script = function_template(name)
    answers = f"{name}_answers.jsonl"
    write_new_files(project_root(), {f"{name}.py": module, answers: script})
    click.echo(f"created {name}.py")
    text = '{"text": "The bridge is open again."}'
    click.echo(f"next: reyn run {name}:{name} '{text}' --model scripted:{answers}")
