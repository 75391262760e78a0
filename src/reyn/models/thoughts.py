"""What a model thought before an answer, as its provider gave it.

Thoughts are opaque: they are recorded with the answer and go back to the same model with the results of its calls, and
nothing else reads them. The adapters know their form; `summary` is for people.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

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


_BEGIN, _END = "<think>", "</think>"


class ThinkTags:
    """Splits a streamed text that begins with `<think>` into thoughts and answer, in time linear in its length.

    Only a tag at the beginning counts: an answer may contain one. Without its end, everything is thoughts.
    """

    def __init__(self) -> None:
        self._state: Literal["start", "thoughts", "gap", "answer"] = "start"
        self._held = ""
        self._blanks: list[str] = []
        """The blanks before the text, which are a part of it if it does not begin with the tag."""

    def split(self, piece: str) -> tuple[str, str]:
        """Return the thoughts and the answer in the next piece. Both lack what may be a part of a tag."""
        thought = ""
        if self._state == "answer":
            return "", piece
        text, self._held = self._held + piece, ""
        if self._state == "start":
            beginning = text.lstrip()
            self._blanks.append(text[: len(text) - len(beginning)])
            if not beginning.startswith(_BEGIN):
                if _BEGIN.startswith(beginning):
                    self._held = beginning
                    return "", ""
                self._state = "answer"
                return "", f"{''.join(self._blanks)}{beginning}"
            self._state, text = "thoughts", beginning[len(_BEGIN) :]
        if self._state == "thoughts":
            thought, end, rest = text.partition(_END)
            if not end:
                kept = next((size for size in range(len(_END) - 1, 0, -1) if text.endswith(_END[:size])), 0)
                self._held = text[len(text) - kept :]
                return text[: len(text) - kept], ""
            self._state, text = "gap", rest
        text = text.lstrip()  # between the thoughts and the answer
        self._state = "answer" if text else "gap"
        return thought, text

    def end(self) -> tuple[str, str]:
        """Return the rest at the end of the text."""
        held, self._held = self._held, ""
        if self._state == "thoughts":
            return held, ""
        return "", f"{''.join(self._blanks)}{held}" if self._state == "start" else held
