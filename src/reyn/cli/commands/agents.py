"""Commands about agents and their memory: `agent`, `memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from reyn.cli.groups import group
from reyn.cli.options import json_option
from reyn.cli.output import short, text_lines
from reyn.cli.project import open_existing_project, project_root
from reyn.cli.writer import Report
from reyn.errors import AgentNotFound, ReynError

if TYPE_CHECKING:
    from reyn.chat.services.memory_service import MemoryService
    from reyn.ops.memory_files import MemoryFile

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


@group(epilog="Example: reyn agent new designer")
def agent_command() -> None:
    """Create, list, show and remove agents.

    An agent is a file reyn/agents/NAME.md: its instructions and what it may use.
    """


@agent_command.command("new", epilog="Example: reyn agent new designer")
@click.argument("name")
def new(name: str) -> Report:
    """Create the agent NAME from a template."""
    from reyn.cli.files import write_new_files
    from reyn.skills.agents import AGENTS
    from reyn.skills.names import is_valid_name

    if not is_valid_name(name):
        raise click.UsageError(
            f"`{name}` cannot be the name of an agent: start with a letter, then use letters, digits, `_` and `-`"
        )
    write_new_files(project_root(), {f"{AGENTS}/{name}.md": _TEMPLATE.format(name=name)})
    return Report(None, [f"created {AGENTS}/{name}.md", f"next: reyn chat {name}"])


@agent_command.command("list", epilog="Example: reyn agent list --json")
@json_option
def list_agents() -> Report:
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
    width = max(len(row["name"]) for row in rows)
    lines: list[str] = []
    for row in rows:
        first, *others = (row["description"] or row["error"]).split("\n")
        lines += [f"{row['name']:<{width}}  {first}".rstrip(), *(f"{'':<{width}}  {line}" for line in others)]
    return Report(rows, lines)


@agent_command.command("show", epilog="Example: reyn agent show designer")
@click.argument("name", default="default")
@json_option
def show_agent(name: str) -> Report:
    """Show an agent: its instructions, and what it may use."""
    from reyn.chat.services.router_host_adapter import router_view
    from reyn.skills.agents import Budget

    runtime = open_existing_project()
    agent = runtime.project.agents.load(name)
    skill = runtime.services.agent_skill(name)
    phase = skill.phases[skill.entry]
    model = agent.model.name if agent.model else None
    fields = {
        "agent": agent.name,
        "about": agent.description if runtime.project.agents.path(name) is not None else _BUILT_IN,
        "model": model or agent.model_class or "project default",
        "skills": "all" if agent.skills is None else ", ".join(agent.skills) or "none",
        "may ask": ", ".join(line.partition(":")[0] for line in router_view(runtime, name).agents),
        "ops": ", ".join(phase.allowed_ops),
        "requests": msgspec.json.encode(skill.permissions).decode(),
        "memory": agent.memory,
        "budget": msgspec.json.encode(agent.budget).decode() if agent.budget != Budget() else "",
    }
    lines = [f"{key:<9} {value}" for key, value in fields.items() if value]
    lines += [f"    {line}" for line in agent.instructions.splitlines()]
    own = {"ops": phase.allowed_ops, "permissions": skill.permissions} | ({"model": model} if model else {})
    return Report(msgspec.to_builtins(agent) | own, lines)


@agent_command.command("rm", epilog="Example: reyn agent rm designer")
@click.argument("name")
def remove_agent(name: str) -> Report:
    """Remove the file of an agent. Its conversations and memories stay."""
    from reyn.cli.files import remove_user_file
    from reyn.skills.agents import AGENTS, Agents

    path = Agents(project_root()).path(name)
    if path is None:
        raise AgentNotFound(f"no agent `{name}`: no file `{AGENTS}/{name}.md`")
    remove_user_file(project_root(), f"{AGENTS}/{path.name}")
    return Report(None, [f"removed {AGENTS}/{path.name}"])


@group(epilog="Example: reyn memory search tea")
def memory_command() -> None:
    """List, show, edit, remove and search what agents remember in files.

    A shared memory is called NAME, one of a single agent AGENT/NAME. The files are reyn/memory/NAME.md and
    reyn/memory/AGENT/NAME.md.
    """


@memory_command.command("list", epilog="Example: reyn memory list --json")
@click.option("--agent", metavar="NAME", help="Memories of this agent only; `shared` for those of all agents.")
@json_option
def list_memories(agent: str | None) -> Report:
    """List the memories, the latest first."""
    return _listed(_service().all(agent), if_none="no memories; `reyn memory edit NAME` creates one")


@memory_command.command("show", epilog="Example: reyn memory show designer/tea")
@click.argument("name")
@json_option
def show_memory(name: str) -> Report:
    """Print a memory."""
    memory = _service().find(name)
    lines = [f"{memory.path}: {memory.description or memory.error}"]
    lines += [f"written by {memory.source}"] if memory.source else []
    return Report(memory, [*lines, *text_lines(memory.text)])


@memory_command.command("edit", epilog="Example: reyn memory edit tea")
@click.argument("name")
def edit(name: str) -> Report:
    """Edit a memory, or create it.

    The command opens the editor that $EDITOR names.
    """
    service = _service()
    before = service.source(name)
    after = click.edit(before or service.template(name), extension=".md")
    if after is None or after == before:
        return Report(None, ["unchanged"])
    memory = service.write(name, after)
    return Report(None, [f"saved {memory.path}{f', but: {memory.error}' if memory.error else ''}"])


@memory_command.command("rm", epilog="Example: reyn memory rm designer/tea")
@click.argument("name")
def remove_memory(name: str) -> Report:
    """Remove a memory."""
    return Report(None, [f"removed {_service().remove(name).path}"])


@memory_command.command("search", epilog="Example: reyn memory search 'green tea' --json")
@click.argument("query")
@click.option("--limit", type=click.IntRange(min=1, max=100), default=10, show_default=True, help="Maximum number.")
@json_option
def search(query: str, limit: int) -> Report:
    """List the memories that match QUERY best."""
    memories = [memory for memory, _ in _service().search(query, limit)]
    return _listed(memories, if_none="no memory matches")


def _service() -> MemoryService:
    from reyn.chat.services.memory_service import MemoryService

    return MemoryService(project_root())


def _listed(memories: list[MemoryFile], *, if_none: str) -> Report:
    names = (one.name if one.scope == "shared" else f"{one.scope}/{one.name}" for one in memories)
    pairs = zip(names, memories, strict=True)
    lines = [f"{name}: {short(memory.description or memory.error, 200)}" for name, memory in pairs]
    return Report(memories, lines or [if_none])
