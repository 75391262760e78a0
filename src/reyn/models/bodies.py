"""Decode the body of an HTTP response in steps of bounded size. Raw bytes count as well as decoded ones.

Compressed data may expand a thousandfold, contain blocks that expand to nothing, or be followed by anything. Here one
encoding is decoded, up to limits; what follows the end of a stream is an error and is not stored.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 47}
_CHUNK = 65_536


class Undecodable(ValueError):
    """The content encoding was not requested, or the content does not have it."""


class TooManyBytes(Undecodable):
    """More raw bytes were received than are allowed."""


class BodyDecoder:
    """Decodes a body.

    Args:
        encoding: The header `content-encoding`; empty if there is none.
        most: Raw bytes that are accepted.
    """

    def __init__(self, encoding: str, most: int) -> None:
        self._encoding = encoding.strip().lower() or "identity"
        self._left = most
        if self._encoding != "identity" and self._encoding not in _WINDOW_BITS:
            raise Undecodable(f"content encoding {encoding[:40]!r}")
        bits = _WINDOW_BITS.get(self._encoding)
        self._decoder = None if bits is None else zlib.decompressobj(bits)

    @property
    def is_complete(self) -> bool:
        """Whether the compressed data has ended; also if the content is not compressed."""
        return self._decoder is None or self._decoder.eof

    def decode(self, content: bytes) -> Iterator[bytes]:
        """Yield the decoded content in pieces of at most 64 KB.

        Raises:
            Undecodable: It is not valid, or something follows its end.
            TooManyBytes: The raw bytes exceed the limit.
        """
        self._left -= len(content)
        if self._left < 0:
            raise TooManyBytes("too many bytes were received")
        if self._decoder is None:
            yield from (content[at : at + _CHUNK] for at in range(0, len(content), _CHUNK))
            return
        has_more = bool(content)
        while has_more:
            if self._decoder.eof:
                raise Undecodable(f"bytes follow the end of the {self._encoding} data")
            try:
                piece = self._decoder.decompress(content, _CHUNK)
            except zlib.error as error:
                raise Undecodable(f"not valid {self._encoding}: {error}") from error
            yield piece
            content = self._decoder.unconsumed_tail or self._decoder.unused_data
            has_more = bool(content) or (len(piece) == _CHUNK and not self._decoder.eof)  # a match may go on
