"""`reyn secret`. A value enters by a prompt, standard input or a variable, and is never written out."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from reyn.cli.output import clean, json_option, print_json

if TYPE_CHECKING:
    from reyn.secrets import SecretEntry

_MOST_BYTES = 1_000_000
"""More than any value may have: an endless input comes to an end."""


@click.group(epilog="Example: reyn secret set OPENAI_API_KEY")
def command() -> None:
    """Store, list and remove secrets. Everything else refers to one by its handle, `secret://NAME`.

    A secret is kept in the keyring of this machine where one works, else in a file that you alone may read. A variable
    `REYN_SECRET_NAME` wins over both.
    """


@command.command(
    "set",
    epilog="Example: reyn secret set OPENAI_API_KEY < key.txt",
    # What follows NAME is refused below, in words that do not repeat it: it may be the value.
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
@click.argument("name")
@click.option("--from-env", "variable", metavar="VAR", help="Take the value from the variable VAR.")
@click.pass_context
def set_secret(context: click.Context, name: str, variable: str | None) -> None:
    """Store the secret NAME: capital letters, digits and `_`.

    The value is asked for without showing it, or read from standard input if that is no terminal (the end of its last
    line does not count). It is never taken from the command line, which other users and your shell's history see.
    """
    from reyn.secrets import open_secrets
    from reyn.secrets.handles import validate_name

    if context.args:
        raise click.UsageError(
            "after NAME only `--from-env VAR` may follow. A value comes from the prompt or from standard input; one "
            "that was typed on a command line is known to your shell's history."
        )
    secrets = open_secrets()
    kept = secrets.set(validate_name(name), _value(name, variable))
    click.echo(f"stored {name} in {clean(kept.place)}")
    for place in kept.removed:
        click.echo(f"removed an older one from {clean(place)}")
    _tell_hidden(name)


@command.command("list", epilog="Example: reyn secret list --json")
@json_option
def list_secrets(as_json: bool) -> None:
    """List the secrets by name, each with its store.

    No value is read or shown.
    """
    from reyn.secrets import open_secrets

    entries = open_secrets().entries()
    if as_json:
        print_json(entries)
        return
    if not entries:
        click.echo("no secrets yet; `reyn secret set NAME` stores one")
        return
    width = max(len(secret.name) for secret in entries)
    for secret in entries:
        click.echo(f"{clean(secret.name):<{width}}  {_origin(secret)}")


@command.command("rm", epilog="Example: reyn secret rm OPENAI_API_KEY")
@click.argument("name")
def remove_secret(name: str) -> None:
    """Remove the secret NAME from where it is stored."""
    from reyn.secrets import open_secrets

    for place in open_secrets().remove(name):
        click.echo(f"removed {name} from {clean(place)}")
    _tell_hidden(name)


def _value(name: str, variable: str | None) -> str:
    if variable is not None:
        value = os.environ.get(variable, "")
        if not value:
            raise click.BadParameter("no such variable, or an empty one.", param_hint="--from-env")
        return value
    if sys.stdin is not None and sys.stdin.isatty():
        return _typed(name)
    return _piped()


def _typed(name: str) -> str:
    from getpass import getpass

    try:
        return getpass(f"value of {name} (not shown): ", stream=sys.stderr)
    except EOFError:
        click.echo(err=True)
        raise click.Abort from None


def _piped() -> str:
    if sys.stdin is None:
        raise click.UsageError("standard input is closed; the value is read from there.")
    try:
        return sys.stdin.buffer.read(_MOST_BYTES).decode("utf-8-sig").rstrip("\r\n")
    except OSError as error:
        raise click.UsageError(f"standard input cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:  # whose words would quote the value
        raise click.UsageError("standard input is not UTF-8 text; give a binary value as Base64.") from None


def _origin(secret: SecretEntry) -> str:
    return f"{secret.store} (over {', '.join(secret.over)})" if secret.over else secret.store


def _tell_hidden(name: str) -> None:
    from reyn.secrets.stores import variable_of

    variable = variable_of(name)
    if os.environ.get(variable):
        click.echo(f"note: the variable {variable} is set, and wins")
