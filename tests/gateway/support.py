"""A gateway in memory: a project with a scripted model, its application, and clients that need no socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from reyn.api import ChatRuntime
from reyn.gateway import Gateway, create_app
from reyn.gateway.access import new_token
from reyn.gateway.server import ServerSettings, Started, serve
from reyn.journal import MemoryJournal
from reyn.journal.results import SCOPES, TokenScope
from reyn.testing import ScriptedModel
from tests.support import question, two_phases, write_skill

HOST = "127.0.0.1:8300"
QUESTION = {"control_ir": [question("Which one?")]}


class Served(NamedTuple):
    """A gateway, and what makes clients of it."""

    site: Gateway
    app: Any

    def token(self, *scopes: TokenScope, name: str = "", skills: Collection[str] = ()) -> str:
        """Return the secret of a new token, by default one that may do everything."""
        journal = self.site.runtime.services.journal
        label = name or f"token {len(journal.access_tokens())}"
        return new_token(journal, label, scopes or SCOPES, skills=skills, now=self.site.runtime.services.clock.now())

    def http(self, secret: str | None = None, **headers: str) -> httpx2.AsyncClient:
        """Return a client, without a token if there is no secret."""
        authorization = {"Authorization": f"Bearer {secret}"} if secret is not None else {}
        transport = httpx2.ASGITransport(self.app, raise_app_exceptions=False)
        return httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=authorization | headers)


@asynccontextmanager
async def serving(root: Path, answers: list[Any], **options: Any) -> AsyncIterator[Served]:
    """Serve a project with the skills `pair` and `asker`."""
    two_phases(root)
    write_skill(root, "asker", {"ask": ["end"]}, ops={"ask": "ask_user"})
    model = ScriptedModel(answers)
    settings: dict[str, Any] = {"model": model, "journal": MemoryJournal(), "trust": True}
    async with ChatRuntime.open(root, **(settings | options)) as runtime:
        site = Gateway(runtime, user="ada")
        try:
            yield Served(site, create_app(site, [HOST]))
        finally:
            await site.close()


def run_async(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 120))  # only bounds a hang


async def ended(http: httpx2.AsyncClient, run: str) -> dict[str, Any]:
    """Return a run when it no longer executes. Every wait is for an event of the run."""
    async with http.stream("GET", f"/api/runs/{run}/stream") as response:
        await response.aread()
    return (await http.get(f"/api/runs/{run}")).json()


@contextmanager
def served_on_socket(root: Path, model: Any) -> Iterator[tuple[str, str]]:
    """Run the server on a socket, in a thread; yield its address and a token that may do everything."""
    begun, found, stopping = threading.Event(), [], []

    async def work() -> None:
        async with ChatRuntime.open(root, model=model, trust=True) as runtime:
            secret = new_token(runtime.services.journal, "all", SCOPES, now=runtime.services.clock.now())

            def on_start(started: Started) -> None:
                found.extend((started.url, secret))
                begun.set()

            task = asyncio.ensure_future(serve(runtime, ServerSettings(port=0), user="ada", on_start=on_start))
            stopping.append((asyncio.get_running_loop(), task))
            with suppress(asyncio.CancelledError):
                await task

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert begun.wait(120)
        yield found[0], found[1]
    finally:
        loop, task = stopping[0]
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
