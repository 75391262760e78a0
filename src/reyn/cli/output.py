"""How the CLI prints results, next actions, times and text from models: as JSON or as lines."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reyn.errors import NextAction
    from reyn.journal.kinds import Usage
    from reyn.runtime import RunResult

COLOURS = {
    "finished": "green",
    "running": "cyan",
    "waiting": "magenta",
    "failed": "red",
    "aborted": "red",
    "limited": "yellow",
}
_YEAR_9999 = 253_370_764_800_000_000
_SECOND = 1_000_000
_MOST_FILES = 20

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    click.echo(msgspec.json.encode(value).decode())


def clean(text: str) -> str:
    """Text from a model or a file, made safe for a terminal: one line, and no character that steers it."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def short(text: str, most: int = 300) -> str:
    """The beginning of a text that may be long, clean."""
    return clean(text if len(text) <= most else f"{text[: most - 1]}…")


def echo_lines(text: str) -> None:
    """Text of many lines. On a terminal every line is made safe; into a file it goes as it is."""
    if not sys.stdout.isatty():
        click.echo(text)
        return
    for line in text.split("\n"):
        click.echo(clean(line))


def time_of(ts: int) -> str:
    """Event time for people, in UTC."""
    if not 0 <= ts < _YEAR_9999:
        return f"time {ts}"
    return datetime.fromtimestamp(ts / _SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")


def lasted(microseconds: int) -> str:
    """A duration for people: `3.2 s`, `4:07`, `2:30:00`."""
    seconds = max(0, microseconds) / _SECOND
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def tokens_of(usage: Usage) -> str:
    if not usage.total:
        return "0 tokens"
    cached = f", {usage.cached_tokens:,} of them cached" if usage.cached_tokens else ""
    return f"{usage.total:,} tokens ({usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out)"


def coloured(status: str) -> str:
    return click.style(status, fg=COLOURS.get(status.split()[0], "white"), bold=True)


def command_line(action: NextAction | None) -> str:
    """The command line of an action, with `--project` if this command has it; empty if there is no action."""
    return "" if action is None else reyn_command(*_arguments(action))


def _arguments(action: NextAction) -> list[str]:
    arguments = [action.verb, action.run_id]
    if action.wait_id is not None:
        arguments += [action.wait_id, "VALUE"]
    if action.retry:
        arguments.append("--retry")
    if action.limit is not None:
        value = "N" if action.value is None else str(action.value)
        arguments += ["--raise", f"{action.limit or 'LIMIT'}={value}"]
    return arguments


def reyn_command(*arguments: str) -> str:
    """A command line for this project."""
    context = click.get_current_context(silent=True)
    project = context.obj["project"] if context is not None and context.obj else None
    return shlex.join(["reyn", *(["--project", project] if project is not None else []), *arguments])


def print_result(result: RunResult, *, took: str, files: Mapping[str, str], action: NextAction | None) -> None:
    """Print the result of a run: status, artifact, usage, changed files, warnings and the next action."""
    line = coloured(result.status)
    code = f" ({result.code})" if result.code else ""
    click.echo(f"{line}: {clean(result.reason)}{code}" if result.reason else line)
    if result.hint:
        click.echo(f"hint: {clean(result.hint)}")
    if result.wait is not None and result.wait.suggestions:
        click.echo(f"suggested: {', '.join(short(words, 80) for words in result.wait.suggestions)}")
    if result.artifact is not None:
        echo_lines(msgspec.json.format(msgspec.json.encode(result.artifact), indent=2).decode())
    if result.path:
        click.echo(f"path: {clean(' → '.join(result.path))}")
    click.echo(f"used: {tokens_of(result.usage)}, {took}")
    if files:
        click.echo(f"files: {_listed(files)}")
    for warning in result.warnings:
        click.echo(f"warning: {clean(warning)}")
    print_next(action)


def print_next(action: NextAction | None) -> None:
    if action is not None:
        click.echo(f"next: {clean(command_line(action))}")


def _listed(files: Mapping[str, str]) -> str:
    told = [f"{clean(path)} ({what})" for path, what in list(files.items())[:_MOST_FILES]]
    more = [f"and {len(files) - _MOST_FILES} more"] if len(files) > _MOST_FILES else []
    return ", ".join([*told, *more])
