"""Transports to MCP servers with bounds that those of the SDK lack: sizes and numbers of messages, and no environment.

A message larger than the limit ends the connection, and so do requests whose answers the server does not read. Servers
are stopped with everything that they started.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from reyn.documents import JsonError, ValueCounter, check_values

MAX_MESSAGE_BYTES = 16_000_000
_INHERITED = ("HOME", "LANG", "LOGNAME", "PATH", "TERM", "TMPDIR", "USER")
_GRACE_SECONDS = 2.0
_CHUNK = 65_536
MAX_ERRORS = 4_000
_DRAIN_SECONDS = 1.0
"""How long to read what a server that has closed its output still writes to its standard error."""
MAX_UNANSWERED = 100
"""The requests of a server, such as `ping`, that wait for their answers. The SDK starts a task for each."""
SERVER_ENDED = "it ended"
_TOO_LARGE = f"it sent a message of more than {MAX_MESSAGE_BYTES} bytes"


@asynccontextmanager
async def stdio(
    command: Sequence[str], env: Mapping[str, str], cwd: str, on_close: Callable[[str], None], errors: bytearray
) -> AsyncIterator[Any]:
    """Start a server and exchange messages with it, one per line.

    Args:
        command: The program and its arguments.
        env: Variables besides a few that programs need; nothing else is inherited.
        cwd: The working directory.
        on_close: Called with what the server did wrong when the connection ends; empty if Reyn closed it.
        errors: Receives the end of what the server writes to its standard error.
    """
    import anyio

    server = await _start(command, env, cwd)
    inbound, received = anyio.create_memory_object_stream[Any](0)
    sent, outbound = anyio.create_memory_object_stream[Any](0)
    errors_end = asyncio.create_task(_keep_end(server.stderr, errors))
    asked = _Requests()
    work = (_read(server.stdout, inbound, on_close, errors_end, asked), _write(outbound, server.stdin, asked))
    tasks = [errors_end, *(asyncio.create_task(_until_closed(one, on_close)) for one in work)]
    try:
        yield received, sent
    finally:
        await _stop(server, tasks)
        for stream in (inbound, received, sent, outbound):
            stream.close()


class _Server:
    """A process, and the descriptor that ends it and everything that it started when it is closed.

    Without a reaper, which needs Linux, a server that ignores the end of its input outlives a killed Reyn.
    """

    def __init__(self, process: asyncio.subprocess.Process, control: int | None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self._control = control

    def terminate(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGTERM)

    def kill(self) -> None:
        if self._control is not None:
            control, self._control = self._control, None
            os.close(control)
        elif platform.system() != "Linux":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)


async def _start(command: Sequence[str], env: Mapping[str, str], cwd: str) -> _Server:
    from reyn.sandbox.reaping import control_pipe, reaped

    variables = {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(env)
    if shutil.which(command[0], path=variables.get("PATH")) is None and not _is_file(command[0], cwd):
        raise FileNotFoundError(command[0])
    pipe = asyncio.subprocess.PIPE
    start = partial(
        asyncio.create_subprocess_exec,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=variables,
        cwd=cwd,
        start_new_session=True,
    )
    if platform.system() != "Linux":
        return _Server(await start(*command), None)
    with control_pipe() as (control, held):
        return _Server(await start(*reaped(command, control), pass_fds=(control,)), held)


def _is_file(program: str, cwd: str) -> bool:
    """Return whether a program is named by a path in the server's working directory."""
    return "/" in program and os.access(os.path.join(cwd, program), os.X_OK)  # noqa: PTH118 - a text, as `command` is


class _ServerFault(Exception):
    """What the server did wrong."""


async def _keep_end(stderr: asyncio.StreamReader, errors: bytearray) -> None:
    """Read what a server writes to its standard error, and keep the end of it."""
    while chunk := await stderr.read(_CHUNK):
        errors += chunk
        del errors[:-MAX_ERRORS]


class _Requests:
    """Counts the requests of a server that have no answer yet."""

    def __init__(self) -> None:
        self._unanswered = 0

    def received(self, message: Any) -> None:
        self._unanswered += hasattr(message, "method") and hasattr(message, "id")
        if self._unanswered > MAX_UNANSWERED:
            raise _ServerFault(f"it sent more than {MAX_UNANSWERED} requests without reading the answers")

    def sent(self, message: Any) -> None:
        self._unanswered -= not hasattr(message, "method")


