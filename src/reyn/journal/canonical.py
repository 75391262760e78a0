"""Canonical JSON and content hashes.

The journal stores and hashes exactly these bytes. Verification hashes the stored bytes and never encodes again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    ReadBlob = Callable[[str], bytes]
    """Returns content by its hash."""


class Blob(msgspec.Struct, frozen=True, gc=False):
    """Content and its SHA-256 hash. Create one with `Blob.of`."""

    hash: str
    content: bytes

    @classmethod
    def of(cls, content: bytes) -> Blob:
        """Return the blob of some content."""
        return cls(digest(content), content)


canonical: Callable[[Any], bytes] = msgspec.json.Encoder(order="deterministic").encode
"""Return the canonical JSON (sorted keys) of a value made of JSON types, structs and tuples."""


ordered: Callable[[Any], bytes] = msgspec.json.Encoder().encode
"""Return JSON that preserves the order of keys, for values whose order matters, such as skills."""


def digest(content: bytes) -> str:
    """Return the SHA-256 of content, in hexadecimal."""
    return sha256(content).hexdigest()


MAX_JSON_DEPTH = 200
MAX_BITS = 1_024


def check_json(value: Any, path: str = "$", depth: int = 0) -> None:
    """Check that a value from Python code is JSON. The encoder would silently write NaN as null.

    Raises:
        ValueError: The value is not JSON; the message names the path.
    """
    if not _is_plain(value, depth):
        _check_parts(value, path, depth)


def _is_plain(value: Any, depth: int) -> bool:
    """Return whether a value is JSON at first sight. If not, `_check_parts` decides and finds the path."""
    kind = type(value)
    if kind is str:
        return value.isascii() or _is_encodable(value)
    if kind is dict and depth < MAX_JSON_DEPTH:
        for key, item in value.items():
            if type(key) is not str or not (key.isascii() or _is_encodable(key)):
                return False
            if type(item) is str:
                if not (item.isascii() or _is_encodable(item)):
                    return False
            elif not _is_plain(item, depth + 1):
                return False
        return True
    if kind is list and depth < MAX_JSON_DEPTH:
        return all(_is_plain(item, depth + 1) for item in value)
    if kind is float:
        return math.isfinite(value)
    return value is None or kind is bool or (kind is int and bool(-_LARGE < value < _LARGE))


_LARGE = 2**64
_ENCODED = frozenset({int, str, float, tuple})
"""Types of which the encoder and the validators accept no subclasses but enumerations."""


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_parts(value: Any, path: str, depth: int) -> None:
    if depth > MAX_JSON_DEPTH:
        raise ValueError(f"the value is nested more than {MAX_JSON_DEPTH} levels deep")
    match value:
        case None | bool():
            return
        case int() | str() | float() | tuple() if type(value) not in _ENCODED and not isinstance(value, Enum):
            raise ValueError(f"{path}: a {type(value).__name__} is not JSON")
        case int():
            if value.bit_length() > MAX_BITS:
                raise ValueError(f"{path}: an integer of {value.bit_length()} bits is too large")
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
                _check_parts(item, f"{path}[{index}]", depth + 1)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise ValueError(f"{path}: the key {key!r} is not a string")
                _check_parts(key, f"{path} key", depth)
                _check_parts(item, f"{path}.{key}", depth + 1)
        case _:
            raise ValueError(f"{path}: a {type(value).__name__} is not JSON")
