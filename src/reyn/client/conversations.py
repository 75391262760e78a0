"""`RemoteConversations`: conversations on a server, with the names of `Conversations`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from reyn.client.values import Begun, Resource, StartedRun
from reyn.journal import RunRow

if TYPE_CHECKING:
    from reyn.client.transport import Transport
    from reyn.models import Image


class _Said(msgspec.Struct, frozen=True):
    messages: list[dict[str, Any]]


class _Open(msgspec.Struct, frozen=True):
    run: RunRow


def _chat(run: str, rest: str = "") -> str:
    return f"/api/conversations/{quote(run, safe='')}{rest}"


class RemoteConversations:
    """Conversations on a server, which has them open: they go on without the client."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def begin(
        self, text: str, *, agent: str | None = None, run_id: str | None = None, images: Sequence[Image] = ()
    ) -> str:
        """Begin a conversation with a message; return its run."""
        body = {"text": text, "agent": agent, "run_id": run_id, "images": _sent(images)}
        return (await self._transport.call("POST", "/api/conversations", Begun, body)).run_id

    async def messages(self, run: str) -> list[Resource]:
        """Return the messages of a conversation."""
        return [Resource(one) for one in (await self._transport.call("GET", _chat(run), _Said)).messages]

    async def say(self, run: str, text: str, *, images: Sequence[Image] = ()) -> None:
        """Say something in a conversation. The server executes it, if no other process does."""
        await self._transport.call("POST", _chat(run, "/messages"), object, {"text": text, "images": _sent(images)})

    async def check_open(self, run: str) -> RunRow:
        """Return a conversation that takes messages."""
        return (await self._transport.call("GET", _chat(run), _Open)).run

    async def rename(self, run: str, title: str) -> None:
        """Give a conversation a title; an empty one removes it."""
        await self._transport.call("PUT", _chat(run, "/title"), object, {"title": title})

    async def copy(self, run: str, *, run_id: str | None = None) -> str:
        """Copy a conversation with everything that was completed; return the run of the copy."""
        return (await self._transport.call("POST", _chat(run, "/copy"), StartedRun, {"run_id": run_id})).run_id

    async def abort_turn(self, run: str, reason: str = "") -> None:
        """Abort the turn in progress of a conversation. The conversation can be continued."""
        await self._transport.call("POST", _chat(run, "/abort"), object, {"reason": reason})

    async def remember(self, run: str, text: str) -> None:
        """Add a text to the memory of a conversation."""
        await self._transport.call("POST", _chat(run, "/memory"), object, {"remember": text})

    async def forget(self, run: str, entry_id: str) -> None:
        """Remove an entry from the memory of a conversation."""
        await self._transport.call("POST", _chat(run, "/memory"), object, {"forget": entry_id})

    async def compact(self, run: str) -> None:
        """Let a conversation replace its older messages by a summary, before its next model call."""
        await self._transport.call("POST", _chat(run, "/memory"), object, {"compact": True})


def _sent(images: Sequence[Image]) -> list[dict[str, str]]:
    return [{"media_type": one.media_type, "data": one.data} for one in images]