async def _read(
    stdout: asyncio.StreamReader,
    inbound: Any,
    on_close: Callable[[str], None],
    errors_end: asyncio.Task[None],
    asked: _Requests,
) -> None:
    """Pass the messages of a server on, until it ends or does something wrong."""
    from mcp.shared.message import SessionMessage

    async with inbound:
        try:
            async for line in _lines(stdout):
                if (message := _message(line)) is not None:
                    asked.received(message)
                    await inbound.send(SessionMessage(message))
            await asyncio.wait([errors_end], timeout=_DRAIN_SECONDS)
            on_close(SERVER_ENDED)
        except _ServerFault as fault:
            on_close(str(fault))


async def _lines(stdout: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield complete lines, each at most as long as a message may be."""
    buffer = bytearray()
    while chunk := await stdout.read(_CHUNK):
        buffer += chunk
        # Only the new part can hold the end of a line: searching all of it would be quadratic.
        *lines, rest = bytes(buffer).split(b"\n") if b"\n" in chunk else (buffer,)
        buffer = bytearray(rest) if lines else buffer
        if max(map(len, (*lines, buffer))) > MAX_MESSAGE_BYTES:
            raise _ServerFault(_TOO_LARGE)
        for line in lines:
            yield line


def _message(line: bytes) -> Any:
    """Return the message on a line; `None` for other lines, which servers print, too."""
    from mcp_types import jsonrpc_message_adapter

    try:
        check_values(line)
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except JsonError as error:
        raise _ServerFault(f"it sent a message that cannot be read: {error}") from error
    except ValueError as error:
        if b'"jsonrpc"' not in line:
            return None
        raise _ServerFault("it sent a message that is not valid JSON-RPC") from error


async def _write(outbound: Any, stdin: asyncio.StreamWriter, asked: _Requests) -> None:
    """Send messages to a server. One is sent when the server's pipe has taken it."""
    stdin.transport.set_write_buffer_limits(0)
    async with outbound:
        async for message in outbound:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            stdin.write(text.encode("utf-8", "backslashreplace") + b"\n")
            await stdin.drain()
            asked.sent(message.message)


async def _until_closed(work: Coroutine[Any, Any, None], on_close: Callable[[str], None]) -> None:
    """Run a task of the transport. When it ends, for whatever reason, the connection is closed."""
    try:
        with suppress(Exception):
            await work
    finally:
        on_close("")


async def _stop(server: _Server, tasks: list[asyncio.Task[None]]) -> None:
    """Close the server's input, then end it with everything that it started."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    with suppress(OSError):
        server.stdin.close()
    for end in (None, server.terminate, server.kill):
        if end is not None:
            end()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await server.process.wait()
                break
    server.kill()  # what it started may outlive it
    # asyncio has no other way to close a pipe that still holds data.
    server.process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001


def http_client(headers: Mapping[str, str], seconds: float) -> Any:
    """Return an HTTP client whose responses are bounded. It follows no redirects and ignores proxies."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size, values = 0, ValueCounter()
            async for chunk in self._stream:
                size += len(chunk)
                if size > MAX_MESSAGE_BYTES:
                    raise httpx2.ReadError("the response is too large")
                try:
                    values.add(chunk)
                except JsonError as error:
                    raise httpx2.ReadError(f"the response cannot be read: {error}") from error
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    class Transport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: Any) -> Any:
            response = await super().handle_async_request(request)
            # Compressed data may expand a thousandfold, and the client would decompress it without a limit.
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()
                raise httpx2.ReadError("the response is compressed")
            # JSON and events are UTF-8. In another character set, the values would look like something else.
            response.headers["content-type"] = response.headers.get("content-type", "").partition(";")[0]
            response.stream = Bounded(response.stream)
            return response

    timeout = httpx2.Timeout(seconds, read=max(seconds, 300.0))
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **headers},
        timeout=timeout,
        transport=Transport(),
        trust_env=False,
        follow_redirects=False,
    )
