"""Store a history that a conversation starts with: segments of messages, so that a call stores what is new.

A history is stored as segments of 256 messages, then of 16, then the rest. Segments are named by their content: the
history of the next call has the same ones and differs in the last few. Nothing here does I/O.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from reyn.context.transcript import NormalizedMessage, NormalizedMessageList
from reyn.journal import Blob, canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LARGE, _SMALL = 256, 16
_MAX_LOADED = 64
_DECODER = msgspec.json.Decoder(tuple[NormalizedMessage, ...])


class StoredHistory(NamedTuple):
    """A history in storage: the hashes of its segments, and its number of messages."""

    segments: tuple[str, ...] = ()
    length: int = 0


def store_history(
    messages: NormalizedMessageList, known: StoredHistory | None = None
) -> tuple[StoredHistory, tuple[Blob, ...]]:
    """Return how a history is stored, and the segments that are new.

    Args:
        messages: The history; its system message is not part of it.
        known: How a beginning of it is stored already. The time then depends on the rest only.
    """
    known = known or StoredHistory()
    large, small = known.length // _LARGE, known.length % _LARGE // _SMALL
    kept = large + (small if messages.length // _LARGE == large else 0)
    start = large * _LARGE + (kept - large) * _SMALL
    rest = messages.tail(messages.length - start)
    blobs = tuple(Blob.of(canonical(segment)) for segment in _segments(rest, start, messages.length))
    return StoredHistory((*known.segments[:kept], *(blob.hash for blob in blobs)), messages.length), blobs


def _segments(
    messages: tuple[NormalizedMessage, ...], start: int, length: int
) -> Iterator[tuple[NormalizedMessage, ...]]:
    """Split the messages from position `start` of a history of this length."""
    at = 0
    while at < len(messages):
        position = start + at
        size = _LARGE if position % _LARGE == 0 and position + _LARGE <= length else min(_SMALL, len(messages) - at)
        yield messages[at : at + size]
        at += size


def load_history(segments: tuple[str, ...], content: Callable[[str], bytes]) -> NormalizedMessageList:
    """Return a stored history. The last ones are kept in memory, because a run reads its history for every turn."""
    with _lock:
        found = _loaded.get(segments)
    if found is None:
        found = NormalizedMessageList(message for name in segments for message in _DECODER.decode(content(name)))
        remember_history(segments, found)
    return found


def remember_history(segments: tuple[str, ...], messages: NormalizedMessageList) -> None:
    """Keep a history in memory whose segments are being stored."""
    with _lock:
        _loaded[segments] = messages
        while len(_loaded) > _MAX_LOADED:
            _loaded.popitem(last=False)


_loaded: OrderedDict[tuple[str, ...], NormalizedMessageList] = OrderedDict()
_lock = Lock()
