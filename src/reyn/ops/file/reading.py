"""A file becomes the text that was asked for: all of it, some lines, some characters of those."""

from __future__ import annotations

import difflib
from itertools import islice
from typing import TYPE_CHECKING, Any

from reyn.ops.op import OpFailed
from reyn.permissions import Allowed
from reyn.workspace import Guard, Place, entries_of, locate, read, text_of

if TYPE_CHECKING:
    from reyn.ops.op import Call, Env

_MOST_SUGGESTIONS = 8
_MOST_COMPARED = 500


def read_file(call: Call, arguments: dict[str, Any], place: Place, env: Env) -> dict[str, Any]:
    text = text_at(place, env)
    if text is None:
        raise not_found(place, env)
    lines = lines_of(text)
    chosen = "".join(_slice(lines, arguments["offset"], arguments.get("limit")))
    fields = {"path": place.shown, "content": chosen, "total_lines": len(lines)}
    if arguments["start"] or "length" in arguments:
        fields["content"] = _slice(chosen, arguments["start"], arguments.get("length"))
        fields["total_chars"] = len(chosen)
    return call.ok(**fields)


def text_at(place: Place, env: Env, guard: Guard | None = None) -> str | None:
    """The text of a file, or of something kept; `None` if there is none."""
    if place.zone == "kept":
        name = env.kept.get("/".join(place.parts))
        return None if name is None else text_of(env.content(name), place)
    image = read(place, env.roots, env.file_bytes, guard)
    return None if image is None else text_of(image.content, place)


def lines_of(text: str) -> list[str]:
    """Lines with their ends. Only LF ends one, whatever else Unicode holds for an end of line."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def not_found(place: Place, env: Env) -> OpFailed:
    """That there is no such file, and what there is instead: the names most like it, or else the first ones."""
    above, names = _around(place, env)
    wanted = place.parts[len(above.parts)] if place.parts else ""
    like = difflib.get_close_matches(wanted, names[:_MOST_COMPARED], _MOST_SUGGESTIONS)
    shown = (above.below(name).shown for name in like or names)
    reachable = (name for name in shown if isinstance(env.gate.read(locate(name, env.roots)), Allowed))
    return OpFailed(f"there is no file `{place.shown}`", suggestions=list(islice(reachable, _MOST_SUGGESTIONS)))


def _around(place: Place, env: Env) -> tuple[Place, list[str]]:
    """The nearest folder above a place that has something in it, and what; folders end in a slash."""
    if place.zone == "kept":
        return Place.at("kept", ()), sorted(env.kept)
    guard = Guard(env.roots)
    above = place.above()
    while above.parts and not entries_of(above, guard):
        above = above.above()
    return above, [entry.name + ("/" if entry.is_folder else "") for entry in entries_of(above, guard)]


def _slice(sequence: Any, first: int, count: int | None) -> Any:
    return sequence[first:] if count is None else sequence[first : first + count]
