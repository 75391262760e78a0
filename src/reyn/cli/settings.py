"""The options that override a key of the configuration for one command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])

model_option = click.option(
    "--model",
    metavar="MODEL",
    help="A name from reyn.yaml, ADAPTER:NAME (openai, anthropic, gemini, litellm), local, or package.module:Class.",
)

_OPTIONS = (
    model_option,
    click.option(
        "--strict/--lenient", default=None, help="Enforce required fields at every depth, or at the top level only."
    ),
    click.option("--output-language", metavar="LANG", help="Language of natural-language output."),
    click.option("--max-phase-visits", type=click.IntRange(min=1), metavar="N", help="Maximum visits of one phase."),
    click.option(
        "--max-phase-retries",
        type=click.IntRange(min=0),
        metavar="N",
        help="Maximum retries after a rejected answer, per visit.",
    ),
    click.option(
        "--max-act-turns",
        type=click.IntRange(min=0),
        metavar="N",
        help="Maximum act turns (ops without a decision) per visit.",
    ),
)


def setting_options(command: F) -> F:
    """Add an option for each of these keys."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
