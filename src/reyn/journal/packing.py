"""The events of one commit as one value: a text with one line per event, and their hashes.

A line is the JSON array `[seq, ts, kind, v, data]`, with data as stored. The hash of an event covers its line and the
hash of the event before it, so reading compares what is stored and encodes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from reyn.errors import ChainBroken
from reyn.journal.registry import Event

_Line = tuple[int, int, str, int, msgspec.Raw]
_decoder = msgspec.json.Decoder(_Line)
_DIGEST = 32
_HEX = 2 * _DIGEST


def pack(events: Sequence[Event]) -> tuple[bytearray, bytearray]:
    """Return the text and the hashes of the events of a commit."""
    lines = [b'[%d,%d,"%b",%d,%b]' % (one.seq, one.ts, one.kind.encode(), one.v, one.raw) for one in events]
    return bytearray(b"\n").join(lines), bytearray.fromhex("".join([one.hash for one in events]))


def unpack(run_id: str, text: bytes, hashes: bytes, after: int, prev: str) -> list[Event]:
    """Return the events of a commit.

    Args:
        run_id: The run.
        text: The text of the commit.
        hashes: The hashes of its events.
        after: The sequence number of the event before the first one.
        prev: Its hash.

    Raises:
        ChainBroken: Names the first event that is missing or does not match its hash.
    """
    lines = text.split(b"\n")
    events = []
    for line, (seq, ts, kind, v, raw) in zip(lines, _decode(lines, text), strict=False):
        hashed = sha256(b'%b,"%b"]' % (line[:-1], prev.encode())).hexdigest()
        events.append(Event(seq, run_id, ts, kind, v, bytes(raw), prev, hashed))
        prev = hashed
    recorded = hashes.hex()
    numbers = [*range(after + 1, after + 1 + len(lines))]
    if [one.seq for one in events] != numbers or "".join([one.hash for one in events]) != recorded:
        wrong = _first_wrong(events, recorded, after)
        kind = f" `{events[wrong].kind}`" if wrong < len(events) else ""
        raise ChainBroken(f"event {after + wrong + 1}{kind} of run `{run_id}` does not match its recorded hash")
    return events


def head_of(hashes: bytes) -> str:
    """Return the hash of the last event of a commit."""
    return hashes[-_DIGEST:].hex()


def data_sizes(text: bytes) -> list[int]:
    """Return the size of the data of each event of a commit."""
    return [len(bytes(raw)) for *_, raw in _decode(text.split(b"\n"), text)]


def _decode(lines: list[bytes], text: bytes) -> list[_Line]:
    """Decode the lines of a text, up to the first that is damaged."""
    try:
        return _decoder.decode_lines(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        decoded: list[_Line] = []
    for line in lines:
        try:
            decoded.append(_decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            break
    return decoded


def _first_wrong(events: list[Event], recorded: str, after: int) -> int:
    """Return the index of the first event that does not match; the number of events if the next one is missing."""
    for index, one in enumerate(events):
        if one.seq != after + 1 + index or one.hash != recorded[_HEX * index : _HEX * index + _HEX]:
            return index
    return len(events)
