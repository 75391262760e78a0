"""What a model thought before an answer, as its provider gave it.

Thoughts are opaque: they are recorded with the answer and go back to the same model with the results of its calls, and
nothing else reads them. The adapters know their form; `summary` is for people.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from reyn.journal import canonical


class Thoughts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The thoughts of one answer.

    Attributes:
        api: The API whose adapter received them and can send them back.
        parts: JSON values in the form of the adapter: blocks, signatures, encrypted data.
        summary: The part that people can read; empty if the provider gives none.
        model: The model that thought. Reyn sets it, and shows the thoughts to no other model.
    """

    api: str
    parts: tuple[Any, ...] = ()
    summary: str = ""
    model: str = ""

    def scrubbed(self, scrub: Callable[[str], str]) -> Thoughts:
        """Return the thoughts without secrets. Parts that had one would not have their signature, and are dropped."""
        parts = self.parts if all(_is_clean(part, scrub) for part in self.parts) else ()
        summary = scrub(self.summary).encode("utf-8", "backslashreplace").decode()
        return msgspec.structs.replace(self, parts=parts, summary=summary)


def _is_clean(value: Any, scrub: Callable[[str], str]) -> bool:
    """Return whether a JSON value has no secret and no text that cannot be stored.

    Raises:
        TypeError: It is no JSON value.
    """
    if isinstance(value, dict):
        return all(_is_clean(key, scrub) and _is_clean(one, scrub) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(_is_clean(one, scrub) for one in value)
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return True
    if not isinstance(value, str):
        raise TypeError(f"a part of `Thoughts` has a {type(value).__name__}, which is no JSON value: {value!r:.100}")
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return scrub(value) == value


def encode_thoughts(thoughts: Thoughts, model: str, scrub: Callable[[str], str]) -> bytes | None:
    """Return the bytes to record for the thoughts of a model; `None` if nothing is left.

    Those of a recorded answer keep their model.
    """
    clean = msgspec.structs.replace(thoughts.scrubbed(scrub), model=thoughts.model or model)
    return canonical(clean) if clean.parts or clean.summary else None


_decoder = msgspec.json.Decoder(Thoughts)


def decode_thoughts(content: bytes) -> Thoughts:
    """Return recorded thoughts.

    Raises:
        msgspec.MsgspecError: The content has another shape.
    """
    return _decoder.decode(content)
