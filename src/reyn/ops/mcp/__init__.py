"""Tools of MCP servers as ops.

Servers are configured under `mcp.servers`. What a server offers is read from a file of the project
(`reyn/mcp/<server>.json`), so that skills load, lint and replay without it; `connections` talks to the servers.
"""

from reyn.ops.mcp.connections import Connections, ToolDefinitions, read_definitions, write_definitions
from reyn.ops.mcp.shown import shown_to_model
from reyn.ops.mcp.tool import with_mcp_tools

__all__ = [
    "Connections",
    "ToolDefinitions",
    "read_definitions",
    "shown_to_model",
    "with_mcp_tools",
    "write_definitions",
]
