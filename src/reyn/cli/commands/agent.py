"""`reyn agent`."""

from __future__ import annotations

import click
import msgspec

from reyn.cli.groups import CommandGroup
from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import open_existing_project, project_root
from reyn.errors import FileExists, ReynError

_TEMPLATE = """---
type: agent
name: {name}
description: What this agent is for
# model: NAME               # default: the model of the project
# skills: [summarize, "report_*"]   # default: all skills
# agents: [editor]           # agents that it may ask; default: none
# budget: {{tokens: 200000}}
---
You are {name}. Write here the agent's instructions: who it is and how it answers.
"""
_BUILT_IN = "The built-in agent, which can run all skills; reyn/agents/default.md replaces it"
"""What the default agent is for, if it has no file."""


@click.group(cls=CommandGroup, epilog="Example: reyn agent new designer")
def command() -> None:
    """Create, list, show and remove agents.

    An agent is a file reyn/agents/NAME.md: its instructions and what it may use.
    """


@command.command("new", epilog="Example: reyn agent new designer")
@click.argument("name")
def new(name: str) -> None:
    """Create the agent NAME from a template."""
    from reyn.skills.agents import Agents
    from reyn.skills.names import is_valid_name

    if not is_valid_name(name):
        raise click.UsageError(
            f"`{name}` cannot be the name of an agent: start with a letter, then use letters, digits, `_` and `-`"
        )
    agents = Agents(project_root())
    path = agents.folder / f"{name}.md"
    if path.exists():
        raise FileExists(f"`reyn/agents/{name}.md` already exists; nothing was written")
    agents.folder.mkdir(parents=True, exist_ok=True)
    path.write_text(_TEMPLATE.format(name=name), encoding="utf-8")
    click.echo(f"created reyn/agents/{name}.md\nnext: reyn chat {name}")


@command.command("list", epilog="Example: reyn agent list --json")
@json_option
def list_agents(as_json: bool) -> None:
    """List the agents of the project."""
    from reyn.skills.agents import Agents

    agents = Agents(project_root())
    rows = []
    for name in agents:
        try:
            description = agents.load(name).description if agents.path(name) is not None else _BUILT_IN
            rows.append({"name": name, "description": description, "error": ""})
        except ReynError as error:
            rows.append({"name": name, "description": "", "error": error.message.partition("\n")[2] or error.message})
    if as_json:
        print_json(rows)
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        first, *others = (row["description"] or row["error"]).split("\n")
        click.echo(clean(f"{row['name']:<{width}}  {first}".rstrip()))
        for line in others:
            click.echo(clean(f"{'':<{width}}  {line}"))


@command.command("show", epilog="Example: reyn agent show designer")
@click.argument("name", default="default")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show an agent: its instructions, and what it may use."""
    from reyn.chat.services.router_host_adapter import RouterHostAdapter
    from reyn.skills.agents import Budget

    with open_existing_project() as runtime:
        agent = runtime.project.agents.load(name)
        skill = runtime.project.agent_skill(name)
        phase = skill.phases[skill.entry]
        if as_json:
            print_json(msgspec.to_builtins(agent) | {"ops": phase.allowed_ops, "permissions": skill.permissions})
            return
        click.echo(f"agent     {clean(agent.name)}")
        fields = {
            "about": agent.description if runtime.project.agents.path(name) is not None else _BUILT_IN,
            "model": agent.model or agent.model_class or "project default",
            "skills": "all" if agent.skills is None else ", ".join(agent.skills) or "none",
            "may ask": ", ".join(line.partition(":")[0] for line in RouterHostAdapter(runtime, name).view().agents),
            "ops": ", ".join(phase.allowed_ops),
            "requests": msgspec.json.encode(skill.permissions).decode(),
            "memory": agent.memory,
            "budget": msgspec.json.encode(agent.budget).decode() if agent.budget != Budget() else "",
        }
        for key, value in fields.items():
            if value:
                click.echo(f"{key:<9} {clean(value)}")
        for line in agent.instructions.splitlines():
            click.echo(f"    {clean(line)}")


@command.command("rm", epilog="Example: reyn agent rm designer")
@click.argument("name")
def remove(name: str) -> None:
    """Remove the file of an agent. Its conversations and memories stay."""
    from reyn.errors import AgentNotFound
    from reyn.skills.agents import Agents

    path = Agents(project_root()).path(name)
    if path is None:
        raise AgentNotFound(f"no agent `{name}`: no file `reyn/agents/{name}.md`")
    path.unlink()
    click.echo(f"removed reyn/agents/{path.name}")
