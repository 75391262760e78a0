"""`reyn completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(epilog="Example: reyn completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a completion script for SHELL."""
    from reyn.cli.app import app

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(app, {}, "reyn", "_REYN_COMPLETE").source())
