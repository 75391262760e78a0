"""`reyn secret`. Values come from a prompt, standard input or a variable, and are never printed."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from reyn.cli.output import clean, json_option, print_json

if TYPE_CHECKING:
    from reyn.secrets import SecretEntry

_MAX_BYTES = 1_000_000
"""Larger than any valid secret; bounds the read of an endless input."""


@click.group(epilog="Example: reyn secret set OPENAI_API_KEY")
def command() -> None:
    """Store, list and remove secrets. Configuration refers to a secret as `secret://NAME`.

    Secrets are stored in the system keyring, or in a file with mode 0600 if there is none. The environment variable
    `REYN_SECRET_<NAME>` takes precedence over both.
    """


@command.command(
    "set",
    epilog="Example: reyn secret set OPENAI_API_KEY < key.txt",
    # Extra arguments are rejected below without repeating them: one of them may be the value.
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
@click.argument("name")
@click.option("--from-env", "variable", metavar="VAR", help="Read the value from the variable VAR.")
@click.pass_context
def set_secret(context: click.Context, name: str, variable: str | None) -> None:
    """Store the secret NAME (capital letters, digits and `_`).

    Prompts for the value without echo, or reads it from standard input if that is not a terminal; a trailing newline
    is removed. The value cannot be an argument: other users and the shell history could see it.
    """
    from reyn.secrets import open_secrets
    from reyn.secrets.handles import validate_name

    if context.args:
        raise click.UsageError(
            "only `--from-env VAR` may follow NAME. Enter the value at the prompt or pass it on standard input: an "
            "argument would be visible in the shell history"
        )
    secrets = open_secrets()
    stored = secrets.set(validate_name(name), _value(name, variable))
    click.echo(f"stored {name} in {clean(stored.place)}")
    for place in stored.removed:
        click.echo(f"removed the previous value from {clean(place)}")
    _print_override(name)


@command.command("list", epilog="Example: reyn secret list --json")
@json_option
def list_secrets(as_json: bool) -> None:
    """List the names of secrets and where each is stored. Reads no values."""
    from reyn.secrets import open_secrets

    secrets = open_secrets().entries()
    if as_json:
        print_json(secrets)
        return
    if not secrets:
        click.echo("no secrets; store one with `reyn secret set NAME`")
        return
    width = max(len(secret.name) for secret in secrets)
    for secret in secrets:
        click.echo(f"{clean(secret.name):<{width}}  {_origin(secret)}")


@command.command("rm", epilog="Example: reyn secret rm OPENAI_API_KEY")
@click.argument("name")
def remove_secret(name: str) -> None:
    """Remove the secret NAME from every store."""
    from reyn.secrets import open_secrets

    for place in open_secrets().remove(name):
        click.echo(f"removed {name} from {clean(place)}")
    _print_override(name)


def _value(name: str, variable: str | None) -> str:
    if variable is not None:
        value = os.environ.get(variable, "")
        if not value:
            raise click.BadParameter("the variable is not set or empty", param_hint="--from-env")
        return value
    if sys.stdin is not None and sys.stdin.isatty():
        return _prompt(name)
    return _read_stdin()


def _prompt(name: str) -> str:
    from getpass import getpass

    try:
        return getpass(f"value of {name} (not shown): ", stream=sys.stderr)
    except EOFError:
        click.echo(err=True)
        raise click.Abort from None


def _read_stdin() -> str:
    if sys.stdin is None:
        raise click.UsageError("standard input is closed")
    try:
        return sys.stdin.buffer.read(_MAX_BYTES).decode("utf-8-sig").rstrip("\r\n")
    except OSError as error:
        raise click.UsageError(f"cannot read standard input: {error.strerror}") from error
    except UnicodeDecodeError:  # its message would quote the value
        raise click.UsageError("standard input is not UTF-8 text; encode a binary value as Base64") from None


def _origin(secret: SecretEntry) -> str:
    return f"{secret.store} (overrides {', '.join(secret.over)})" if secret.over else secret.store


def _print_override(name: str) -> None:
    from reyn.secrets.stores import variable_of

    variable = variable_of(name)
    if os.environ.get(variable):
        click.echo(f"note: the variable {variable} is set and takes precedence")
