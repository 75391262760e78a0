"""One entry of a run's history, and the chain that binds it to the entry before."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from reyn.errors import EventInvalid

GENESIS = "0" * 64
"""What the first event of a run chains on."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """`raw` holds the stored bytes of the event's data; `hash` covers them, the other fields and `prev`."""

    seq: int
    run_id: str
    ts: int
    kind: str
    v: int
    raw: bytes
    prev: str
    hash: str

    @property
    def data(self) -> dict[str, Any]:
        """The data as plain JSON."""
        try:
            decoded: dict[str, Any] = msgspec.json.decode(self.raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise EventInvalid(f"event {self.seq} `{self.kind}` of run `{self.run_id}`: {error}") from error
        return decoded

    def as_json(self) -> dict[str, Any]:
        return {
            "seq": self.seq,
            "run_id": self.run_id,
            "ts": self.ts,
            "kind": self.kind,
            "v": self.v,
            "data": self.data,
            "prev": self.prev,
            "hash": self.hash,
        }

    @property
    def is_intact(self) -> bool:
        return link(self.seq, self.ts, self.kind, self.v, self.raw, self.prev) == self.hash


def link(seq: int, ts: int, kind: str, v: int, raw: bytes, prev: str) -> str:
    """The hash of an event: SHA-256 of the JSON array `[seq, ts, kind, v, data, prev]`, the data as stored."""
    preimage = b'[%d,%d,"%b",%d,%b,"%b"]' % (seq, ts, kind.encode(), v, raw, prev.encode())
    return hashlib.sha256(preimage).hexdigest()
