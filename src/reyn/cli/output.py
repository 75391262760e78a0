"""How results look: JSON for programs, lines for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from reyn.journal import Event
    from reyn.kernel import RunResult

COLOURS = {"finished": "green", "running": "cyan", "failed": "red", "aborted": "red", "limited": "yellow"}

_YEAR_9999 = 253_370_764_800_000_000

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    click.echo(msgspec.json.encode(value).decode())


def clean(text: str) -> str:
    """Text from a model or a file, made safe for a terminal: one line, and no character that steers it."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def time_of(ts: int) -> str:
    """Event time for people, in UTC."""
    if not 0 <= ts < _YEAR_9999:
        return f"time {ts}"
    return datetime.fromtimestamp(ts / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def coloured(status: str) -> str:
    return click.style(status, fg=COLOURS.get(status.split()[0], "white"), bold=True)


class Progress:
    """Tells a run's steps as they become durable."""

    def __init__(self, *, err: bool) -> None:
        self.run_id = ""
        self._err = err

    def __call__(self, event: Event) -> None:
        self.run_id = event.run_id
        match decode(event):
            case kinds.RunStarted() as started:
                self._say(f"run {started.run_id} · {started.skill} · {started.model}")
            case kinds.RunResumed():
                self._say(f"run {event.run_id} · resumed")
            case kinds.PhaseStarted() as entered:
                self._say(f"  {entered.phase} (visit {entered.visit})")
            case kinds.ValidationError() as wrong:
                self._say(f"    rejected at {clean(wrong.path)}: {clean(wrong.message)}")
            case kinds.ControlDecided() as decided:
                target = decided.next_phase or decided.type
                self._say(f"    → {target}  {clean(decided.reason)}")

    def _say(self, line: str) -> None:
        click.echo(line, err=self._err)


def tell_result(result: RunResult) -> None:
    """The end of a run for people: its state, its artifact, what moves it on."""
    line = coloured(result.status)
    click.echo(f"{line}: {clean(result.reason)}" if result.reason else line)
    if result.artifact is not None:
        click.echo(msgspec.json.format(msgspec.json.encode(result.artifact), indent=2).decode())
    for warning in result.warnings:
        click.echo(f"warning: {warning}")
    hint = next_command(result)
    if hint:
        click.echo(f"next: {hint}")


def next_command(result: RunResult) -> str:
    """What moves the run on, if anything does."""
    match result.status:
        case "failed":
            return f"reyn resume {result.run_id} --retry"
        case "limited":
            return f"reyn resume {result.run_id} --raise max_phase_visits=N"
        case "running":
            return f"reyn resume {result.run_id}"
    return ""
