"""`reyn run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from reyn.cli.execution import execute, execution_options
from reyn.cli.functions import function_work, is_function
from reyn.cli.project import model_name, open_project, parse_input, print_assumed_project, skill_name
from reyn.cli.settings import setting_options

if TYPE_CHECKING:
    from reyn.cli.functions import Work
    from reyn.cli.progress import Progress
    from reyn.runtime import RunResult, SyncRuntime


@click.command(epilog='Example: reyn run hello \'{"name": "Ada"}\' --model scripted:answers.jsonl')
@click.argument("skill")
@click.argument("input", required=False)
@click.option("--run-id", metavar="ID", help="Id of the run. If it exists, continue it.")
@setting_options
@execution_options
def command(
    skill: str, input: str | None, run_id: str | None, no_input: bool, stream: bool, as_json: bool, **settings: Any
) -> int:
    """Start a run of SKILL with INPUT.

    SKILL is a name, a path that contains a slash, or a Python function with `@llm_function` as `module:function`.

    INPUT is a JSON object with the data of the entry phase's input type. It is plain text if that type is
    `user_message`. `-` reads INPUT from standard input, `@FILE` from a file. INPUT can also be an artifact: an object
    with `type` and `data`. For a function, INPUT is a JSON object with the arguments, or the text of the only argument.

    To find a function, the command imports its module from the current folder, the project or the installed packages,
    which executes the code of the module.

    At a terminal, the command asks the run's questions. Ctrl-C interrupts the run, and `reyn resume` continues it; a
    second Ctrl-C cancels the run.
    """
    parsed = parse_input(input)
    settings["model"] = model_name(settings["model"])
    print_assumed_project()
    work: Work
    if is_function(skill):
        work = function_work(skill, parsed, run_id=run_id, has_model=settings["model"] is not None)
    else:

        def work(runtime: SyncRuntime, progress: Progress) -> RunResult:
            return runtime.run(skill_name(skill), parsed, run_id=run_id, listener=progress, on_delta=progress.on_delta)

    return execute(
        work,
        as_json=as_json,
        no_input=no_input,
        stream=stream,
        opening=open_project,
        **settings,
    )
