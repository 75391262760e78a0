"""`reyn init`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from reyn.cli.templates import CONFIG, IGNORED, linear
from reyn.cli.writing import write_new


@click.command(epilog="Example: reyn init my_project")
@click.argument("folder", default=".")
def command(folder: str) -> None:
    """Make FOLDER a project: a configuration and one skill, `first`, that runs at once on scripted answers."""
    root = Path(folder)
    template = linear("first")
    files = {f"reyn/project/first/{name}": text for name, text in template.files.items()}
    write_new(root, {"reyn.yaml": CONFIG, "answers.jsonl": template.script, **files}, keep={".gitignore": IGNORED})
    click.echo(f"made a project in {root}")
    there = "" if root == Path() else f"cd {shlex.quote(str(root))} && "
    click.echo(f"next: {there}reyn run first 'Please greet me.'")
