"""Parse the text of an answer into one JSON object.

Reasoning before the object (up to `</think>`), one code fence, or prose around one object is dropped and counted.
Nothing else is repaired: an object that has a key twice is rejected, because parsers disagree on which one counts.
Every scan is linear, because the text may be hostile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.contract.verdicts import Rejected, bounded
from reyn.documents import json_depth
from reyn.journal import canonical

if TYPE_CHECKING:
    from reyn.config import Sizes

_OPENING = re.compile(r"```[a-zA-Z]*")
_MAX_CHARACTER = 4
"""The largest number of bytes of a character in UTF-8."""
_BEGIN_OF_REASONING = "<think>"
_END_OF_REASONING = "</think>"
"""Ends the reasoning of some models. Servers may omit the opening tag."""
_JSON_PUNCTUATION = ("[", "]", ",", '"', "{", "}", '":')


class Parsed(NamedTuple):
    """The object of an answer.

    Attributes:
        value: The object.
        dropped: The number of characters around it.
        artifact_json: The canonical JSON of its artifact, if it has one.
    """

    value: dict[str, Any]
    dropped: int = 0
    artifact_json: bytes | None = None


def parse(text: str, sizes: Sizes) -> Parsed | Rejected:
    """Return the object of an answer, or a rejection."""
    if not text or text.isspace():
        return Rejected("empty", "$", "the answer is empty")
    if _MAX_CHARACTER * len(text) > sizes.answer_bytes and len(text.encode()) > sizes.answer_bytes:
        return Rejected("size", "$", f"the answer is larger than {sizes.answer_bytes} bytes")
    decoded, dropped = _decode(text, sizes.answer_depth), 0
    if isinstance(decoded, Rejected):
        decoded, dropped = _unwrapped(text, decoded, sizes.answer_depth)
    if isinstance(decoded, Rejected):
        return decoded
    value, artifact_json = decoded
    if not isinstance(value, dict):
        return Rejected("not_object", "$", f"the answer is a JSON {_json_name(value)}, not an object", dropped)
    return Parsed(value, dropped, artifact_json)


def objects(text: str, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Yield the object of a text, if there is one; one with a key twice is read in both ways."""
    parsed = parse(text, sizes) if "{" in text else None
    if isinstance(parsed, Parsed):
        yield parsed.value
    elif parsed is not None and parsed.rule == "duplicate_key":
        for inner in (text, *_candidates(text)):
            for hook in (dict, _first_of_each):
                with suppress(ValueError, RecursionError):
                    value = json.loads(inner, object_pairs_hook=hook, parse_int=_ignore, parse_float=_ignore)
                    if isinstance(value, dict):
                        yield value


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


_Decoded = tuple[Any, bytes | None]
"""A value, and the canonical JSON of its `artifact`, if it has one."""


def _unwrapped(text: str, whole: Rejected, depth: int) -> tuple[_Decoded | Rejected, int]:
    """Decode the JSON inside a text that is no JSON as a whole; return it with the characters around it."""
    if whole.rule == "duplicate_key" or (whole.rule == "depth" and _END_OF_REASONING not in text):
        return whole, 0
    for inner in _candidates(text):
        part = _decode(inner, depth)
        if not isinstance(part, Rejected) or part.rule in ("depth", "duplicate_key"):
            return part, len(text) - len(inner)
    return whole, 0


def _candidates(text: str) -> Iterator[str]:
    """Yield the parts of a text that may be the answer, the most likely first.

    The answer itself may contain `</think>`; text before the end of the reasoning is never the answer, and there is
    none if the reasoning was cut off.
    """
    if _END_OF_REASONING not in text and text.lstrip().startswith(_BEGIN_OF_REASONING):
        return
    if _END_OF_REASONING in text:
        for rest in dict.fromkeys((text.partition(_END_OF_REASONING)[2], text.rpartition(_END_OF_REASONING)[2])):
            yield rest
            inner = _unwrap(rest)
            if inner is not None:
                yield inner
    inner = _unwrap(text)
    if inner is not None and (_END_OF_REASONING not in text or (_END_OF_REASONING in inner and "<think>" not in text)):
        yield inner


