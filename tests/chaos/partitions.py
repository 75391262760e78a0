"""A proxy in front of a PostgreSQL server, which delays what passes, or lets nothing pass and then cuts it off."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

SOCKET = ".s.PGSQL.5432"


class Proxy:
    """Forwards connections from the socket in `folder` to that in `server`. All proxies share one thread."""

    def __init__(self, folder: Path, server: Path, network: Network) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self._server = folder, server / SOCKET
        self._delay = 0.0
        self._is_open = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._network = network
        network.run(self._start())

    async def _start(self) -> None:
        self._is_open.set()
        await asyncio.start_unix_server(self._accept, self.folder / SOCKET)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_unix_connection(self._server)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, there_writer}
        await asyncio.gather(self._pump(reader, there_writer), self._pump(there_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await asyncio.sleep(self._delay)
                await self._is_open.wait()
                if writer.is_closing():
                    break
                writer.write(data)
                await writer.drain()
        self._writers.discard(writer)
        writer.close()

    def drop(self, seconds: float) -> None:
        """Let nothing pass for a while; then end the connections, with what was under way."""
        self._network.begin(self._drop(seconds))

    async def _drop(self, seconds: float) -> None:
        self._is_open.clear()
        await asyncio.sleep(seconds)
        for writer in list(self._writers):
            writer.transport.abort()
        self._writers.clear()
        self._is_open.set()

    def slow(self, seconds: float, delay: float) -> None:
        """Delay everything for a while."""
        self._network.begin(self._slow(seconds, delay))

    async def _slow(self, seconds: float, delay: float) -> None:
        self._delay = delay
        await asyncio.sleep(seconds)
        self._delay = 0.0


class Network:
    """The thread of the proxies."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def begin(self, work) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
