"""What the server returns beside the values of the runtime, and how JSON becomes both."""

from __future__ import annotations

from typing import Any

import msgspec

from reyn.errors import GatewayError
from reyn.journal import Event, RunRow
from reyn.kernel.world.inbox import PostedReply


class RemoteReply(PostedReply, frozen=True, kw_only=True):
    """A reply that the server stored. `is_continued` tells whether a process continues the run, after event `seq`."""

    is_continued: bool
    seq: int


class Resource(msgspec.Struct, frozen=True):
    """A value that the server returns. `fields` has everything."""

    fields: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.fields:
            raise AttributeError(name)
        return self.fields[name]


def row_of_view(view: dict[str, Any]) -> RunRow:
    """Return the row of a run; the server sends it with what users see beside it."""
    return msgspec.convert(view, RunRow)


def event_of(value: dict[str, Any]) -> Event:
    """Return an event as the journal has it.

    Raises:
        GatewayError: It is none that this client knows.
    """
    try:
        raw = msgspec.json.encode(value["data"])
        return Event(
            seq=value["seq"],
            run_id=value["run_id"],
            ts=value["ts"],
            kind=value["kind"],
            v=value["v"],
            raw=raw,
            prev=value["prev"],
            hash=value["hash"],
        )
    except (KeyError, TypeError) as error:
        raise GatewayError("the server sent an event that this client does not know") from error
