"""`reyn frame`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from reyn.cli.output import clean, echo_lines, json_option, print_json
from reyn.cli.project import open_existing_project, parse_input, skill_name
from reyn.cli.prompt_bars import section_json, section_table
from reyn.cli.settings import model_option
from reyn.errors import RunNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.context.budget import FrameSection
    from reyn.runtime import SyncRuntime


@click.command(epilog='Example: reyn frame hello \'{"name": "Ada"}\'; reyn frame order-17')
@click.argument("skill_or_run", metavar="SKILL|RUN")
@click.argument("input_or_seq", metavar="[INPUT|SEQ]", required=False)
@click.option("--phase", metavar="PHASE", help="Phase of SKILL to show. Default: the entry phase.")
@model_option
@click.option("--tokens", is_flag=True, help="Show the estimated tokens of each section instead of the prompt.")
@click.option(
    "--next", "answer", metavar="TEXT", help="Show the prompt that RUN would send next if TEXT answers its question."
)
@click.option("--messages", is_flag=True, help="With --json: print the messages and the answer, not the context frame.")
@json_option
def command(
    skill_or_run: str,
    input_or_seq: str | None,
    phase: str | None,
    model: str | None,
    tokens: bool,
    answer: str | None,
    messages: bool,
    as_json: bool,
) -> None:
    """Print the first prompt of SKILL for INPUT, or a recorded prompt of RUN with the model's answer.

    With SKILL, INPUT is the input of the entry phase, or of the phase that --phase names; empty by default. With RUN,
    the command prints the last prompt at or before event SEQ; by default the last prompt of the run. With --next, it
    prints the prompt that a waiting run would send if the user replied TEXT. Nothing is executed or recorded.

    The form of the answer depends on the configured model, or on --model. If the model has native tools, they follow
    the messages. If the model of RUN chose before it answered, messages with the roles `choice:…` and `topic:…` are the
    prompts of that step. If a part of the prompt was truncated, a table with the size of each section follows.

    --json prints the context frame, the data that the prompt is rendered from. With --messages or --next, --json prints
    a list of messages with `role` and `text`, for RUN followed by the answer.
    """
    with open_existing_project(model=model) as runtime:
        may_be_run = phase is None and model is None and (input_or_seq is None or _is_number(input_or_seq))
        run = _find_run(runtime, skill_or_run) if may_be_run else None
        if answer is not None:
            if run is None:
                raise RunNotFound(f"no run `{skill_or_run}`")
            texts = runtime.runs.next_prompt(run, answer or None)
            if as_json:
                print_json([{"role": role, "text": text} for role, text in texts])
            else:
                _print(texts)
            return
        if run is not None:
            seq = None if input_or_seq is None else int(input_or_seq)
            is_value = as_json and not tokens and not messages
            frame = runtime.runs.context_frame(run, seq) if is_value else None
            sections = runtime.runs.prompt_sections(run, seq)
            texts = runtime.runs.prompt_at(run, seq)
        else:
            frame = runtime.project.first_frame(skill_name(skill_or_run), parse_input(input_or_seq), phase=phase)
            sections, texts = frame.sections, list(frame.messages)
            if input_or_seq is None:
                click.echo(f"note: no INPUT; the prompt has an empty `{frame.input_artifact['type']}`", err=True)
        for warning in frame.warnings if frame is not None else ():
            click.echo(f"warning: {clean(warning)}", err=True)
        if tokens:
            _print_sections(sections, as_json)
        elif as_json and messages:
            print_json([{"role": role, "text": text} for role, text in texts])
        elif as_json and frame is not None:
            print_json(frame.as_json())
        else:
            _print(texts)
            if any(section.was_truncated for section in sections):
                click.echo("[tokens]")
                _print_sections(sections, as_json=False)


def _is_number(argument: str) -> bool:
    return argument.isascii() and argument.isdigit() and len(argument) < 19


def _find_run(runtime: SyncRuntime, argument: str) -> str | None:
    """Return the run with this id or prefix, if there is one. A skill name takes precedence over a prefix."""
    is_skill = any(name == argument for name, _, _ in runtime.project.library)
    if is_skill and not runtime.runs.is_recorded(argument):
        return None
    with suppress(RunNotFound):
        return runtime.runs.find(argument).run_id
    return None


def _print(messages: Iterable[tuple[str, str]]) -> None:
    for role, text in messages:
        click.echo(f"[{role}]")
        echo_lines(text)


def _print_sections(sections: tuple[FrameSection, ...], as_json: bool) -> None:
    if as_json:
        total = sum(section.tokens for section in sections)
        print_json({"tokens": total, "sections": [section_json(section) for section in sections]})
    else:
        click.echo(section_table(sections), nl=False)
