"""`reyn import`."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import open_project
from reyn.documents import read_error
from reyn.errors import ArchiveInvalid
from reyn.runs.archive import ImportLimits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO


@click.command("import", epilog="Example: reyn import run.jsonl")
@click.argument("file")
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1),
    default=ImportLimits().bytes,
    metavar="N",
    show_default=True,
    help="Largest archive to read; it has to fit into memory.",
)
@json_option
def command(file: str, max_bytes: int, as_json: bool) -> None:
    """Import the runs in FILE, which `reyn export` wrote. `-` reads standard input.

    The whole file is checked before anything is stored. A run that already exists must be identical. An imported run
    can be read, verified and replayed; `reyn fork` and `reyn rerun` continue it with the settings of this project.
    """
    origin = "standard input" if file == "-" else Path(file).name
    with _opened(file) as lines, open_project() as runtime:
        report = runtime.runs.import_(lines, origin=origin, limits=ImportLimits(bytes=max_bytes))
    if as_json:
        print_json(report)
        return
    for run in report.imported:
        click.echo(f"imported {clean(run)}")
    for run in report.known:
        click.echo(f"skipped {clean(run)}: already exists")


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        if sys.stdin is None:
            raise ArchiveInvalid("standard input is closed")
        yield sys.stdin.buffer
        return
    try:
        opened = Path(file).open("rb")  # noqa: SIM115 - closed below; errors of its user are not caught here
    except (OSError, ValueError) as error:
        hint = "Pass a file that `reyn export` wrote."
        raise ArchiveInvalid(f"cannot read `{file[:200]}`: {read_error(error)}", hint=hint) from error
    with opened:
        yield opened
