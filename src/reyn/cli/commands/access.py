"""Commands about access: `permissions`, `trust`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reyn.cli.groups import command, group
from reyn.cli.options import json_option
from reyn.cli.output import reyn_command, short, table_lines, time_of
from reyn.cli.project import open_existing_project, project_root, skill_name
from reyn.cli.writer import Line, Printed, Report, Styled, is_attended, out, styled, wants_json
from reyn.errors import ConfigError, InputInvalid, ProjectNotFound, UsageError

if TYPE_CHECKING:
    from reyn.runtime.permissions import OpReport, PermissionReport

_COLOURS = {"allow": "green", "ask": "magenta", "partly": "yellow", "deny": "red"}


@group(for_names="explain", epilog="Example: reyn permissions explain triage")
def permissions_command() -> None:
    """Explain what a skill may do; list and revoke standing approvals."""


@permissions_command.command(epilog="Example: reyn permissions explain triage --op file")
@click.argument("skill")
@click.option("--op", metavar="KIND|JSON", help="Decide about one op kind, or about one op with all its arguments.")
@json_option
def explain(skill: str, op: str | None) -> Report:
    """Explain what a skill may do before it runs.

    Prints the file zones, the ops, and each request with the rule that decides about it. `ask` means that a person
    decides, `partly` that rules grant only a part of the request. Nothing is executed.
    """
    permissions = open_existing_project().permissions
    if op is not None:
        verdict = permissions.explain_op(skill_name(skill), _parse_op(op))
        return Report(verdict, _verdict_lines(verdict))
    report = permissions.explain(skill_name(skill))
    return Report(report, _report_lines(report))


@permissions_command.command("list", epilog="Example: reyn permissions list --json")
@json_option
def list_approvals() -> Report:
    """List standing approvals.

    A standing approval lets one version of a skill execute an op although a rule says `ask`.
    """
    permissions = open_existing_project().permissions
    approvals = permissions.approvals()
    rows = [
        (
            str(approval.id),
            short(approval.skill, 40),
            approval.skill_hash[:12],
            short(approval.op, 40),
            short(approval.rule, 80),
            short(approval.by, 40),
            time_of(approval.at),
            approval.run_id,
        )
        for approval in approvals
    ]
    lines = list(table_lines(("ID", "SKILL", "VERSION", "OP", "RULE", "BY", "AT", "RUN"), rows))
    if others := [str(approval.id) for approval in approvals if not permissions.is_effective(approval)]:
        lines.append(Line(f"no effect, because they were given in another project: {', '.join(others)}"))
    return Report(approvals, lines if rows else ["no standing approvals"])


@permissions_command.command(epilog="Example: reyn permissions revoke --all")
@click.argument("approval_id", metavar="[ID]", type=int, required=False)
@click.option("--all", "is_all", is_flag=True, help="Revoke all standing approvals.")
@json_option
def revoke(approval_id: int | None, is_all: bool) -> Report:
    """Revoke a standing approval.

    The op then needs approval again, also in runs that have started.
    """
    if (approval_id is None) != is_all:
        raise click.UsageError("expected either ID or --all")
    permissions = open_existing_project().permissions
    ids = [approval.id for approval in permissions.approvals()] if approval_id is None else [approval_id]
    for one in ids:
        permissions.revoke(one)
    revoked = f"revoked {', '.join(map(str, ids))}" if ids else "no standing approvals"
    return Report({"revoked": ids}, [revoked])


def _parse_op(text: str) -> str | dict[str, Any]:
    from reyn.documents import JsonError, decode_json

    if not text.lstrip().startswith("{"):
        return text
    try:
        op: dict[str, Any] = decode_json(text)
    except JsonError as error:
        hint = 'Pass a kind, or a JSON object such as {"kind": "file", "op": "read", "path": "notes.md"}.'
        raise InputInvalid(f"--op is not valid JSON: {error}", hint=hint) from error
    return op


def _report_lines(report: PermissionReport) -> Iterator[Printed]:
    yield f"skill: {report.skill}"
    yield "zones:"
    yield from (f"  {zone.access:<5}  {zone.pattern} ({zone.place})" for zone in report.zones)
    yield "ops:" if report.ops else "ops: none"
    for op in report.ops:
        line = f"  {op.kind} in {', '.join(op.phases)}"
        needs = (f", needs `{op.permission}`: ", _effect(op.effect), f", {op.rule}") if op.permission else ()
        yield Line(line, *needs)
    yield "requests:" if report.requests else "requests: none"
    for request in report.requests:
        owner = "" if request.skill == report.skill else f" of {request.skill}"
        target = f" {request.target}" if request.target else ""
        yield Line("  ", _effect(request.effect), f"  {request.capability}{target}{owner} ({request.place})")
        yield from (f"    by {rule}" for rule in request.rules)
        yield from (f"    except {rule}" for rule in request.exceptions)
        if request.reason:
            yield f"    {request.reason}"
    yield "rules:" if report.rules else "rules: none"
    yield from (f"  {one.rule}{f' ({one.place})' if one.place else ''}" for one in report.rules)


def _verdict_lines(verdict: OpReport) -> Iterator[Printed]:
    place = f" ({verdict.place})" if verdict.place else ""
    yield Line(_effect(verdict.effect), f": {verdict.rule}{place}")
    if verdict.reason:
        yield f"  {verdict.reason}"
    if verdict.problem:
        yield f"  it would fail: {verdict.problem}"
    yield f"  allowed in {', '.join(verdict.phases)}" if verdict.phases else "  no phase allows this op kind"


def _effect(effect: str) -> Styled:
    return styled(effect, _COLOURS[effect])


@command(epilog="Example: reyn trust --yes")
@click.argument("path", required=False)
@click.option("--yes", is_flag=True, help="Trust the project without a question.")
@click.option("--revoke", is_flag=True, help="Forget the decision about the project.")
@click.option("--list", "is_list", is_flag=True, help="List the decisions about all projects.")
@json_option
def trust_command(path: str | None, yes: bool, revoke: bool, is_list: bool) -> Report:
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
        return _list()
    root = (project_root() if path is None else Path(path)).resolve()
    if revoke:
        return _revoke(root)
    if not root.is_dir():
        raise ProjectNotFound(f"no folder `{path}`")
    return _trust(root, yes=yes)


def _trust(root: Path, *, yes: bool) -> Report:
    from reyn.cli.project import decide, print_wants
    from reyn.permissions.trust import load_project
    from reyn.runtime.project import inspect_journal

    loaded, journal = load_project(root), inspect_journal(root)
    needs_trust = loaded.trust.grants or not journal.is_own
    if not wants_json():
        if not needs_trust:
            return Report(None, [f"{root} has no settings that need trust"])
        print_wants(loaded, journal, err=False)
        if not loaded.trust.ignored and journal.is_own:
            is_trusted = loaded.trust.state == "trusted"
            return Report(None, ["already trusted" if is_trusted else "the secrets are bound already"])
        if not yes and not is_attended():
            raise UsageError("cannot ask: this is not a terminal", hint="Review the list, then run `reyn trust --yes`.")
        decide(loaded, is_trusted=yes or out.confirm("Trust this project?"), err=False)
        return Report(None)
    if yes and needs_trust:
        decide(loaded, is_trusted=True)
        loaded, journal = load_project(root), inspect_journal(root)
    trust = loaded.trust
    fields = {"path": trust.root, "state": trust.state, "grants": trust.grants, "ignored": trust.ignored}
    return Report(fields | {"journal": journal, "digest": trust.digest})


def _revoke(root: Path) -> Report:
    from reyn.config.user import user_config
    from reyn.permissions.trust import bound_secrets

    existed = user_config().decide(root, None)
    bound = bound_secrets(root)
    lines = [f"{'revoked' if existed else 'no decision about'} {root}"]
    for handle, origin in bound:
        remove = reyn_command("secret", "revoke", handle.removeprefix("secret://"), origin)
        lines.append(f"{handle} may still be sent to {origin}; remove that with: {remove}")
    return Report({"path": str(root), "revoked": existed, "bound": bound}, lines)


def _list() -> Report:
    from reyn.config.user import user_config
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
    none = "no decisions; `reyn trust` in a project lists the settings that need trust"
    return Report(listed, [f"{one['state']:<10}  {one['path']}" for one in listed] or [none])
