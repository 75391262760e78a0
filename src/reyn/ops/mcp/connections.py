"""Connections to MCP servers: opened on first use, shared by the runs of a runtime, closed with it.

The operator accepts the definitions of a server's tools; they are stored in one file per server, part of the project.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from reyn.documents import JsonError, TrustClasses, check_values, trust_classes
from reyn.errors import McpDefinitionsInvalid
from reyn.folders import DEFINITIONS, FILE, open_inside, replace_beneath
from reyn.journal import canonical, digest
from reyn.ops.budget import OpFailed
from reyn.ops.mcp.transport import MAX_ERRORS, SERVER_ENDED, http_client, stdio

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.config.servers import McpServer

_MISSING_EXTRA = "MCP servers need the extra `mcp`: pip install 'reyn[mcp]'"

# -- definitions ----------------------------------------------------------------------------------------------

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

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="name description inputSchema", request="readOnly idempotent")

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

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="server unusable", section="tools")

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


def listed_tools(server: str, tools: Iterable[Any]) -> ToolDefinitions:
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
        content = _content(root, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = error.strerror or str(error)
        raise McpDefinitionsInvalid(f"`reyn/mcp/{path.name}` cannot be read: {reason}", hint=hint) from error
    try:
        check_values(content)
        found = msgspec.json.decode(content, type=ToolDefinitions)
    except (JsonError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise McpDefinitionsInvalid(f"`reyn/mcp/{path.name}` is malformed: {error}", hint=hint) from error
    if found.server != server or len(found.tools) > MAX_TOOLS or not all(_TOOL.fullmatch(t.name) for t in found.tools):
        raise McpDefinitionsInvalid(f"`reyn/mcp/{path.name}` does not hold tools of `{server}`", hint=hint)
    return found


def _content(root: Path, path: Path) -> bytes:
    """Read a regular file of the project. One that is a FIFO would block, and one that is too large fails."""
    handle = open_inside(root, path, FILE, below=DEFINITIONS)
    if handle is None:
        raise OSError(f"it is a link that leads out of `{DEFINITIONS}/`")
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
    try:
        replace_beneath(root, path.relative_to(root).as_posix(), _encoded(found))
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "Make `reyn/mcp` a folder that you can write to."
        raise McpDefinitionsInvalid(f"`reyn/mcp/{path.name}` cannot be written: {reason}", hint=hint) from error
    return path


def _encoded(found: ToolDefinitions) -> bytes:
    stored = msgspec.structs.replace(found, unusable=())
    return msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n"


# -- connections ----------------------------------------------------------------------------------------------

_MAX_LINES = 5
_MAX_REASON = 1_000


class ServerFailed(OpFailed):
    """The server cannot be reached, or ended the connection."""


class ServerTimeout(OpFailed):
    """The server did not answer in time."""


class Connections:
    """The connections of one runtime. A connection that failed is opened again by the next call.

    If the server broke the protocol between two calls, the next one reports it, and the one after it is executed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: dict[tuple[str, int, frozenset[tuple[str, str]]], Connection] = {}

    async def definitions(self, name: str, server: McpServer, credentials: Mapping[str, str]) -> ToolDefinitions:
        """Return the current tool definitions of a server."""
        return await (await self.connect(name, server, credentials)).current()

    async def connect(self, name: str, server: McpServer, credentials: Mapping[str, str]) -> Connection:
        """Return an open connection to a server.

        Raises:
            OpFailed: The server cannot be used.
        """
        # Another loop cannot use the connection: its streams belong to the one that opened it.
        key = (name, id(asyncio.get_running_loop()), frozenset(credentials.items()))
        connection = self._open.get(key)
        if connection is None or connection.is_closed:
            closed = connection
            # Replaced before anything is awaited: another call must not open a second one meanwhile.
            connection = self._open[key] = Connection(name, server, dict(credentials), str(self._root))
            if closed is not None:
                await closed.aclose()
                closed.raise_fault()
        await connection.ready()
        return connection

    async def aclose(self) -> None:
        """Stop the servers."""
        own = id(asyncio.get_running_loop())
        for key in [key for key in self._open if key[1] == own]:
            await self._open.pop(key).aclose()


async def _accept_result(_name: str, _result: Any) -> None:
    """Accept a result. The SDK would apply patterns of the output schema, on the event loop without a limit."""


