"""`reyn trust`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reyn.cli.output import clean, json_option, print_json, reyn_command
from reyn.cli.people import is_attended
from reyn.cli.project import project_root
from reyn.cli.trust import decide, print_wants
from reyn.errors import ProjectNotFound, UsageError


@click.command(epilog="Example: reyn trust --yes")
@click.argument("path", required=False)
@click.option("--yes", is_flag=True, help="Trust the project without a question.")
@click.option("--revoke", is_flag=True, help="Forget the decision about the project.")
@click.option("--list", "is_list", is_flag=True, help="List the decisions about all projects.")
@json_option
def command(path: str | None, yes: bool, revoke: bool, is_list: bool, as_json: bool) -> None:
    """List the settings of the project at PATH that grant access, and ask whether to trust the project.

    PATH is the current project by default. These settings in reyn.yaml and reyn.local.yaml grant access: wider file
    zones, permissions, secrets for new servers, Python code to load, and MCP servers. Reyn ignores them until you trust
    the project; other settings need no trust. If these settings change later, Reyn asks again. It stores your decision
    in your user configuration, outside the project.

    A journal that another user created needs trust, too. Until then, its runs can be read but not continued.
    """
    if sum((yes, revoke, is_list)) > 1:
        raise click.UsageError("--yes, --revoke and --list exclude each other")
    if is_list:
        if path is not None:
            raise click.UsageError("--list takes no PATH")
        _list(as_json=as_json)
        return
    root = (project_root() if path is None else Path(path)).resolve()
    if revoke:
        _revoke(root, as_json=as_json)
        return
    if not root.is_dir():
        raise ProjectNotFound(f"no folder `{path}`")
    _trust(root, yes=yes, as_json=as_json)


def _trust(root: Path, *, yes: bool, as_json: bool) -> None:
    from reyn.permissions.trust import load_project
    from reyn.runtime.project import inspect_journal

    loaded, journal = load_project(root), inspect_journal(root)
    if not as_json:
        if not loaded.trust.grants and journal.is_own:
            click.echo(f"{clean(str(root))} has no settings that need trust")
            return
        print_wants(loaded, journal, err=False)
        if not loaded.trust.ignored and journal.is_own:
            click.echo("already trusted" if loaded.trust.state == "trusted" else "the secrets are bound already")
            return
        if not yes and not is_attended():
            raise UsageError("cannot ask: this is not a terminal", hint="Review the list, then run `reyn trust --yes`.")
        decide(loaded, is_trusted=yes or click.confirm("Trust this project?", default=False, err=True), err=False)
        return
    if yes and (loaded.trust.grants or not journal.is_own):
        decide(loaded, is_trusted=True)
        loaded, journal = load_project(root), inspect_journal(root)
    trust = loaded.trust
    fields = {"path": trust.root, "state": trust.state, "grants": trust.grants, "ignored": trust.ignored}
    print_json(fields | {"journal": journal, "digest": trust.digest})


def _revoke(root: Path, *, as_json: bool) -> None:
    from reyn.config import user_config
    from reyn.permissions.trust import bound_secrets

    existed = user_config().decide(root, None)
    bound = bound_secrets(root)
    if as_json:
        print_json({"path": str(root), "revoked": existed, "bound": bound})
        return
    click.echo(f"{'revoked' if existed else 'no decision about'} {clean(str(root))}")
    for handle, origin in bound:
        command = reyn_command("secret", "revoke", handle.removeprefix("secret://"), origin)
        click.echo(f"{handle} may still be sent to {origin}; remove that with: {command}")


def _list(*, as_json: bool) -> None:
    from reyn.config import user_config
    from reyn.errors import ConfigError
    from reyn.permissions.trust import load_project

    listed: list[dict[str, Any]] = []
    for path, entry in sorted(user_config().read().projects.items()):
        state = "trusted" if entry.trusted else "declined"
        try:
            trust = load_project(Path(path)).trust
            state = state if trust.digest == entry.wants else "changed"
        except ConfigError:
            state = "unreadable"
        listed.append({"path": path, "state": state if Path(path).is_dir() else "missing"})
    if as_json:
        print_json(listed)
        return
    for one in listed:
        click.echo(f"{one['state']:<10}  {clean(one['path'])}")
    if not listed:
        click.echo("no decisions; `reyn trust` in a project lists the settings that need trust")
