"""The flags that set a key of the configuration for one command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])

_FLAGS = (
    click.option("--model", metavar="MODEL", help="scripted:FILE, recorded:RUN, or a name from reyn.yaml."),
    click.option("--strict/--lenient", default=None, help="Enforce required fields at every depth."),
    click.option("--output-language", metavar="LANG", help="The language of natural-language output."),
    click.option("--max-phase-visits", type=click.IntRange(min=1), metavar="N", help="Visits of one phase, at most."),
    click.option(
        "--max-phase-retries", type=click.IntRange(min=0), metavar="N", help="Re-prompts in one visit, at most."
    ),
    click.option(
        "--max-act-turns", type=click.IntRange(min=0), metavar="N", help="Turns with ops in one visit, at most."
    ),
)


def setting_flags(command: F) -> F:
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command
