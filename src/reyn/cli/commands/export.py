"""`reyn export`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from reyn.cli.files import write_atomically
from reyn.cli.output import json_option, print_json
from reyn.cli.project import open_existing_project


@click.command(epilog="Example: reyn export order-17 run.jsonl")
@click.argument("run")
@click.argument("file", required=False)
@json_option
def command(run: str, file: str | None, as_json: bool) -> None:
    """Write RUN, its sub-runs and parents, and the runs it was forked from to FILE, or to standard output.

    The format is JSON Lines: events and the content they refer to. `reyn import` reads it on any machine. With --json,
    print the size of FILE.
    """
    file = None if file == "-" else file
    if file is not None and os.path.isdir(file):  # noqa: PTH112 - `Path.is_dir` raises for a name that is too long
        raise click.UsageError(f"`{file}` is a folder; pass a file name")
    if as_json and file is None:
        raise click.UsageError("an export is JSON already; --json requires FILE")
    with open_existing_project() as runtime:
        run_id = runtime.runs.find(run).run_id
        lines = runtime.runs.export(run_id)
        if file is None:
            for line in lines:
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            return
        size = write_atomically(Path(file), lines)
    if as_json:
        print_json({"run_id": run_id, "file": file, "bytes": size})
    else:
        click.echo(f"{run_id}: wrote {size:,} bytes to {file}")
