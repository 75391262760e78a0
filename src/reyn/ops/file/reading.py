"""The form `read`, and the text access that other forms share."""

from __future__ import annotations

import difflib
from itertools import islice
from typing import TYPE_CHECKING, Any

from reyn.ops.op import OpFailed
from reyn.permissions import Allowed, NeedsApproval
from reyn.workspace import Guard, Location, decode_text, entries_of, locate, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.ops.op import Call, Env

_MAX_SUGGESTIONS = 8
_MAX_COMPARED = 500


def read_file(call: Call, arguments: dict[str, Any], location: Location, env: Env) -> dict[str, Any]:
    text = text_at(location, env)
    if text is None:
        raise not_found(location, env)
    lines = lines_of(text)
    selected = "".join(_slice(lines, arguments["offset"], arguments.get("limit")))
    fields = {"path": location.display_path, "content": selected, "total_lines": len(lines)}
    if arguments["start"] or "length" in arguments:
        fields["content"] = _slice(selected, arguments["start"], arguments.get("length"))
        fields["total_chars"] = len(selected)
    return call.ok(**fields)


def text_at(location: Location, env: Env, guard: Guard | None = None) -> str | None:
    """Return the text of a file or of truncated content, or `None` if it does not exist."""
    if location.zone == "full_content":
        name = env.full_content.get("/".join(location.parts))
        return None if name is None else decode_text(env.content(name), location)
    image = read(location, env.roots, env.file_bytes, guard)
    return None if image is None else decode_text(image.content, location)


def is_readable_below(folder: Location, env: Env) -> Callable[[Location], bool]:
    """Return which files below a folder may be read together with it: an approval covers what its rule asks about."""
    verdict = env.gate.read(folder)

    def is_readable(location: Location) -> bool:
        found = env.gate.read(location)
        is_same = isinstance(found, NeedsApproval) and isinstance(verdict, NeedsApproval) and found.rule == verdict.rule
        return is_same or isinstance(found, Allowed)

    return is_readable


def lines_of(text: str) -> list[str]:
    """Split into lines, with their ends. Only LF ends a line, unlike in `str.splitlines`."""
    *complete, rest = text.split("\n")
    return [f"{line}\n" for line in complete] + ([rest] if rest else [])


def not_found(location: Location, env: Env) -> OpFailed:
    """Return the error for a missing file, with similar names that the run may read, or else the first names."""
    above, names = _nearest_entries(location, env)
    missing = location.parts[len(above.parts)] if location.parts else ""
    similar = difflib.get_close_matches(missing, names[:_MAX_COMPARED], _MAX_SUGGESTIONS)
    paths = (above.below(name).display_path for name in similar or names)
    readable = (path for path in paths if isinstance(env.gate.read(locate(path, env.roots)), Allowed))
    return OpFailed(f"there is no file `{location.display_path}`", suggestions=list(islice(readable, _MAX_SUGGESTIONS)))


def _nearest_entries(location: Location, env: Env) -> tuple[Location, list[str]]:
    """Return the nearest parent folder that is not empty, and its entries; names of folders end in a slash."""
    if location.zone == "full_content":
        return Location.at("full_content", ()), sorted(env.full_content)
    guard = Guard(env.roots)
    above = location.above()
    while above.parts and not entries_of(above, guard):
        above = above.above()
    return above, [entry.name + ("/" if entry.is_folder else "") for entry in entries_of(above, guard)]


def _slice(sequence: Any, first: int, count: int | None) -> Any:
    return sequence[first:] if count is None else sequence[first : first + count]
