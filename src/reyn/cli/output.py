"""Format times, amounts, statuses, tables, results and next actions. `writer` prints them.

Imports nothing that `reyn --help` does not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.characters import clean
from reyn.cli.hints import full_hint, full_warning, how_to_explain
from reyn.cli.writer import Line, Printed, Raw, Styled, is_terminal, styled
from reyn.texts import truncated

if TYPE_CHECKING:
    from reyn.errors import NextAction
    from reyn.journal.kinds import Charge, Question
    from reyn.runs.timeline import TimelineEntry
    from reyn.runtime import RunResult

COLOURS = {
    "finished": "green",
    "running": "cyan",
    "queued": "cyan",
    "lost": "red",
    "waiting": "magenta",
    "failed": "red",
    "aborted": "red",
    "limited": "yellow",
}
_YEAR_9999 = 253_370_764_800_000_000
_SECOND = 1_000_000
_MAX_FILES = 20


def short(text: str, length: int = 300) -> str:
    """Return a text as one line, truncated."""
    return clean(truncated(text, length))


def text_lines(text: str) -> list[str]:
    """Return the lines of a text. A line has no tabs: the writer would escape them."""
    return text.expandtabs(4).split("\n")


def time_of(ts: int) -> str:
    """Format the time of an event, in UTC."""
    if not 0 <= ts < _YEAR_9999:
        return f"time {ts}"
    return datetime.fromtimestamp(ts / _SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")


def used_text(result: RunResult, *, is_complete: bool) -> str:
    """Format the tokens of a run, and their cost if a price is known.

    Args:
        result: The result of the run.
        is_complete: Whether the model reported the usage of every call.
    """
    from reyn.journal.results import tokens_text

    tokens = tokens_text(result.usage)
    if not is_complete:
        tokens = f"at least {tokens}" if result.usage.total else "tokens not reported"
    return f"{tokens}, {result.cost.text}" if result.cost is not None and result.cost.text else tokens


def charge_text(charge: Charge) -> str:
    """Format what a run was charged, for a table: rounded to four decimals, `unknown` without a price."""
    if not charge.calls:
        return "-"
    if not charge.currency:
        return "unknown"
    return f"{charge.cost / 1e9:.4f} {charge.currency}{' + ?' if charge.unpriced else ''}"


def coloured_line(entry: TimelineEntry) -> Styled:
    """Return an entry of a timeline as an indented line; failures are coloured."""
    return styled(f"{'  ' * entry.level}{clean(entry.text)}", "yellow" if entry.is_warning else "")


def coloured(status: str) -> Styled:
    """Colour a status."""
    return styled(status, COLOURS.get(status.split()[0], "white"), bold=True)


def command_line(action: NextAction | None) -> str:
    """Return the command line of an action, with this command's `--project`; empty if there is no action."""
    return "" if action is None else reyn_command(*_arguments(action))


def _arguments(action: NextAction) -> list[str]:
    arguments = [action.verb, *(["--run-id"] if action.verb == "chat" else []), action.run_id]
    if action.verb in ("resume", "answer", "fork"):
        arguments += dict.fromkeys((*action.switches, *_own_switches()))
    if action.question_id is not None:
        # Without `--`, a reply such as -1 would be an option.
        arguments += [action.question_id, *(["--"] if action.reply.startswith("-") else []), action.reply or "VALUE"]
    if action.retry:
        arguments.append("--retry")
    if action.upgrade:
        arguments.append("--upgrade")
    if action.model:
        arguments += ["--model", "MODEL"]
    if action.limit is not None:
        from reyn.config.budgets import limit_text

        value = "N" if action.value is None else limit_text(action.limit, action.value)
        arguments += ["--raise", f"{action.limit or 'LIMIT'}={value}"]
    return arguments


def _own_switches() -> list[str]:
    """Return the switches of this command: what it allowed, the next one has to allow as well."""
    context = click.get_current_context(silent=True)
    flags = context.obj if context is not None and context.obj else {}
    return [f"--{name.replace('_', '-')}" for name in ("allow_shell", "allow_unsafe_python") if flags.get(name)]


def reyn_command(*arguments: str) -> str:
    """Return a command line for this project."""
    import shlex

    context = click.get_current_context(silent=True)
    project = context.obj["project"] if context is not None and context.obj else None
    return shlex.join(["reyn", *(["--project", project] if project is not None else []), *arguments])


def result_as_json(result: RunResult) -> dict[str, Any]:
    """Return the result of a run as the object that `--json` prints."""
    fields: dict[str, Any] = msgspec.to_builtins(result)
    warnings = [full_warning(warning) for warning in result.warnings]
    return fields | {"hint": full_hint(result.code, result.hint), "warnings": warnings}


