"""Commands of the HTTP server: `serve`, `token`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from reyn.cli.groups import command, group
from reyn.cli.options import json_option, number_option
from reyn.cli.output import table_lines, time_of
from reyn.cli.project import open_existing_project, open_project, project_root
from reyn.cli.writer import Report, out

if TYPE_CHECKING:
    from reyn.gateway.server import Started

_SCOPES = ("view", "answer", "approve", "start", "admin")
_MAX_PORT = 65_535


@command(epilog="Example: reyn serve --port 8300")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", show_default=True, help="Address to bind.")
@click.option(
    "--port",
    type=click.IntRange(0, _MAX_PORT),
    default=8300,
    metavar="N",
    show_default=True,
    help="Port; 0: a free one.",
)
@click.option("--certificate", metavar="FILE", help="TLS certificate, with --key.")
@click.option("--key", metavar="FILE", help="Key of the certificate.")
@click.option(
    "--behind-proxy", metavar="URL", help="Public address of a proxy that encrypts: https://reyn.example.com."
)
@click.option("--no-work", is_flag=True, help="Execute no runs in this process; show and answer only.")
@number_option(
    "--concurrency",
    "Submitted runs to execute at once, where workers share them.",
    default=4,
    show_default=True,
    metavar="N",
)
@click.option("--log", is_flag=True, help="Log each request as a line of JSON on standard error, without content.")
@json_option
def serve_command(
    host: str,
    port: int,
    certificate: str | None,
    key: str | None,
    behind_proxy: str | None,
    no_work: bool,
    concurrency: int,
    log: bool,
) -> Report:
    """Serve web pages and the HTTP API of the project until Ctrl-C.

    Prints a link that signs a browser in, once. Programs use a token of `reyn token new`. The server executes the runs
    that its clients start; when it ends, they are interrupted and can be resumed. With a journal on PostgreSQL, or an
    `engine`, it is a worker of the queue `default` as well. `--no-work` turns both off.

    An address that other machines can reach needs a token, and a certificate or `--behind-proxy`.
    """
    from reyn.cli.people import user_name

    server = _gateway()
    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key belong together")
    if behind_proxy is not None and not behind_proxy.startswith("https://"):
        raise click.UsageError("--behind-proxy takes an address that begins with https://")
    settings = server.ServerSettings(host, port, certificate, key, behind_proxy, not no_work, concurrency)

    def on_start(started: Started) -> None:
        out.report(
            Report(
                {"url": started.url, "login_url": started.login_url},
                [f"Serving {project_root().resolve()} at {started.url}", f"Sign in, once: {started.login_url}"],
            )
        )

    runtime = open_project()
    runtime.services.check_owner()
    runtime.wait(
        server.serve(
            _with_chat(runtime.async_form),
            settings,
            user=user_name(),
            on_start=on_start,
            on_request=out.note if log else None,
        )
    )
    return Report(None, ["stopped"])


def _gateway() -> Any:
    """Return the module of the server. The error of a missing package names the extra."""
    from reyn.errors import ModuleUnloadable

    try:
        from reyn.gateway import server
    except ImportError as error:
        raise ModuleUnloadable(
            f"the server needs the package `{error.name}`", hint="Install it: `pip install 'reyn[serve]'`."
        ) from error
    return server


def _with_chat(runtime: Any) -> Any:
    from reyn.api import ChatRuntime

    return runtime if isinstance(runtime, ChatRuntime) else ChatRuntime(runtime.services)


@group(epilog="Example: reyn token new dashboard --scope view")
def token_command() -> None:
    """Create, list and revoke access tokens of the HTTP server."""


@token_command.command("new", epilog="Example: reyn token new ci --scope view --scope start --skill release_notes")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(_SCOPES),
    metavar="SCOPE",
    help=f"What it permits. May be repeated. One of {', '.join(_SCOPES)}. Default: view.",
)
@click.option("--skill", "skills", multiple=True, metavar="NAME", help="Only runs of this skill. May be repeated.")
@number_option("--days", "Days until it expires. Default: it does not expire.", metavar="N")
@json_option
def new(name: str, scopes: tuple[str, ...], skills: tuple[str, ...], days: int | None) -> Report:
    """Create the token NAME and print its secret, once.

    The journal stores a hash of it, and records NAME as the user who answered or started something with it.
    """
    from reyn.cli.output import now
    from reyn.gateway.access import new_token
    from reyn.journal.results import TokenScope

    runtime = open_project()
    runtime.services.check_owner()
    wanted = [scope for scope in get_args(TokenScope) if scope in (scopes or ("view",))]
    secret = new_token(
        runtime.services.journal,
        name,
        wanted,
        skills=skills,
        now=now(),
        seconds=days * 86_400 if days is not None else None,
    )
    return Report({"name": name, "scopes": wanted, "skills": skills, "secret": secret}, [secret])


@token_command.command("list", epilog="Example: reyn token list --json")
@json_option
def list_tokens() -> Report:
    """List tokens and the sessions of browsers."""
    tokens = open_existing_project().services.existing_journal.access_tokens()
    rows = [
        (
            one.name,
            "session" if one.is_session else "token",
            ", ".join(one.scopes),
            ", ".join(one.skills) or "all",
            time_of(one.created),
            time_of(one.expires) if one.expires else "never",
        )
        for one in tokens
    ]
    header = ("NAME", "KIND", "SCOPES", "SKILLS", "CREATED", "EXPIRES")
    value = [
        {
            "name": one.name,
            "is_session": one.is_session,
            "scopes": one.scopes,
            "skills": one.skills,
            "created": one.created,
            "expires": one.expires,
        }
        for one in tokens
    ]
    return Report(value, table_lines(header, rows) if rows else ["no tokens"])


@token_command.command(epilog="Example: reyn token revoke dashboard")
@click.argument("name")
@json_option
def revoke(name: str) -> Report:
    """Revoke the token NAME and the sessions that were opened with it."""
    from reyn.gateway.access import revoke_token

    runtime = open_project()
    runtime.services.check_owner()
    revoke_token(runtime.services.journal, name)
    return Report({"revoked": name}, [f"revoked {name}"])