class Connection:
    """One server. A task of its own opens and closes the client, as the SDK requires."""

    def __init__(self, name: str, server: McpServer, credentials: dict[str, str], root: str) -> None:
        self.name = name
        self.definitions = ToolDefinitions(name, ())
        self._server = server
        self._credentials = credentials
        self._root = root
        self._fault = ""
        self._is_reported = False
        self._errors = bytearray()
        """The end of what the server wrote to its standard error."""
        self._client: Any = None
        self._is_stale = True
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"mcp:{name}")

    @property
    def is_closed(self) -> bool:
        return self._stop.is_set() or self._task.done()

    async def ready(self) -> None:
        await asyncio.shield(self._opened)

    async def _run(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._server.timeout):
                    self._client = await stack.enter_async_context(await self._new_client(stack))
                    self._client.session.validate_tool_result = _accept_result
                    await self._list()
                self._opened.set_result(None)
                await self._stop.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the SDK raises groups of anything
            self._fail(error)
        finally:
            if not self._opened.done():
                self._opened.set_exception(ServerFailed(f"the connection to the MCP server `{self.name}` was closed"))
            self._opened.exception()  # retrieved, even if no caller waits

    def _fail(self, error: BaseException) -> None:
        if self._opened.done():
            return
        self._is_reported = True
        error = _cause(error)
        if isinstance(error, TimeoutError):
            message = f"the MCP server `{self.name}` did not start within {self._server.timeout:g} seconds"
            self._opened.set_exception(ServerTimeout(message + self._last_lines))
        else:
            reason = f"the MCP server `{self.name}` cannot be used: {self._fault or _reason(error)}{self._last_lines}"
            self._opened.set_exception(error if isinstance(error, OpFailed) else ServerFailed(reason))

    @property
    def _last_lines(self) -> str:
        """The last lines that the server wrote to its standard error, without its secrets; empty if there are none."""
        secrets, errors = list(filter(None, self._credentials.values())), bytes(self._errors)
        if len(errors) >= MAX_ERRORS:  # it may begin within a secret
            errors = errors[max((len(secret.encode()) for secret in secrets), default=0) :]
        text = errors.decode(errors="replace")
        for secret in secrets:
            text = text.replace(secret, "***")
        lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
        return f"; it wrote to standard error: {' | '.join(lines[-_MAX_LINES:])[-_MAX_REASON:]}" if lines else ""

    async def _new_client(self, stack: AsyncExitStack) -> Any:
        try:
            from mcp import Client
            from mcp.client.streamable_http import streamable_http_client
        except ImportError as error:
            raise ServerFailed(_MISSING_EXTRA) from error
        server = self._server
        if server.command:
            values = {name: self._credentials.get(value, value) for name, value in server.env.items()}
            transport: Any = stdio(server.command, values, self._root, self._closed, self._errors)
        else:
            headers = {name: self._credentials.get(value, value) for name, value in server.headers.items()}
            client = await stack.enter_async_context(http_client(headers, server.timeout))
            transport = streamable_http_client(str(server.url), http_client=client)
        return Client(transport, message_handler=self._note, cache=None)

    def _closed(self, fault: str) -> None:
        self._fault = self._fault or fault
        self._stop.set()

    def raise_fault(self) -> None:
        """Raise what the server did wrong while no call waited for it."""
        if not self._is_reported and self._fault not in ("", SERVER_ENDED):
            raise ServerFailed(f"the MCP server `{self.name}`: {self._fault}{self._last_lines}")

    async def _note(self, message: Any) -> None:
        if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
            self._is_stale = True

    async def _list(self) -> None:
        self._is_stale = False  # a change that is announced meanwhile is listed by the next call
        tools: list[Any] = []
        cursor = None
        for _ in range(MAX_TOOLS):
            page = await self._client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor or len(tools) > MAX_TOOLS:
                break
        if cursor or len(tools) > MAX_TOOLS:
            raise ServerFailed(f"the MCP server `{self.name}` lists more than {MAX_TOOLS} tools or pages of them")
        try:
            self.definitions = listed_tools(self.name, tools)
        except ValueError as error:
            raise ServerFailed(f"the MCP server `{self.name}` {error}") from error

    async def current(self) -> ToolDefinitions:
        """Return the current tool definitions of the server; fetch them again if the server announced a change."""
        if self._is_stale:
            await self._bounded(self._list())
        return self.definitions

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return await self._bounded(self._client.call_tool(tool, arguments))

    async def _bounded(self, work: Any) -> Any:
        """Wait for the server, for its own end, or for the time limit."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._task}, timeout=self._server.timeout, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                if self._task.done():
                    fault = self._fault or "it ended the connection"
                    raise ServerFailed(f"the MCP server `{self.name}`: {fault}{self._last_lines}")
                message = f"the MCP server `{self.name}` did not answer within {self._server.timeout:g} seconds"
                raise ServerTimeout(message)
            return task.result()
        except OpFailed:
            self._is_reported = True
            self._stop.set()  # its state is unknown; the next call starts it anew
            raise
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            lines = self._last_lines if self._fault else ""
            if not self._is_answer(error):
                self._is_reported = True
                self._stop.set()
            raise ServerFailed(f"the MCP server `{self.name}`: {self._fault or _reason(error)}{lines}") from error
        finally:
            if not task.done():
                task.cancel()
                with suppress(BaseException):
                    await task

    def _is_answer(self, error: BaseException) -> bool:
        """Return whether an exception is the server's own answer, after which the connection can be used."""
        from mcp import MCPError

        return isinstance(error, MCPError) and bool(self._server.command) and not self._stop.is_set()

    async def aclose(self) -> None:
        self._stop.set()
        if not self._opened.done():
            self._task.cancel()
        with suppress(BaseException):
            await self._task


def _cause(error: BaseException) -> BaseException:
    """Return the first exception of nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _reason(error: BaseException) -> str:
    error = _cause(error)
    if isinstance(error, FileNotFoundError):
        return "its program is not installed"
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
