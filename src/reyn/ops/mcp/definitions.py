"""Definitions of a server's tools, as the operator accepted them: one file per server, part of the project."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import McpDefinitionsInvalid
from reyn.journal import canonical, digest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_MAX_BYTES = 4_000_000
MAX_TOOLS = 500
_TOOL = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_MAX_DESCRIPTION = 1_000


class McpToolDefinition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
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


class ToolDefinitions(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tools of one server.

    Attributes:
        server: Its name.
        tools: The tools that can be ops.
        unusable: Tools whose names cannot be part of the name of an op. They are shown, and not stored.
    """

    server: str
    tools: tuple[McpToolDefinition, ...]
    unusable: tuple[str, ...] = ()

    def tool(self, name: str) -> McpToolDefinition | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def changes(self, other: ToolDefinitions | None) -> list[str]:
        """Return the differences to other definitions: `+ name`, `- name` and `~ name`."""
        before = {tool.name: tool.digest for tool in other.tools} if other else {}
        after = {tool.name: tool.digest for tool in self.tools}
        return [
            *(f"+ {name}" for name in after if name not in before),
            *(f"~ {name}" for name in after if name in before and before[name] != after[name]),
            *(f"- {name}" for name in before if name not in after),
        ]


def definitions(server: str, tools: Iterable[Any]) -> ToolDefinitions:
    """Return the definitions of the tools that a server listed.

    Raises:
        ValueError: They cannot be stored: two tools have one name, or they are too large.
    """
    listed = list(tools)
    usable = tuple(_definition(tool) for tool in listed if _TOOL.fullmatch(tool.name))
    names = [tool.name for tool in usable]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"lists two tools with the name `{twice}`")
    found = ToolDefinitions(server, usable)
    if len(_encoded(found)) > _MAX_BYTES:
        raise ValueError(f"describes its tools with more than {_MAX_BYTES} bytes")
    unusable = tuple(tool.name[:200] for tool in listed if not _TOOL.fullmatch(tool.name))
    return msgspec.structs.replace(found, unusable=unusable)


def _definition(tool: Any) -> McpToolDefinition:
    hints = tool.annotations
    return McpToolDefinition(
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
        content = _content(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = error.strerror or str(error)
        raise McpDefinitionsInvalid(f"`reyn/mcp/{path.name}` cannot be read: {reason}", hint=hint) from error
    try:
        found = msgspec.json.decode(content, type=ToolDefinitions)
    except msgspec.MsgspecError as error:
        raise McpDefinitionsInvalid(f"`reyn/mcp/{path.name}` is malformed: {error}", hint=hint) from error
    if found.server != server or len(found.tools) > MAX_TOOLS or not all(_TOOL.fullmatch(t.name) for t in found.tools):
        raise McpDefinitionsInvalid(f"`reyn/mcp/{path.name}` does not hold tools of `{server}`", hint=hint)
    return found


def _content(path: Path) -> bytes:
    """Read a regular file. One that is a FIFO would block, and one that is too large fails."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("it is not a regular file")
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise OSError(f"it is larger than {_MAX_BYTES} bytes")
    return content


def write_definitions(root: Path, found: ToolDefinitions) -> Path:
    """Accept the definitions of a server. Links that were planted in the project are not followed.

    Raises:
        McpDefinitionsInvalid: The file cannot be written.
    """
    path = definitions_file(root, found.server)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(exist_ok=True)
            if folder.is_symlink():
                raise OSError(f"`{folder.relative_to(root)}` is a symbolic link")
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            file.write(_encoded(found))
        temporary.replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "Make `reyn/mcp` a folder that you can write to."
        raise McpDefinitionsInvalid(f"`reyn/mcp/{path.name}` cannot be written: {reason}", hint=hint) from error
    return path


def _encoded(found: ToolDefinitions) -> bytes:
    stored = msgspec.structs.replace(found, unusable=())
    return msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n"
