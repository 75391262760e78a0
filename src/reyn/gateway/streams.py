"""Server-sent events: of one run, and of everything that changes.

A stream of a run stands on `Runs.watch`, whatever process executes the run. The feed of changes is for pages, which
read what they show through the API.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from sse_starlette import EventSourceResponse

from reyn.errors import ReynError, TooManyRequests
from reyn.gateway.changes import DeltaArrived
from reyn.gateway.problems import problem_of
from reyn.gateway.views import event_view
from reyn.journal.family import root_run

if TYPE_CHECKING:
    from reyn.gateway.access import Principal
    from reyn.gateway.site import Gateway
    from reyn.journal import Event
    from reyn.models import Delta

_encode = msgspec.json.Encoder(enc_hook=str).encode
MAX_STREAMS = 2_500
MAX_STREAMS_OF_ONE = MAX_STREAMS // 5
"""The streams of one token with the sessions that it opened, so that no token takes those of all others."""
_SEND_SECONDS = 30
"""A client that reads nothing for so long is dropped. It continues from its last event."""
_PING_SECONDS = 15
_ACCESS_SECONDS = 5
"""How long a token that was revoked, or has expired, still gets events."""
_MAX_WAITING = 200
"""Events that wait for a client. While it reads nothing, no more of them are read."""


class WatchOptions(NamedTuple):
    """Which events of a run to stream; see `Runs.watch`."""

    run: str
    after: int
    has_deltas: bool
    follow: bool
    with_children: bool


def event_stream(site: Gateway, principal: Principal, wanted: WatchOptions) -> EventSourceResponse:
    """Return a response that streams the events of a run until it ends or stops."""
    return _response(site, principal, _events(site, wanted))


def change_stream(site: Gateway, principal: Principal) -> EventSourceResponse:
    """Return a response that streams what changes, until the server stops."""
    return _response(site, principal, _changes(site, principal))


def _response(site: Gateway, principal: Principal, events: AsyncIterator[bytes]) -> EventSourceResponse:
    if site.streams.total() >= MAX_STREAMS or site.is_draining:
        raise TooManyRequests(f"the server has {site.streams.total()} open streams")
    if (own := site.streams[principal.name]) >= MAX_STREAMS_OF_ONE:
        raise TooManyRequests(f"`{principal.name}` has {own} open streams")
    events = _while_permitted(site, principal, events)
    response = _counted(site, principal.name, events)
    return EventSourceResponse(response, ping=_PING_SECONDS, send_timeout=_SEND_SECONDS)


async def _while_permitted(site: Gateway, principal: Principal, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield events until the token or the session ends. One that sends nothing shows nothing, and is not checked."""
    checked = time.monotonic()
    async with aclosing(events):  # type: ignore[type-var]  # a generator
        async for event in events:
            if time.monotonic() - checked >= _ACCESS_SECONDS:
                if not await asyncio.to_thread(site.access.is_valid, principal):
                    return
                checked = time.monotonic()
            yield event


async def _counted(site: Gateway, name: str, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    site.streams[name] += 1
    try:
        async for event in events:
            yield event
    finally:
        site.streams -= Counter((name,))


class _Waiting:
    """What waits for a client."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()

    @property
    def count(self) -> int:
        return len(self._pieces)

    @property
    def is_full(self) -> bool:
        return len(self._pieces) >= _MAX_WAITING

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._arrived.set()

    async def space(self) -> None:
        """Wait until everything was taken."""
        self._taken.clear()
        await self._taken.wait()

    async def take(self) -> bytes:
        """Return everything that waits, as soon as there is something."""
        await self._arrived.wait()
        self._arrived.clear()
        joined = b"".join(self._pieces)
        self._pieces.clear()
        self._taken.set()
        return joined


async def _events(site: Gateway, wanted: WatchOptions) -> AsyncIterator[bytes]:
    """Yield the events that wait, together: a piece of a response costs more than many events."""
    runs, run = site.runtime.runs, wanted.run
    waiting = _Waiting()

    def on_delta(delta: Delta) -> None:
        if not waiting.is_full:  # a delta may be lost, an event may not
            waiting.add(_sent("delta", DeltaArrived(delta.run_id, delta.call, delta.text)))

    async def read() -> None:
        watch = runs.watch(
            run,
            wanted.after,
            follow=wanted.follow,
            with_children=wanted.with_children,
            on_delta=on_delta if wanted.has_deltas else None,
        )
        own = _line_of(site, run)
        async for event in watch:
            if waiting.is_full:
                await waiting.space()
            waiting.add(_sent_event(event, has_id=event.run_id in own))
        row = runs.find(run)
        waiting.add(_sent("end", {"status": row.status, "reason": row.reason, "seq": row.seq}))

    def ended(task: asyncio.Future[None]) -> None:
        site.ends.discard(task)
        waiting.add(b"")

    reading = asyncio.ensure_future(read())
    reading.add_done_callback(ended)
    site.ends.add(reading)
    try:
        while not reading.done() or waiting.count:
            if sent := await waiting.take():
                yield sent
        if not reading.cancelled() and isinstance(error := reading.exception(), ReynError):
            yield _sent("problem", problem_of(error))
    finally:
        reading.cancel()


def _line_of(site: Gateway, run: str) -> set[str]:
    """Return a run and the runs whose events it begins with: a fork has those of its origin, with their numbers."""
    journal, names = site.runtime.services.existing_journal, {run}
    row = journal.find(run)
    while row is not None and row.fork_of and row.fork_of not in names:
        names.add(row.fork_of)
        row = journal.find(row.fork_of)
    return names


async def _changes(site: Gateway, principal: Principal) -> AsyncIterator[bytes]:
    async with site.changes.reading() as reader:
        yield _sent("ready", {})
        async with aclosing(reader.read()) as found:
            async for changes in found:
                visible = [
                    _sent("change", change)
                    for change in changes
                    if not principal.skills or _is_visible(site, principal, change.run_id)
                ]
                if visible:
                    yield b"".join(visible)


def _is_visible(site: Gateway, principal: Principal, run_id: str) -> bool:
    journal = site.runtime.services.existing_journal
    row = journal.find(run_id)
    return row is not None and principal.sees(root_run(journal, row).skill)


def _sent(event: str, data: Any) -> bytes:
    """Return an event of a stream. JSON has no line breaks but in texts, where they are escaped."""
    return b"event: %b\r\ndata: %b\r\n\r\n" % (event.encode(), _encode(data))


@lru_cache(maxsize=_MAX_WAITING)
def _sent_event(event: Event, *, has_id: bool) -> bytes:
    """Return an event as it is sent. The streams of a run send it at about the same time."""
    sent = _sent("event", event_view(event))
    return b"id: %d\r\n%b" % (event.seq, sent) if has_id else sent
