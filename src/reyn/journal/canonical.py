"""A JSON value becomes the one sequence of bytes that stands for it; bytes become the name they are kept under.

The bytes written here are the bytes that are stored and hashed; nothing is ever encoded again to check a hash.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(order="deterministic")
_ordered = msgspec.json.Encoder()


class Blob(msgspec.Struct, frozen=True):
    """Content and its name. Make one with `Blob.of`."""

    hash: str
    content: bytes

    @classmethod
    def of(cls, content: bytes) -> Blob:
        return cls(digest(content), content)


def canonical(value: Any) -> bytes:
    """The canonical JSON of a value made of JSON types, structs and tuples."""
    return _encoder.encode(value)


def ordered(value: Any) -> bytes:
    """The JSON of a value with its keys in their own order, for copies in which the order is part of the value."""
    return _ordered.encode(value)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


MAX_DEPTH = 200
MAX_BITS = 1_024


def check_json(value: Any, path: str = "$", depth: int = 0) -> None:
    """Refuse what JSON cannot hold, before the encoder writes NaN as null. For values that come from Python code;
    text that was parsed as JSON holds none of it."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    match value:
        case None | bool():
            return
        case int():
            if value.bit_length() > MAX_BITS:
                raise ValueError(f"{path}: a number of {value.bit_length()} bits is too large")
        case str():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise ValueError(f"{path}: text with a lone surrogate is not JSON") from None
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{path}: {value!r} is not JSON")
        case list() | tuple():
            for index, item in enumerate(value):
                check_json(item, f"{path}[{index}]", depth + 1)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise ValueError(f"{path}: the key {key!r} is not a string")
                check_json(key, f"{path} key", depth)
                check_json(item, f"{path}.{key}", depth + 1)
        case _:
            raise ValueError(f"{path}: a {type(value).__name__} is not JSON")
