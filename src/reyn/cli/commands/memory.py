"""`reyn memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from reyn.cli.groups import CommandGroup
from reyn.cli.output import clean, json_option, print_json, short
from reyn.cli.project import project_root

if TYPE_CHECKING:
    from reyn.chat.services.memory_service import MemoryService
    from reyn.ops.memory_files import MemoryFile


@click.group(cls=CommandGroup, epilog="Example: reyn memory search tea")
def command() -> None:
    """List, show, edit, remove and search what agents remember in files.

    A shared memory is called NAME, one of a single agent AGENT/NAME. The files are reyn/memory/NAME.md and
    reyn/memory/AGENT/NAME.md.
    """


@command.command("list", epilog="Example: reyn memory list --json")
@click.option("--agent", metavar="NAME", help="Memories of this agent only; `shared` for those of all agents.")
@json_option
def list_memories(agent: str | None, as_json: bool) -> None:
    """List the memories, the latest first."""
    _print(_service().all(agent), as_json=as_json, if_none="no memories; `reyn memory edit NAME` creates one")


@command.command("show", epilog="Example: reyn memory show designer/tea")
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Print a memory."""
    from reyn.cli.chat.printing import printable

    memory = _service().find(name)
    if as_json:
        print_json(memory)
        return
    click.echo(f"{memory.path}: {clean(memory.description or memory.error)}")
    if memory.source:
        click.echo(f"written by {clean(memory.source)}")
    click.echo(printable(memory.text))


@command.command("edit", epilog="Example: reyn memory edit tea")
@click.argument("name")
def edit(name: str) -> None:
    """Edit a memory, or create it.

    The command opens the editor that $EDITOR names.
    """
    service = _service()
    path = service.path(name)
    before = service.source(name)
    after = click.edit(before or service.template(name), extension=".md")
    if after is None or after == before:
        click.echo("unchanged")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(after, encoding="utf-8")
    memory = service.find(name)
    click.echo(f"saved {memory.path}{f', but: {clean(memory.error)}' if memory.error else ''}")


@command.command("rm", epilog="Example: reyn memory rm designer/tea")
@click.argument("name")
def remove(name: str) -> None:
    """Remove a memory."""
    click.echo(f"removed {_service().remove(name).path}")


@command.command("search", epilog="Example: reyn memory search 'green tea' --json")
@click.argument("query")
@click.option("--limit", type=click.IntRange(min=1, max=100), default=10, show_default=True, help="Maximum number.")
@json_option
def search(query: str, limit: int, as_json: bool) -> None:
    """List the memories that match QUERY best."""
    memories = [memory for memory, _ in _service().search(query, limit)]
    _print(memories, as_json=as_json, if_none="no memory matches")


def _service() -> MemoryService:
    from reyn.chat.services.memory_service import MemoryService

    return MemoryService(project_root())


def _print(memories: list[MemoryFile], *, as_json: bool, if_none: str) -> None:
    if as_json:
        print_json(memories)
        return
    for memory in memories:
        name = memory.name if memory.scope == "shared" else f"{memory.scope}/{memory.name}"
        click.echo(f"{clean(name)}: {short(memory.description or memory.error, 200)}")
    if not memories:
        click.echo(if_none)
