"""`reyn init`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from reyn.cli.files import write_new_files
from reyn.cli.templates import CONFIG, IGNORED, linear


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
    prefix = "" if root == Path() else f"cd {shlex.quote(str(root))} && "
    click.echo(f"next: {prefix}reyn run first 'Please greet me.'")