def result_lines(
    result: RunResult, *, took: str, is_complete: bool, files: Mapping[str, str], action: NextAction | None
) -> Iterator[Printed]:
    """Yield the result of a run: status, artifact, usage, changed files, warnings and the next action.

    Args:
        result: The result.
        took: The duration of the run.
        is_complete: Whether the model reported the usage of every call.
        files: The files that the run changed.
        action: The next action.
    """
    question = result.question
    awaited = f" for {'approval' if question and question.is_approval else 'input'}" * (result.status == "waiting")
    reason, preview = result.reason, ""
    if question is not None:
        reason, _, preview = reason.partition("\n")
    code = f" ({result.code})" if result.code else ""
    yield Line(coloured(result.status), f"{awaited}{f': {reason}{code}' if reason else ''}")
    # Indented, so that no line of a file looks like a line of this command.
    yield from (f"    {part}" for part in preview.rstrip("\n").split("\n") if preview)
    if result.hint:
        resuming = command_line(action) if action is not None and action.verb == "resume" else ""
        yield f"fix: {full_hint(result.code, result.hint, resuming)}"
    if result.code:
        yield f"more: {how_to_explain(result.code)}"
    if question is not None:
        yield from reply_lines(question)
    if result.artifact is not None:
        yield Raw(msgspec.json.format(msgspec.json.encode(result.artifact), indent=2).decode() + "\n")
    if result.path:
        yield f"path: {' → '.join(result.path)}"
    yield f"used: {used_text(result, is_complete=is_complete)}, {took}"
    if files:
        yield f"files: {_file_list(files)}"
    yield from (f"warning: {full_warning(warning)}" for warning in result.warnings)
    yield from next_lines(action)


def reply_lines(question: Question) -> Iterator[str]:
    """Yield the line with the replies that a question offers, or accepts, if there are any."""
    from reyn.journal.family import offered_replies

    if replies := offered_replies(question):
        label = "suggested" if question.suggestions else "accepted"
        yield f"{label}: {', '.join(short(text, 80) for text in replies)}"


def next_lines(action: NextAction | None) -> Iterator[str]:
    """Yield the command line of an action, if there is one."""
    if action is not None:
        yield f"next: {command_line(action)}"


def _file_list(files: Mapping[str, str]) -> str:
    listed = [f"{path} ({change})" for path, change in list(files.items())[:_MAX_FILES]]
    more = [f"and {len(files) - _MAX_FILES} more"] if len(files) > _MAX_FILES else []
    return ", ".join([*listed, *more])


_MIN_LAST = 24
"""The columns that the last cells of a table need. Where there are fewer, rows are blocks of lines."""


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str | Styled]]) -> Iterator[Line]:
    """Yield aligned columns. The last one is wrapped to fit the terminal."""
    columns = get_terminal_size().columns if is_terminal() else 0
    table = [[_cell(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column].text) for row in table) for column in range(len(header))]
    room = columns - sum(widths[:-1]) - 2 * (len(widths) - 1)
    if columns and room < min(widths[-1], _MIN_LAST):
        label = max(map(len, header[1:]), default=0)
        for row in table[1:]:
            yield Line(row[0])
            for name, cell in zip(header[1:], row[1:], strict=True):
                yield Line(f"  {name.lower():<{label}}  ", cell)
        return
    for row in chain.from_iterable(_wrapped(row, room) for row in table) if columns else table:
        while row and not row[-1].text:
            row.pop()
        gaps = (" " * (width - len(cell.text) + 2) for cell, width in zip(row[:-1], widths, strict=False))
        yield Line(*(part for cell, gap in zip(row, (*gaps, ""), strict=False) for part in (cell, gap)))


def _wrapped(row: list[Styled], room: int) -> Iterator[list[Styled]]:
    """Yield the lines of a row, the last cell of which has some columns."""
    from textwrap import wrap

    *cells, (text, codes) = row
    first, *others = wrap(text, room) or [""]
    yield [*cells, Styled(first, codes)]
    for line in others:
        yield [*(Styled("") for _ in cells), Styled(line, codes)]


def _cell(cell: str | Styled) -> Styled:
    text, codes = cell if isinstance(cell, Styled) else (cell, "")
    return Styled(clean(text), codes)


def now() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000


def age_text(microseconds: int) -> str:
    """Return an age for a table: `just now`, `4 min ago`, `2 h ago`, `3 d ago`."""
    seconds = microseconds // 1_000_000
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds // 60} min ago"
    return f"{seconds // 3600} h ago" if seconds < 2 * 86_400 else f"{seconds // 86_400} d ago"
