"""One tool of an MCP server as an op: `mcp:<server>/<tool>`, with the tool's schema for `args`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import McpDefinitionsInvalid, McpServerFailed, OpInvalid, ReynError
from reyn.jsonschema import SchemaInvalid, compile_schema
from reyn.ops.budget import EffectUnknown, OpFailed
from reyn.ops.mcp.connections import (
    Connection,
    Connections,
    McpToolDefinition,
    ServerFailed,
    ServerTimeout,
    read_definitions,
)
from reyn.ops.mcp.shown import self_contained, shown_to_model
from reyn.ops.op import Call, Env, OpSetup, Plan, Result
from reyn.permissions import Denied
from reyn.secrets.handles import SCHEME, secret_name
from reyn.vocabulary.error_names import ANY_ERROR, named_error
from reyn.vocabulary.schemas import STRING, boolean, single_form

if TYPE_CHECKING:
    from reyn.config.servers import McpServer
    from reyn.ops.table import OpTable
    from reyn.vocabulary import EffectClass, OpSpec

_MAX_SCHEMA_BYTES = 1_000_000
_MAX_CHARS = 200_000


class McpTool:
    """Calls one tool. A tool whose definition is not the accepted one is not called."""

    def __init__(
        self, name: str, server: McpServer, tool: McpToolDefinition, connections: Connections, setup: OpSetup
    ) -> None:
        self._name = name
        self._server = server
        self._tool = tool
        self._connections = connections
        self._setup = setup
        self.spec = _spec(name, server, tool)

    def target(self, call: Call) -> str:
        return f"{self._name}/{self._tool.name}"

    def version(self, call: Call, env: Env) -> str:
        return self._tool.digest

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        return Plan()

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        credentials = self._credentials(env)
        try:
            connection = await self._connections.connect(self._name, self._server, credentials)
            now = (await connection.current()).tool(self._tool.name)
            if now is None or now.digest != self._tool.digest:
                return call.denied(_changed(self._name, self._tool.name, is_gone=now is None))
            answer = await self._answer(connection, call)
        except ServerTimeout as error:
            return call.timeout(str(error))
        except ServerFailed as error:
            return call.error(f"{McpServerFailed.code}: {error}")
        return await asyncio.to_thread(_result, call, answer)

    async def _answer(self, connection: Connection, call: Call) -> Any:
        try:
            return await connection.call(self._tool.name, call.args.get("args", {}))
        except ServerFailed as error:  # the server may have executed the call
            raise EffectUnknown(f"{McpServerFailed.code}: {error}") from error

    def _credentials(self, env: Env) -> dict[str, str]:
        """Return the secrets of the server by handle. The skill must require each of them."""
        values: dict[str, str] = {}
        for text in (*self._server.env.values(), *self._server.headers.values()):
            if not text.startswith(SCHEME):
                continue
            values[text] = env.credential(secret_name(text))
            if self._server.url:
                try:
                    values[text] = self._setup.secret(text, self._server.url)
                except ReynError as error:
                    raise OpFailed(f"`{text}` is not sent to the MCP server `{self._name}`: {error.message}") from error
        return values


def _changed(server: str, tool: str, *, is_gone: bool) -> Denied:
    what = "no longer offers the tool" if is_gone else "has changed the definition of"
    return Denied(
        "default: accepted definitions only",
        f"the MCP server `{server}` {what} `{tool}`; the operator must accept the new definitions first",
    )


def _spec(server: str, settings: McpServer, tool: McpToolDefinition) -> OpSpec:
    """Return the specification of a tool. Hints about its effect count only if the operator trusts the server."""
    kind = f"mcp:{server}/{tool.name}"
    is_repeatable = settings.trusted and (tool.read_only or tool.idempotent)
    effect: EffectClass = "idempotent" if is_repeatable else "unsafe"
    schema = self_contained(tool.input_schema)
    required = bool(schema.get("required"))
    fields = {"args": schema}
    shown = shown_to_model(server, tool)
    names = shown.schema.get("required", ())
    spec = single_form(
        kind,
        shown.summary,
        effect,
        fields if required else {},
        {} if required else fields,
        results={"content": STRING, "structured": {}, "truncated": boolean(default=False)},
        example={"args": dict.fromkeys(names, "…")} if required else {},
        permission="mcp",
        advice=shown.arguments,
        takes_time=True,
        errors=(ANY_ERROR,),
    )
    return spec.shown_with({"args": shown.schema})


def _result(call: Call, found: Any) -> Result:
    """Convert the result of a tool: texts are joined, other content is described."""
    text = "\n".join(_text(part) for part in found.content)
    fields: dict[str, Any] = {"content": text[:_MAX_CHARS]}
    if len(text) > _MAX_CHARS:
        fields["truncated"] = True
    structured = getattr(found, "structured_content", None)
    if structured is not None and not found.content:
        fields |= _structured(structured)
    if found.is_error:
        if named := named_error(structured):
            fields["error_name"] = named[0]
        return call.error(text[:500] or "the tool reported an error", **fields)
    return call.ok(**fields)


def _structured(value: Any) -> dict[str, Any]:
    """Return structured content; if it is too large, the beginning of its JSON as text."""
    text = msgspec.json.encode(value).decode()
    return {"structured": value} if len(text) <= _MAX_CHARS else {"content": text[:_MAX_CHARS], "truncated": True}


def _text(part: Any) -> str:
    match part.type:
        case "text":
            return str(part.text)
        case "image" | "audio":
            return f"[{part.type} {part.mime_type}, {len(part.data) * 3 // 4} bytes]"
        case "resource_link":
            return f"[resource {part.uri}]"
        case "resource":
            return str(getattr(part.resource, "text", f"[resource {part.resource.uri}]"))
    return f"[{part.type}]"


def with_mcp_tools(table: OpTable, connections: Connections, setup: OpSetup, root: Any) -> OpTable:
    """Return a table with the tools of the configured servers. What cannot be used is a problem of the table."""
    problems: list[str] = []
    for name, server in setup.config.mcp.servers.items():
        try:
            accepted = read_definitions(root, name)
        except McpDefinitionsInvalid as error:
            problems.append(f"MCP server `{name}`: {error.message}")
            continue
        for tool in accepted.tools if accepted else ():
            try:
                _check_schema(tool.input_schema)
                table = table.with_ops(McpTool(name, server, tool, connections, setup))
            except (SchemaInvalid, OpInvalid, ValueError, KeyError, TypeError, AttributeError) as error:
                code = f"{error.code}: " if isinstance(error, SchemaInvalid) else ""
                problems.append(f"MCP tool `{name}/{tool.name}`: {code}{getattr(error, 'message', error)}")
    return table.with_problems(*problems)


def _check_schema(schema: Any) -> None:
    """Check the arguments of a tool. The time to check a call grows with the schema, which the server chooses."""
    if len(msgspec.json.encode(schema)) > _MAX_SCHEMA_BYTES:
        raise SchemaInvalid(f"the schema of its arguments has more than {_MAX_SCHEMA_BYTES} bytes")
    compile_schema(schema)
