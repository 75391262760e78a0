"""`reyn frame`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from reyn.cli.output import echo_lines, json_option, print_json
from reyn.cli.project import look_at_project, parse_input, skill_name
from reyn.errors import RunNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.runtime import SyncRuntime


@click.command(epilog='Example: reyn frame hello \'{"name": "Ada"}\'; reyn frame 20260704T120000-k3m9qxdt')
@click.argument("skill_or_run", metavar="SKILL|RUN")
@click.argument("input_or_seq", metavar="[INPUT|SEQ]", required=False)
@json_option
def command(skill_or_run: str, input_or_seq: str | None, as_json: bool) -> None:
    """Show the exact text of the first prompt of SKILL with INPUT, or of the prompt at event SEQ of RUN and its answer.

    Without INPUT, the input is empty. Without SEQ, the last prompt of the run is shown; with SEQ, the last one at or
    before that event. With --json, the context frame of a skill is one object. Nothing is executed or recorded. On a
    terminal, control characters are escaped.
    """
    with look_at_project() as runtime:
        is_of_run = input_or_seq is None or _is_number(input_or_seq)
        run = _named_run(runtime, skill_or_run) if is_of_run else None
        if run is not None:
            seen = runtime.frame_at(run, None if input_or_seq is None else int(input_or_seq))
            _print(seen, [{"role": role, "text": text} for role, text in seen] if as_json else None)
        else:
            frame = runtime.first_frame(skill_name(skill_or_run), parse_input(input_or_seq))
            _print(frame.messages, frame.as_json() if as_json else None)


def _is_number(words: str | None) -> bool:
    return words is not None and words.isascii() and words.isdigit() and len(words) < 19


def _named_run(runtime: SyncRuntime, words: str) -> str | None:
    """The run of this id or prefix, if there is one. A skill of the same name wins over a prefix."""
    is_skill = any(name == words for name, _, _ in runtime.library)
    if is_skill and not runtime.is_recorded(words):
        return None
    with suppress(RunNotFound):
        return runtime.find(words).run_id
    return None


def _print(messages: Iterable[tuple[str, str]], as_json: Any) -> None:
    if as_json is not None:
        print_json(as_json)
        return
    for role, text in messages:
        click.echo(f"[{role}]")
        echo_lines(text)
