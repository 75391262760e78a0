"""One event of a run, and the hash that chains it to the event before."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from reyn.errors import EventInvalid

GENESIS = "0" * 64
"""`prev` of the first event of a run."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event as it is stored. `raw` holds the stored bytes of its data; `ts` is in microseconds since 1970, UTC."""

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
        """The data as JSON values. Raises `EventInvalid` if the stored bytes are not JSON."""
        try:
            decoded: dict[str, Any] = msgspec.json.decode(self.raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise EventInvalid(f"event {self.seq} `{self.kind}` of run `{self.run_id}`: {error}") from error
        return decoded

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON object of the event."""
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
        """Whether the stored bytes match the recorded hash."""
        return link(self.seq, self.ts, self.kind, self.v, self.raw, self.prev) == self.hash


def link(seq: int, ts: int, kind: str, v: int, raw: bytes, prev: str) -> str:
    """Return the hash of an event: SHA-256 of the JSON array `[seq, ts, kind, v, data, prev]`, with data as stored."""
    preimage = b'[%d,%d,"%b",%d,%b,"%b"]' % (seq, ts, kind.encode(), v, raw, prev.encode())
    return sha256(preimage).hexdigest()
