"""Read lines of standard input during a conversation."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

from reyn.errors import InputInvalid
from reyn.runtime.messages import MAX_MESSAGE_CHARS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_MAX_LINE_BYTES = 4 * MAX_MESSAGE_CHARS
"""No character of UTF-8 has more than four bytes."""


async def read_lines() -> AsyncIterator[str]:
    """Yield the lines of standard input without their line ends. A line is read when it is asked for.

    A daemon thread reads from the file descriptor: a read that blocks delays neither Ctrl-C nor the end of the process.

    Raises:
        InputInvalid: A line is not UTF-8 text, or too long.
    """
    loop = asyncio.get_running_loop()
    wanted: SimpleQueue[asyncio.Future[bytes]] = SimpleQueue()
    threading.Thread(target=_serve, args=(wanted, _reader(), loop), name="standard input", daemon=True).start()
    number = 0
    while True:
        reading: asyncio.Future[bytes] = loop.create_future()
        wanted.put(reading)
        line = await reading
        if not line:
            return
        number += 1
        try:
            yield line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            message = f"line {number} of standard input is not UTF-8 text: {error.reason}"
            raise InputInvalid(message, hint="Convert the input to UTF-8, for example with `iconv`.") from error


def _serve(
    wanted: SimpleQueue[asyncio.Future[bytes]], read: Callable[[], bytes], loop: asyncio.AbstractEventLoop
) -> None:
    while True:
        reading = wanted.get()
        line: bytes | Exception
        try:
            line = read()
        except Exception as error:  # noqa: BLE001 - raised where the line is awaited
            line = error
        try:
            loop.call_soon_threadsafe(_deliver, reading, line)
        except RuntimeError:  # the loop is closed
            return
        if not line or isinstance(line, Exception):
            return


def _deliver(reading: asyncio.Future[bytes], line: bytes | Exception) -> None:
    if reading.done():
        return
    if isinstance(line, Exception):
        reading.set_exception(line)
    else:
        reading.set_result(line)


def _reader() -> Callable[[], bytes]:
    """Return a function that reads one line; it returns an empty one at the end."""
    try:
        descriptor = sys.stdin.fileno()
    except (io.UnsupportedOperation, ValueError):  # a program replaced it
        stream = sys.stdin
        return lambda: stream.readline().encode(errors="surrogateescape")
    return _DescriptorLines(descriptor).read


class _DescriptorLines:
    """Reads lines from a file descriptor. No lock of a stream is held meanwhile, so the interpreter can exit."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._searched = 0

    def read(self) -> bytes:
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if self._searched > _MAX_LINE_BYTES:
                raise InputInvalid(
                    f"a line of standard input is longer than {_MAX_LINE_BYTES} bytes", hint="Shorten the message."
                )
            chunk = os.read(self._descriptor, 1 << 16)
            if not chunk:
                end = len(self._buffer) - 1
                break
            self._buffer += chunk
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        self._searched = 0
        return line
