"""`reyn mcp`: add, list and test MCP servers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from reyn.cli.groups import group
from reyn.cli.options import json_option
from reyn.cli.output import reyn_command
from reyn.cli.project import open_project, project_root
from reyn.cli.writer import Report, is_attended, out, wants_json
from reyn.errors import ReynError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.ops.mcp import ToolDefinitions
    from reyn.runtime import SyncRuntime

_LOCAL = "reyn.local.yaml"


@group(epilog="Example: reyn mcp list")
def mcp_command() -> None:
    """Add, list and test MCP servers. A phase uses their tools as ops: `allowed_ops: [mcp:SERVER/TOOL]`.

    A tool can be used after you have accepted its definition with `reyn mcp test`. If the server changes the definition
    later, calls are denied until you accept the change.
    """


@mcp_command.command("list", epilog="Example: reyn mcp list --json")
@json_option
def list_servers() -> Report:
    """List the configured servers and the tools that were accepted. Connects to nothing."""
    runtime = open_project()
    rows = [_row(runtime, name) for name in runtime.project.config.mcp.servers]
    ignored = [grant.text for grant in runtime.project.trust.ignored if grant.key.startswith("mcp.servers.")]
    lines: list[str] = []
    for row in rows:
        count = "no tools accepted" if row["tools"] is None else f"{len(row['tools'])} tools"
        lines.append(f"{row['server']}  {row['connection']}  {count}")
        lines += [f"  mcp:{row['server']}/{tool}" for tool in row["tools"] or ()]
    if not rows and not ignored:
        lines.append(f"no MCP servers; add one: {reyn_command('mcp', 'add', 'NAME', '--', 'PROGRAM')}")
    for text in ignored if not wants_json() else ():
        out.note(f"ignored until you trust the project: {text}")
    return Report({"servers": rows, "ignored": ignored}, lines)


def _row(runtime: SyncRuntime, name: str) -> dict[str, Any]:
    server = runtime.project.config.mcp.servers[name]
    try:
        accepted = runtime.project.accepted_mcp_tools(name)
        problem = None
    except ReynError as error:
        accepted, problem = None, error.message
    tools = [tool.name for tool in accepted.tools] if accepted else None
    connection = " ".join(server.command) if server.command else str(server.url)
    return {"server": name, "connection": connection, "trusted": server.trusted, "tools": tools, "problem": problem}


@mcp_command.command("test", epilog="Example: reyn mcp test git")
@click.argument("server")
@click.option("--accept", is_flag=True, help="Accept the definitions without a question.")
@json_option
def test_server(server: str, accept: bool) -> Report:
    """Connect to SERVER, and ask whether to accept its tools.

    Shows the tools that are new, changed or gone since they were accepted.

    Exits with 1 if there are changes that were not accepted.
    """
    runtime = open_project()
    found, before = runtime.project.mcp_tools(server), _accepted(runtime, server)
    changes = found.changes(before)
    for name in found.unusable:
        out.note(f"not usable as an op because of its name: {name}")
    is_accepted = not changes or _decide(runtime, found, changes, accept=accept)
    tools = [{"name": tool.name, "description": tool.description} for tool in found.tools]
    value = {"server": server, "tools": tools, "unusable": found.unusable, "changes": changes}
    lines = [] if changes else [f"{server}: OK, {len(found.tools)} tools, none has changed"]
    return Report(value | {"accepted": is_accepted}, lines, 0 if is_accepted else 1)


def _accepted(runtime: SyncRuntime, server: str) -> ToolDefinitions | None:
    try:
        return runtime.project.accepted_mcp_tools(server)
    except ReynError:
        return None  # a malformed file is replaced by what is accepted now


def _decide(runtime: SyncRuntime, found: ToolDefinitions, changes: list[str], *, accept: bool) -> bool:
    """Show the changes as the model would see them, ask, and write the definitions if they are accepted."""
    from reyn.ops.mcp import shown_to_model

    for change in changes if not wants_json() else ():
        tool = found.tool(change[2:])
        shown = shown_to_model(found.server, tool) if tool else None
        out.line(f"{change}  {shown.summary if shown else ''}".rstrip())
        for text in (shown.arguments, shown.inner) if shown else ():
            if text:
                out.line(f"    {text}")
    if not accept:
        if wants_json() or not is_attended():
            return False
        if not out.confirm("Accept these definitions?"):
            return False
    path = runtime.project.accept_mcp_tools(found)
    if not wants_json():
        place = path.relative_to(runtime.project.root)
        out.line(f"accepted {len(found.tools)} tools of {found.server}: {place}")
    return True


@mcp_command.command(
    "add",
    epilog="Example: reyn mcp add git -- mcp-server-git --repository .",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("server")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", help="Connect to this URL instead of starting a program.")
@click.option("--env", "env", metavar="NAME=VALUE", multiple=True, help="A variable of the program; repeatable.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header for the URL; repeatable.")
def add(
    server: str, program: tuple[str, ...], url: str | None, env: tuple[str, ...], headers: tuple[str, ...]
) -> Report:
    """Add SERVER, a PROGRAM or a --url, to reyn.local.yaml.

    Values may be `secret://NAME`: the program gets a secret only for skills that list it under `required_credentials`.
    """
    from reyn.config.servers import McpSettings
    from reyn.documents import Codes, Document, check_keys

    settings: dict[str, Any] = {"command": list(program)} if program else {"url": url}
    for key, pairs in (("env", env), ("headers", headers)):
        if pairs:
            settings[key] = dict(_pair(text, key) for text in pairs)
    if bool(program) == bool(url):
        raise UsageError("give either a program after `--`, or --url", hint="Run: reyn mcp add --help")
    findings = check_keys(Document("", {"servers": {server: settings}}, {}), McpSettings, Codes("", "", missing="-"))
    if findings:
        problems = "; ".join(finding.message for finding in findings)
        raise UsageError(f"the server cannot be added: {problems}", hint="Correct the command line.")
    path = project_root() / _LOCAL
    _write(path, server, settings)
    test = reyn_command("mcp", "test", server)
    return Report(None, [f"added {server} to {_LOCAL}", f"next: {reyn_command('trust')}, then {test}"])


def _pair(text: str, key: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"`{text}` is not NAME=VALUE", hint=f"Write --{key.removesuffix('s')} NAME=VALUE.")
    return name, value


def _write(path: Path, server: str, settings: dict[str, Any]) -> None:
    """Add a server to a configuration file. What the file says already stays as it is, comments included."""
    import yaml

    from reyn.documents import DocumentError, parse_yaml, read_text
    from reyn.folders import replace_file
    from reyn.skills.yaml_nodes import YamlNodes

    if path.is_symlink():  # it may lead out of the project
        raise UsageError(f"{_LOCAL} is a symbolic link", hint="Replace the link by the file.")
    try:
        text = read_text(path, _LOCAL, inside=path.parent) if os.path.lexists(path) else ""
        parse_yaml(text, _LOCAL)
    except DocumentError as error:
        raise UsageError(f"{_LOCAL}: {error.finding.message}", hint="Correct the file first.") from error
    root = YamlNodes(text).root
    if root.start_mark is not None and not isinstance(root, yaml.MappingNode):  # an empty file has no mark
        raise UsageError(f"{_LOCAL} is not a mapping", hint="Correct the file first.")
    servers = _child(_child(root, "mcp"), "servers")
    if _child(servers, server) is not None:
        hint = f"Remove it from {_LOCAL}, or use another name."
        raise UsageError(f"{_LOCAL} has a server `{server}` already", hint=hint)
    if servers is None and _child(root, "mcp") is None:
        block = yaml.safe_dump({"mcp": {"servers": {server: settings}}}, sort_keys=False, allow_unicode=True)
        separator = "" if not text or text.endswith("\n") else "\n"
        replace_file(path, [(text + separator + block).encode()])
        return
    if not isinstance(servers, yaml.MappingNode) or servers.flow_style or not servers.value:
        raise UsageError(f"{_LOCAL} has a key `mcp` in another form", hint="Write `mcp: {servers: …}` as a block.")
    first = servers.value[0][0].start_mark
    entry = yaml.safe_dump({server: settings}, sort_keys=False, allow_unicode=True)
    lines = text.splitlines(keepends=True)
    indented = [" " * first.column + line for line in entry.splitlines(keepends=True)]
    replace_file(path, ["".join((*lines[: first.line], *indented, *lines[first.line :])).encode()])


def _child(node: Any, name: str) -> Any:
    """Return the value of a key in a mapping node, or `None`."""
    pairs = node.value if getattr(node, "id", "") == "mapping" else ()
    return next((value for key, value in pairs if key.value == name), None)
