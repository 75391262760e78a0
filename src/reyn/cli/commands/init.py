"""`reyn init`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from reyn.cli.files import write_new_files
from reyn.cli.output import clean
from reyn.errors import ConfigError

_PROJECT = Path(__file__).parent.parent / "new_project"
_IGNORED = ".reyn/\nreyn.local.yaml\n"
_INPUT = '{"name": "Ada", "occasion": "harvest dinner"}'


@click.command(epilog="Example: reyn init my_project")
@click.argument("folder", default=".")
def command(folder: str) -> None:
    """Create a project in FOLDER: a reyn.yaml and a skill `hello` with scripted answers and a test case."""
    root = Path(folder)
    files = {
        path.relative_to(_PROJECT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(_PROJECT.rglob("*"))
        if path.is_file()
    }
    write_new_files(root, files, optional={".gitignore": _IGNORED})
    click.echo(f"created a project in {root}")
    _trust(root.resolve())
    prefix = "" if root == Path() else f"cd {shlex.quote(str(root))} && "
    click.echo(f"next: {prefix}reyn run hello {shlex.quote(_INPUT)}")


def _trust(root: Path) -> None:
    from reyn.permissions.trust import load_project, store_decision

    try:
        store_decision(load_project(root))
    except ConfigError as error:  # the project works without trust
        click.echo(f"note: the project could not be trusted: {clean(error.message)}", err=True)
