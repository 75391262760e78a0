"""The options that several commands share, and their types. Imports nothing that `reyn --help` does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from reyn.cli.output import now

if TYPE_CHECKING:
    F = TypeVar("F", bound=Callable[..., Any])

# Help texts contain these values of packages that help does not import. A test compares them.
STATUSES = ("running", "finished", "failed", "limited", "waiting", "aborted", "cancelled", "blocked")
SHOWN_STATUSES = ("queued", "interrupted")
ENDED = ("finished", "aborted", "cancelled")
GROUPINGS = ("day", "skill", "model", "run")
MAX_ARCHIVE_BYTES = 256 << 20
LIMITS = (
    *("max_phase_visits", "max_act_turns", "phase_seconds", "run_seconds", "tokens", "no_progress"),
    *("message_runs", "message_depth", "message_tokens", "sub_runs", "model_calls"),
    *("max_prompt_tokens", "run_tokens", "run_cost", "skill_tokens", "skill_cost", "day_tokens", "day_cost"),
    *("skill_day_tokens", "skill_day_cost", "overrun"),
)


def _store(key: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    """Return a callback that stores a flag for the whole command line."""

    def store(context: click.Context, option: click.Parameter, value: bool) -> None:
        flags = context.ensure_object(dict)
        flags[key] = value or flags.get(key, False)

    return store


def _switch(name: str, key: str, text: str) -> Callable[[F], F]:
    return click.option(name, is_flag=True, expose_value=False, callback=_store(key), help=text)


json_option = _switch("--json", "json", "Print JSON.")
model_option = click.option(
    "--model",
    metavar="MODEL",
    help="A name from reyn.yaml, ADAPTER:NAME (openai, anthropic, gemini, litellm), local, scripted:FILE (answers, "
    "one a line), recorded:RUN (the answers of a run), or package.module:Class.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Print the runs without deleting them.")


def number_option(name: str, text: str, *, least: int = 1, **settings: Any) -> Callable[[F], F]:
    """Return an option that takes a number of at least `least`."""
    return click.option(name, type=click.IntRange(min=least), help=text, **settings)


NO_LIMIT = object()
"""The value of an option that removes a limit. `None` is an option that was not used."""


class NumberOrNone(click.IntRange):
    """A number of at least `min`, or `none` for no limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return NO_LIMIT if value is NO_LIMIT or value == "none" else super().convert(value, param, ctx)


def limit_option(name: str, text: str, *, least: int = 1) -> Callable[[F], F]:
    """Return an option that takes a number of at least `least`, or `none`."""
    return click.option(name, type=NumberOrNone(min=least), metavar="N|none", help=text)


def chosen_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration keys that options set, without those of options that were not used."""
    return {key: None if value is NO_LIMIT else value for key, value in options.items() if value is not None}


def choice_option(name: str, choices: tuple[str, ...], text: str, **settings: Any) -> Callable[[F], F]:
    """Return an option that takes one of several words; the first is the default."""
    return click.option(name, type=click.Choice(choices), default=choices[0], show_default=True, help=text, **settings)


def _joined(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds several options."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


setting_options = _joined(
    model_option,
    click.option(
        "--strict/--lenient", default=None, help="Enforce required fields at every depth, or at the top level only."
    ),
    click.option("--output-language", metavar="LANG", help="Language of natural-language output."),
    limit_option("--max-phase-visits", "Maximum visits of one phase; `none` removes the limit."),
    number_option("--max-phase-retries", "Maximum retries after a rejected answer, per visit.", least=0, metavar="N"),
    limit_option(
        "--max-act-turns",
        "Maximum act turns (ops without a decision) per visit; `none` uses that of the phase.",
        least=0,
    ),
)
"""An option for each of these keys of the configuration."""

execution_options = _joined(
    _switch("--allow-shell", "allow_shell", "Let skills run shell commands that a rule grants."),
    _switch(
        "--allow-unsafe-python",
        "allow_unsafe_python",
        "Let skills run their unsafe python steps with your rights.",
    ),
    click.option("--no-input", is_flag=True, help="Do not ask questions at the terminal; the run waits instead."),
    click.option(
        "--stream",
        is_flag=True,
        help="Print the model's text as it arrives. With --json: one JSON object a line, the result last.",
    ),
    json_option,
)
"""The options of all commands that execute a run; `open_project` reads the first two."""

_AGE = re.compile(r"([0-9]{1,9})(s|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Age(click.ParamType[int]):
    """Parses an age into the time it denotes, in microseconds since 1970."""

    name = "age"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if match := _AGE.fullmatch(value):
            return now() - int(match[1]) * _SECONDS[match[2]] * 1_000_000
        try:
            date = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"`{value}` is neither an age (30m, 2h, 3d, 1w) nor a date (2026-07-04)", param, ctx)
        return int((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1_000_000)
