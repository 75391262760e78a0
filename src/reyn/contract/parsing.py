"""A model's text becomes one JSON object, or a rejection: size, depth, JSON, object, in this order.

Thoughts before it (`</think>` ends them), one code fence, or prose around one object, are left aside and counted;
nothing else is repaired. Every scan is one pass: the text may be as hostile as it is long.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.contract.verdicts import Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.config import Sizes

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.S)
_OPENING = re.compile(r"```[a-zA-Z]*")
_THOUGHT = "</think>"
"""Ends what some models say to themselves; where it begins, a server may have left out."""
_JOINTS = ("[", "]", ",", '"', "{", "}", '":')


def parse(text: str, sizes: Sizes) -> tuple[dict[str, Any], int] | Rejected:
    """The object, and how many characters around it were left aside."""
    if not text or text.isspace():
        return Rejected("empty", "$", "the answer is empty")
    if len(text) > sizes.answer_bytes or len(text.encode()) > sizes.answer_bytes:
        return Rejected("size", "$", f"the answer is larger than {sizes.answer_bytes} bytes")
    value, dropped = _load(text, sizes.answer_depth)
    if isinstance(value, Rejected):
        return value
    if not isinstance(value, dict):
        return Rejected("not_object", "$", f"the answer is a JSON {_json_name(value)}, not an object", dropped)
    return value, dropped


def _load(text: str, depth: int) -> tuple[Any, int]:
    value = _decode(text, depth)
    if not isinstance(value, Rejected) or (value.rule == "depth" and _THOUGHT not in text):
        return value, 0
    for inner in _inside(text):
        found = _decode(inner, depth)
        if not isinstance(found, Rejected) or found.rule == "depth":
            return found, len(text) - len(inner)
    return value, 0


def _inside(text: str) -> Iterator[str]:
    """Where the answer may be, the likeliest first. A thought ends once; an answer may speak of thoughts, too; what is
    in a thought is no answer."""
    if _THOUGHT in text:
        for said in dict.fromkeys((text.partition(_THOUGHT)[2], text.rpartition(_THOUGHT)[2])):
            yield said
            inner = _unwrap(said)
            if inner is not None:
                yield inner
    inner = _unwrap(text)
    if inner is not None and (_THOUGHT not in text or (_THOUGHT in inner and "<think>" not in text)):
        yield inner


def _decode(text: str, depth: int) -> Any:
    """The depth is counted before the parser sees the text: how deep a parser goes depends on the stack it runs on."""
    if _depth(text, depth) > depth:
        return Rejected("depth", "$", f"the answer is nested more than {depth} deep")
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return Rejected("not_json", "$", f"the answer is not one JSON object{_place(text)}")


def _place(text: str) -> str:
    """Where the JSON goes wrong: a number, not a library's words, which may change."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()):
            return ": it ends too early"
        return f": it goes wrong at character {error.pos}"
    except (RecursionError, ValueError):
        pass
    return ""


def _depth(text: str, enough: int) -> int:
    """How deep the brackets outside strings nest; counted only where there are enough of them to matter."""
    if text.count("{") + text.count("[") <= enough:
        return 0
    level = deepest = 0
    for token in _BRACKETS.finditer(text):
        if token[0] in "{[":
            level += 1
            deepest = max(deepest, level)
            if deepest > enough:
                break
        elif token[0] in "}]":
            level -= 1
    return deepest


def _unwrap(text: str) -> str | None:
    """The inside of the one code fence, or the one object that prose stands around; `None` if there is neither."""
    fences = _fences(text)
    if fences:
        return fences[0] if len(fences) == 1 else None
    start, end = text.find("{"), text.rfind("}") + 1
    before, after = text[:start].rstrip(), text[end:].lstrip()
    if start < 0 or end <= start or not (before or after):
        return None
    if before.endswith(_JOINTS) or after.startswith(_JOINTS):
        return None  # a part of other JSON, not an object in prose
    return text[start:end]


def _fences(text: str) -> list[str]:
    """What stands inside each code fence that is closed."""
    found: list[str] = []
    inside: list[str] | None = None
    for line in text.split("\n"):
        bare = line.rstrip(" \t")
        if inside is None:
            inside = [] if _OPENING.fullmatch(bare) else None
        elif bare.endswith("```"):
            found.append("\n".join([*inside, bare[:-3]] if bare != "```" else inside))
            inside = None
        else:
            inside.append(line)
    return found


def _json_name(value: Any) -> str:
    return {list: "list", str: "string", bool: "boolean", type(None): "null"}.get(type(value), "number")
