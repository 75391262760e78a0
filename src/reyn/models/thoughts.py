"""What a model thought before an answer, as its provider gave it.

Thoughts are opaque: they are recorded with the answer and go back to the same model with the results of its calls, and
nothing else reads them. The adapters know their form; `summary` is for people.
"""

from __future__ import annotations

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
    """Return whether a JSON value has no secret and no text that cannot be stored."""
    if isinstance(value, dict):
        return all(_is_clean(key, scrub) and _is_clean(one, scrub) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(_is_clean(one, scrub) for one in value)
    if not isinstance(value, str):
        return True
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


def join_pieces(parts: list[dict[str, Any]], piece: dict[str, Any], texts: tuple[str, ...]) -> None:
    """Add a streamed piece of a part: it continues the last part if both have the same index and type, and no signature.

    Args:
        parts: The parts so far.
        piece: The piece.
        texts: The fields whose texts arrive in pieces.
    """
    last = parts[-1] if parts else None
    same = last is not None and all(last.get(name) == piece.get(name) for name in ("index", "type"))
    if last is None or not same or last.get("signature") or "data" in piece or "data" in last:
        parts.append(
            {name: [value] if name in texts and isinstance(value, str) else value for name, value in piece.items()}
        )
        return
    for name, value in piece.items():
        if name in texts and isinstance(value, str):
            found = last.setdefault(name, [])
            if isinstance(found, list):
                found.append(value)
            else:
                last[name] = [value]
        elif value is not None:
            last[name] = value


def joined(parts: list[dict[str, Any]], texts: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return parts whose texts arrived in pieces, with whole texts."""
    return [
        {name: "".join(value) if name in texts and isinstance(value, list) else value for name, value in part.items()}
        for part in parts
    ]
