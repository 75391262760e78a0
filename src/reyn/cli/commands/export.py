"""`reyn export`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from reyn.cli.output import json_option, print_json
from reyn.cli.project import look_at_project
from reyn.cli.writing import write_whole


@click.command(epilog="Example: reyn export 20260704T120000-k3m9qxdt run.jsonl")
@click.argument("run")
@click.argument("file", required=False)
@json_option
def command(run: str, file: str | None, as_json: bool) -> None:
    """Write RUN, the runs it was forked from and its sub-runs to FILE, or to standard output.

    One JSON object a line: events, and the content they name. `reyn import` reads it, on any machine. With --json,
    print what was written to FILE.
    """
    file = None if file == "-" else file
    if file is not None and os.path.isdir(file):  # noqa: PTH112 - a name too long is no folder
        raise click.UsageError(f"`{file}` is a folder; name the file to write.")
    if as_json and file is None:
        raise click.UsageError("an export is JSON already; --json tells about the FILE that is written.")
    with look_at_project() as runtime:
        run_id = runtime.find(run).run_id
        lines = runtime.export(run_id)
        if file is None:
            for line in lines:
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            return
        size = write_whole(Path(file), lines)
    if as_json:
        print_json({"run_id": run_id, "file": file, "bytes": size})
    else:
        click.echo(f"wrote {run_id} to {file}: {size:,} bytes")
