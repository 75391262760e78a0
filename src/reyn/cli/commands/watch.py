"""The command `watch`: follow a run that any process executes."""

from __future__ import annotations

import click

from reyn.cli.groups import command
from reyn.cli.options import json_option, number_option
from reyn.cli.project import open_existing_project
from reyn.cli.writer import Report, out, wants_json


@command(epilog="Example: reyn watch order-17 --follow")
@click.argument("run")
@number_option("--after", "Only events after event SEQ.", least=0, default=0, metavar="SEQ")
@click.option("--follow", is_flag=True, help="Go on when the run stops, until it ends: it may be answered or resumed.")
@json_option
def watch_command(run: str, after: int, follow: bool) -> Report | int:
    """Print what RUN did and does, until it ends or stops. RUN is an id or a unique prefix.

    Any process may execute the run. Ctrl-C ends this command and leaves the run alone. With `--json`, it prints the
    events of RUN as `reyn events` does, one a line; after a break, pass the last `seq` as `--after`.

    The exit code is that of the run's status.
    """
    from reyn.cli.execution import report_result
    from reyn.cli.progress import Progress

    runtime = open_existing_project()
    run_id = runtime.runs.find(run).run_id
    if wants_json():
        for event in runtime.runs.watch(run_id, after, follow=follow):
            out.json(event.as_json())
        return runtime.runs.result(run_id).exit_code
    progress = Progress(runtime)
    try:
        for event in runtime.runs.watch(run_id, after, follow=follow, with_children=True):
            progress(event)
    finally:
        progress.pause()
    return report_result(runtime, runtime.runs.result(run_id), progress)
