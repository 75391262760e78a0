"""Definitions of a server's tools, as the operator accepted them: one file per server, part of the project."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import McpDefinitionsInvalid
from reyn.journal import canonical, digest

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES = 4_000_000
_MAX_TOOLS = 500
_TOOL = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_DESCRIPTION = 1_000


class ToolDefinition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One tool as its server describes it.

    Attributes:
        name: Its name.
        description: For the model.
        input_schema: JSON Schema of its arguments.
        read_only: The server's hint that the tool changes nothing.
        idempotent: The server's hint that calling it twice has no further effect.
    """

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}
    read_only: bool = False
    idempotent: bool = False

    @property
    def digest(self) -> str:
        return digest(canonical(msgspec.to_builtins(self)))


class ToolDefinitions(msgspec.Struct, frozen=True):
    """The tools of one server."""

    server: str
    tools: tuple[ToolDefinition, ...]

    def tool(self, name: str) -> ToolDefinition | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def changes(self, other: ToolDefinitions | None) -> list[str]:
        """Return what is different in these definitions: `+ name`, `- name` and `~ name`."""
        before = {tool.name: tool.digest for tool in other.tools} if other else {}
        after = {tool.name: tool.digest for tool in self.tools}
        return [
            *(f"+ {name}" for name in after if name not in before),
            *(f"~ {name}" for name in after if name in before and before[name] != after[name]),
            *(f"- {name}" for name in before if name not in after),
        ]


def definition(tool: Any) -> ToolDefinition | None:
    """Return the definition of a tool that a server listed; `None` if its name cannot be the name of an op."""
    if not _TOOL.fullmatch(tool.name):
        return None
    hints = tool.annotations
    return ToolDefinition(
        tool.name,
        str(tool.description or "")[:_MAX_DESCRIPTION],
        dict(tool.input_schema),
        bool(hints and hints.read_only_hint),
        bool(hints and hints.idempotent_hint),
    )


def definitions_file(root: Path, server: str) -> Path:
    return root / "reyn" / "mcp" / f"{server}.json"


def read_definitions(root: Path, server: str) -> ToolDefinitions | None:
    """Return the accepted definitions of a server; `None` if there are none.

    Raises:
        McpDefinitionsInvalid: The file cannot be used.
    """
    path = definitions_file(root, server)
    hint = f"Connect to the server `{server}` again and accept its tools."
    try:
        content = path.read_bytes() if path.stat().st_size <= _MAX_BYTES else b""
    except FileNotFoundError:
        return None
    except OSError as error:
        raise McpDefinitionsInvalid(f"`{path.name}` cannot be read: {error.strerror}", hint=hint) from error
    try:
        found = msgspec.json.decode(content, type=ToolDefinitions)
    except msgspec.MsgspecError as error:
        raise McpDefinitionsInvalid(f"`reyn/mcp/{path.name}` is malformed: {error}", hint=hint) from error
    if found.server != server or len(found.tools) > _MAX_TOOLS or not all(_TOOL.fullmatch(t.name) for t in found.tools):
        raise McpDefinitionsInvalid(f"`reyn/mcp/{path.name}` does not hold tools of `{server}`", hint=hint)
    return found


def write_definitions(root: Path, found: ToolDefinitions) -> Path:
    """Accept the definitions of a server."""
    path = definitions_file(root, found.server)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".json.new")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    temporary.replace(path)
    return path
