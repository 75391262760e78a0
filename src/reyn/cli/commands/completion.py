"""`reyn completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(epilog="Example: reyn completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script that completes the words of `reyn` in SHELL."""
    from reyn.cli.app import app

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(app, {}, "reyn", "_REYN_COMPLETE").source())
