"""`reyn init`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from reyn.cli.files import write_new_files
from reyn.cli.output import clean
from reyn.cli.templates import CONFIG, IGNORED, linear
from reyn.errors import ConfigError


@click.command(epilog="Example: reyn init my_project")
@click.argument("folder", default=".")
def command(folder: str) -> None:
    """Create a project in FOLDER: a reyn.yaml and a skill `first` with scripted answers."""
    root = Path(folder)
    template = linear("first")
    files = {f"reyn/project/first/{name}": text for name, text in template.files.items()}
    write_new_files(
        root, {"reyn.yaml": CONFIG, "answers.jsonl": template.script, **files}, optional={".gitignore": IGNORED}
    )
    click.echo(f"created a project in {root}")
    _trust(root.resolve())
    prefix = "" if root == Path() else f"cd {shlex.quote(str(root))} && "
    click.echo(f"next: {prefix}reyn run first 'Please greet me.'")


def _trust(root: Path) -> None:
    from reyn.permissions.trust import load_project, store_decision

    try:
        store_decision(load_project(root))
    except ConfigError as error:  # the project works without trust
        click.echo(f"note: the project could not be trusted: {clean(error.message)}", err=True)
