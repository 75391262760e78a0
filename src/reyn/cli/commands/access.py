"""Commands about access: `permissions`, `trust`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reyn.cli.groups import CommandGroup
from reyn.cli.output import clean, json_option, print_json, print_table, reyn_command, short, time_of
from reyn.cli.people import is_attended
from reyn.cli.project import open_existing_project, project_root, skill_name
from reyn.cli.trust import decide, print_wants
from reyn.documents import JsonError, decode_json
from reyn.errors import InputInvalid, ProjectNotFound, UsageError

if TYPE_CHECKING:
    from reyn.runtime.permissions import OpReport, OpVerdict, PermissionReport

_COLOURS = {"allow": "green", "ask": "magenta", "partly": "yellow", "deny": "red"}


@click.group(cls=CommandGroup, for_names="explain", epilog="Example: reyn permissions explain triage")
def permissions_command() -> None:
    """Explain what a skill may do; list and revoke standing approvals."""


@permissions_command.command(epilog="Example: reyn permissions explain triage --op file")
@click.argument("skill")
@click.option("--op", metavar="KIND|JSON", help="Decide about one op kind, or about one op with all its arguments.")
@json_option
def explain(skill: str, op: str | None, as_json: bool) -> None:
    """Explain what a skill may do before it runs.

    Prints the file zones, the ops, and each request with the rule that decides about it. `ask` means that a person
    decides, `partly` that rules grant only a part of the request. Nothing is executed.
    """
    with open_existing_project() as runtime:
        if op is not None:
            verdict = runtime.permissions.explain_op(skill_name(skill), _parse_op(op))
            print_json(verdict) if as_json else _print_verdict(verdict)
            return
        report = runtime.permissions.explain(skill_name(skill))
    print_json(report) if as_json else _print_report(report)


@permissions_command.command("list", epilog="Example: reyn permissions list --json")
@json_option
def list_approvals(as_json: bool) -> None:
    """List standing approvals.

    A standing approval lets one version of a skill execute an op although a rule says `ask`.
    """
    with open_existing_project() as runtime:
        approvals = runtime.permissions.approvals()
    if as_json:
        print_json(approvals)
        return
    if not approvals:
        click.echo("no standing approvals")
        return
    rows = [
        (
            str(approval.id),
            short(approval.skill, 40),
            approval.skill_hash[:12],
            short(approval.op, 40),
            short(approval.rule, 80),
            short(approval.by, 40),
            time_of(approval.at),
            clean(approval.run_id),
        )
        for approval in approvals
    ]
    print_table(("ID", "SKILL", "VERSION", "OP", "RULE", "BY", "AT", "RUN"), rows)


@permissions_command.command(epilog="Example: reyn permissions revoke --all")
@click.argument("approval_id", metavar="[ID]", type=int, required=False)
@click.option("--all", "is_all", is_flag=True, help="Revoke all standing approvals.")
@json_option
def revoke(approval_id: int | None, is_all: bool, as_json: bool) -> None:
    """Revoke a standing approval.

    The op then needs approval again, also in runs that have started.
    """
    if (approval_id is None) != is_all:
        raise click.UsageError("expected either ID or --all")
    with open_existing_project() as runtime:
        ids = [approval.id for approval in runtime.permissions.approvals()] if approval_id is None else [approval_id]
        for one in ids:
            runtime.permissions.revoke(one)
    if as_json:
        print_json({"revoked": ids})
        return
    click.echo(f"revoked {', '.join(map(str, ids))}" if ids else "no standing approvals")


def _parse_op(text: str) -> str | dict[str, Any]:
    if not text.lstrip().startswith("{"):
        return text
    try:
        op: dict[str, Any] = decode_json(text)
    except JsonError as error:
        hint = 'Pass a kind, or a JSON object such as {"kind": "file", "op": "read", "path": "notes.md"}.'
        raise InputInvalid(f"--op is not valid JSON: {error}", hint=hint) from error
    return op


def _print_report(report: PermissionReport) -> None:
    click.echo(f"skill: {clean(report.skill)}")
    click.echo("zones:")
    for zone in report.zones:
        click.echo(f"  {zone.access:<5}  {clean(zone.pattern)} ({clean(zone.place)})")
    click.echo("ops:" if report.ops else "ops: none")
    for op in report.ops:
        needs = f", needs `{op.permission}`: {_effect(op.effect)}, {clean(op.rule)}" if op.permission else ""
        click.echo(f"  {clean(op.kind)} in {clean(', '.join(op.phases))}{needs}")
    click.echo("requests:" if report.requests else "requests: none")
    for request in report.requests:
        owner = "" if request.skill == report.skill else f" of {request.skill}"
        target = f" {request.target}" if request.target else ""
        click.echo(f"  {_effect(request.effect)}  {clean(f'{request.capability}{target}{owner} ({request.place})')}")
        for rule in request.rules:
            click.echo(f"    by {clean(rule)}")
        for rule in request.exceptions:
            click.echo(f"    except {clean(rule)}")
        if request.reason:
            click.echo(f"    {clean(request.reason)}")
    click.echo("rules:" if report.rules else "rules: none")
    for rule_report in report.rules:
        place = f" ({rule_report.place})" if rule_report.place else ""
        click.echo(f"  {clean(f'{rule_report.rule}{place}')}")


def _print_verdict(verdict: OpReport | OpVerdict) -> None:
    place = f" ({clean(verdict.place)})" if verdict.place else ""
    click.echo(f"{_effect(verdict.effect)}: {clean(verdict.rule)}{place}")
    if verdict.reason:
        click.echo(f"  {clean(verdict.reason)}")
    if verdict.problem:
        click.echo(f"  it would fail: {clean(verdict.problem)}")
    allowed = f"allowed in {', '.join(verdict.phases)}" if verdict.phases else "no phase allows this op kind"
    click.echo(f"  {clean(allowed)}")


def _effect(effect: str) -> str:
    return click.style(effect, fg=_COLOURS[effect])


@click.command(epilog="Example: reyn trust --yes")
@click.argument("path", required=False)
@click.option("--yes", is_flag=True, help="Trust the project without a question.")
@click.option("--revoke", is_flag=True, help="Forget the decision about the project.")
@click.option("--list", "is_list", is_flag=True, help="List the decisions about all projects.")
@json_option
def trust_command(path: str | None, yes: bool, revoke: bool, is_list: bool, as_json: bool) -> None:
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
