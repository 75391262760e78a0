"""MCP servers that are reached by URL: the SDK's own server, with a header that holds a secret."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reyn.errors import McpServerFailed
from reyn.runtime import SyncRuntime
from reyn.testing import ScriptedModel
from tests.models.fake_server import FakeServer, hang_up, whole
from tests.support import act, finish, write_skill

pytestmark = pytest.mark.sockets


@contextmanager
def serving(seen: list[str]) -> Iterator[str]:
    """Serve a tool that adds two numbers; note the `Authorization` header of every request."""
    import uvicorn
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("sums")

    @server.tool()
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    inner = server.streamable_http_app()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(value.decode() for name, value in scope.get("headers", ()) if name == b"authorization")
        await inner(scope, receive, send)

    listening = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        running.should_exit = True
        thread.join(30)
        listening.close()


def test_a_tool_is_called_by_url_with_a_secret_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REYN_SECRET_SUMS_TOKEN", "token-0123456789abcdef")
    seen: list[str] = []
    with serving(seen) as url:
        desk = {"url": url, "headers": {"Authorization": "secret://SUMS_TOKEN"}}
        settings = {"mcp": {"servers": {"sums": desk}}, "permissions": {"mcp": "allow"}}
        with SyncRuntime.open(tmp_path, **settings) as runtime:
            runtime.project.accept_mcp_tools(runtime.project.mcp_tools("sums"))
        keys = "permissions: {mcp: [sums]}\nrequired_credentials: [SUMS_TOKEN]\n"
        write_skill(tmp_path, "adding", {"a": ["end"]}, ops={"a": "'mcp:sums/add'"}, skill_keys=keys)
        call = {"kind": "mcp:sums/add", "args": {"a": 2, "b": 3}}
        with SyncRuntime.open(tmp_path, model=ScriptedModel([act(call), finish()]), **settings) as runtime:
            run = runtime.run("adding", {"text": "x"})
            [done] = [event for event in runtime.runs.events(run.run_id) if event.kind == "mcp:sums/add_completed"]
            assert json.loads(runtime.services.journal.blob(done.data["result"]))["content"] == "5"
    assert set(seen) == {"token-0123456789abcdef"}


@pytest.mark.parametrize("behavior", [hang_up, whole("text/plain", b"no MCP here"), whole("text/plain", b"", 404)])
def test_a_server_that_speaks_something_else_is_an_error(tmp_path: Path, behavior: Any):
    with FakeServer(behavior) as server:
        settings = {"mcp": {"servers": {"desk": {"url": server.url, "timeout": 120}}}}
        with SyncRuntime.open(tmp_path, **settings) as runtime, pytest.raises(McpServerFailed):
            runtime.project.mcp_tools("desk")


def test_a_response_beyond_the_limit_is_an_error(tmp_path: Path):
    with FakeServer(whole("application/json", b'"' + b"x" * 40_000_000 + b'"')) as server:
        settings = {"mcp": {"servers": {"desk": {"url": server.url, "timeout": 120}}}}
        with SyncRuntime.open(tmp_path, **settings) as runtime, pytest.raises(McpServerFailed):
            runtime.project.mcp_tools("desk")
