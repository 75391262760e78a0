"""`reyn secret`. Values come from a prompt, standard input or a variable, and are never printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from reyn.cli.groups import group
from reyn.cli.options import json_option
from reyn.cli.writer import Report, out

_MAX_BYTES = 1_000_000
"""Larger than any valid secret; bounds the read of an endless input."""


@group(epilog="Example: reyn secret set OPENAI_API_KEY")
def secret_command() -> None:
    """Store, list and remove secrets, and bind them to origins. Configuration refers to a secret as `secret://NAME`.

    Secrets are stored in the system keyring, or in a file with mode 0600 if there is none. The environment variable
    `REYN_SECRET_<NAME>` takes precedence over both.
    """


@secret_command.command(
    "set",
    epilog="Example: reyn secret set OPENAI_API_KEY < key.txt",
    # Extra arguments are rejected below without repeating them: one of them may be the value.
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
@click.argument("name")
@click.option("--from-env", "variable", metavar="VAR", help="Read the value from the variable VAR.")
@click.option("--origin", "origins", metavar="URL", multiple=True, help="Bind the secret to this origin; repeatable.")
@click.pass_context
def set_secret(context: click.Context, name: str, variable: str | None, origins: tuple[str, ...]) -> Report:
    """Store the secret NAME (capital letters, digits and `_`).

    Prompts for the value without echo, or reads it from standard input if that is not a terminal; a trailing newline
    is removed. The value cannot be an argument: other users and the shell history could see it.

    A secret is sent only to the origins that it is bound to: scheme, host and port. Without --origin, the first use in
    a trusted project binds it.
    """
    from reyn.config.user import user_config
    from reyn.secrets import handle_of, open_secrets, validate_origin
    from reyn.secrets.handles import validate_name

    if context.args:
        raise click.UsageError(
            "only `--from-env VAR` and `--origin URL` may follow NAME. Enter the value at the prompt or pass it on "
            "standard input: an argument would be visible in the shell history"
        )
    bound = [validate_origin(origin) for origin in origins]
    secrets = open_secrets()
    stored = secrets.set(validate_name(name), _value(name, variable))
    lines = [f"stored {name} in {stored.place}"]
    lines += [f"removed the previous value from {place}" for place in stored.removed]
    for origin in bound:
        user_config().allow(handle_of(name), origin)
        lines.append(f"{name} may be sent to {origin}")
    return Report(None, [*lines, *_override(name)])


@secret_command.command("list", epilog="Example: reyn secret list --json")
@json_option
def list_secrets() -> Report:
    """List secrets, where each is stored, and its origins.

    The origins are those that the secret may be sent to. Reads no values.
    """
    from reyn.config.user import user_config
    from reyn.secrets import handle_of, open_secrets

    bound = dict(user_config().read().secrets)
    listed: list[dict[str, Any]] = [
        {
            "name": secret.name,
            "store": secret.store,
            "over": secret.over,
            "origins": bound.pop(handle_of(secret.name), ()),
        }
        for secret in open_secrets().entries()
    ]
    # Bindings of variables, and of secrets that are not stored now.
    listed += [
        {"name": handle, "store": "", "over": (), "origins": origins} for handle, origins in sorted(bound.items())
    ]
    rows = [(one["name"], _store(one["store"], one["over"]), " ".join(one["origins"])) for one in listed]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    lines = [f"{name:<{widths[0]}}  {store:<{widths[1]}}  {origins}".rstrip() for name, store, origins in rows]
    return Report(listed, lines or ["no secrets; store one with `reyn secret set NAME`"])


@secret_command.command("allow", epilog="Example: reyn secret allow OPENAI_API_KEY https://api.openai.com")
@click.argument("name")
@click.argument("origin")
def allow_origin(name: str, origin: str) -> Report:
    """Allow sending the secret NAME to ORIGIN.

    ORIGIN is scheme, host and port of a server, such as https://api.example.com. NAME may be env://VARIABLE.
    """
    from reyn.config.user import user_config
    from reyn.secrets import validate_origin

    handle, checked = _handle(name), validate_origin(origin)
    user_config().allow(handle, checked)
    return Report(None, [f"{handle} may be sent to {', '.join(user_config().allowed(handle))}"])


@secret_command.command("revoke", epilog="Example: reyn secret revoke OPENAI_API_KEY https://old.example.com")
@click.argument("name")
@click.argument("origin", required=False)
def revoke_origin(name: str, origin: str | None) -> Report:
    """Stop sending the secret NAME to ORIGIN.

    Without ORIGIN, remove all origins of the secret.
    """
    from reyn.config.user import user_config
    from reyn.secrets import validate_origin

    handle = _handle(name)
    removed = user_config().revoke(handle, validate_origin(origin) if origin is not None else None)
    lines = [f"{handle} is no longer sent to {one}" for one in removed]
    return Report(None, lines or [f"{handle} was not bound to {origin or 'any origin'}"])


@secret_command.command("rm", epilog="Example: reyn secret rm OPENAI_API_KEY")
@click.argument("name")
def remove_secret(name: str) -> Report:
    """Remove the secret NAME from every store.

    The origins that it is bound to are removed, too.
    """
    from reyn.config.user import user_config
    from reyn.secrets import handle_of, open_secrets

    removed = [f"removed {name} from {place}" for place in open_secrets().remove(name)]
    user_config().revoke(handle_of(name))
    return Report(None, [*removed, *_override(name)])


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
    try:
        return out.ask_hidden(f"value of {name} (not shown): ")
    except EOFError:
        out.note()
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


def _handle(name: str) -> str:
    from reyn.secrets import handle_of
    from reyn.secrets.handles import is_variable_handle

    return name if is_variable_handle(name) else handle_of(name.removeprefix("secret://"))


def _store(store: str, over: Sequence[str]) -> str:
    return f"{store} (overrides {', '.join(over)})" if over else store


def _override(name: str) -> Iterator[str]:
    from reyn.secrets.stores import variable_of

    variable = variable_of(name)
    if os.environ.get(variable):
        yield f"note: the variable {variable} is set and takes precedence"