def _decode(text: str, depth: int) -> _Decoded | Rejected:
    """Decode JSON. Check the depth first: the depth that the parser accepts depends on its stack."""
    if json_depth(text, depth) > depth:
        return Rejected("depth", "$", f"the answer is nested more than {depth} deep")
    try:
        value = msgspec.json.decode(text)
        artifact_json, colons = _encode(value)
        path = _duplicate_key(text) if _may_have_duplicates(text, colons) else None
    except msgspec.MsgspecError:
        return Rejected("not_json", "$", f"the answer is not one JSON object{_error_position(text)}")
    except RecursionError:  # the configured depth is more than Python supports
        return Rejected("depth", "$", "the answer is nested too deep")
    if path is not None:
        return Rejected("duplicate_key", bounded(path), "the key is there twice; give it once")
    return value, artifact_json


_Place = tuple[Any, str | int] | None
"""The last step of a path, after the place before it: joined paths of many values could be large."""


def _encode(value: Any) -> tuple[bytes | None, int]:
    """Return the canonical JSON of an answer's artifact, if it has one, and the colons in the JSON of the answer.

    The artifact is most of an answer and is recorded in this form, so it is encoded once for both.
    """
    artifact = value.get("artifact") if isinstance(value, dict) else None
    if not isinstance(artifact, dict):
        return None, msgspec.json.encode(value).count(b":")
    artifact_json = canonical(artifact)
    rest = msgspec.json.encode({**value, "artifact": None})
    return artifact_json, artifact_json.count(b":") + rest.count(b":")


def _may_have_duplicates(text: str, colons: int) -> bool:
    """Return whether the text has more colons than its value, which has each key once; escapes can hide a colon."""
    has_escapes = "\\" in text and "\\u" in text  # a search for one character is much cheaper
    return has_escapes or text.count(":") != colons


class _Pairs(list[Any]):
    """The keys and values of an object, as written."""


def _duplicate_key(text: str) -> str | None:
    """Return the path of the first key that an object has twice; the text is valid JSON."""
    is_repeated = False

    def check(pairs: list[tuple[str, Any]]) -> None:
        nonlocal is_repeated
        is_repeated = is_repeated or len({key for key, _ in pairs}) < len(pairs)

    json.loads(text, object_pairs_hook=check, parse_int=_ignore, parse_float=_ignore)
    if not is_repeated:
        return None
    root = json.loads(text, object_pairs_hook=_Pairs, parse_int=_ignore, parse_float=_ignore)
    nodes: list[tuple[Any, _Place]] = [(root, None)]
    while nodes:
        node, place = nodes.pop()
        if isinstance(node, _Pairs):
            seen: set[str] = set()
            for key, _ in node:
                if key in seen:
                    return _path((place, key))
                seen.add(key)
            nodes += [(value, (place, key)) for key, value in reversed(node)]
        elif isinstance(node, list):
            nodes += [(value, (place, index)) for index, value in reversed(list(enumerate(node)))]
    return None


def _path(place: _Place) -> str:
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "$" + "".join(reversed(steps))


def _ignore(_: str) -> None:
    """Stand for a number, whose value does not matter: one may have too many digits for Python."""


def _error_position(text: str) -> str:
    """Return the position of a JSON error as text. It does not quote the library, whose messages may change."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()):
            return ": it ends too early"
        return f": it goes wrong at character {error.pos}"
    except (RecursionError, ValueError):
        pass
    return ""


def _unwrap(text: str) -> str | None:
    """Return the content of the only code fence, or the object surrounded by prose; `None` if there is neither."""
    fences = _fences(text)
    if fences:
        return fences[0] if len(fences) == 1 else None
    start, end = text.find("{"), text.rfind("}") + 1
    before, after = text[:start].rstrip(), text[end:].lstrip()
    if start < 0 or end <= start or not (before or after):
        return None
    if before.endswith(_JSON_PUNCTUATION) or after.startswith(_JSON_PUNCTUATION):
        return None  # a part of other JSON, not an object in prose
    return text[start:end]


def _fences(text: str) -> list[str]:
    """Return the content of each closed code fence."""
    fences: list[str] = []
    inside: list[str] | None = None
    for line in text.split("\n"):
        bare = line.rstrip(" \t")
        if inside is None:
            inside = [] if _OPENING.fullmatch(bare) else None
        elif bare.endswith("```"):
            fences.append("\n".join([*inside, bare[:-3]] if bare != "```" else inside))
            inside = None
        else:
            inside.append(line)
    return fences


def _json_name(value: Any) -> str:
    return {list: "list", str: "string", bool: "boolean", type(None): "null"}.get(type(value), "number")
