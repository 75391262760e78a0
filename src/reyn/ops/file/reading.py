"""The form `read`, and what other forms share with it: lines, readable files, suggestions for a missing file.

Lines are read without a list of them: a file of line ends would take fifty times its size. Only LF ends a line, unlike
in `str.splitlines`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.ops.budget import OpFailed
from reyn.ops.op import Call, Env, HoldsSecret
from reyn.permissions import Allowed, NeedsApproval
from reyn.workspace import FileError, FileImage, Guard, Location, decode_text, entries_of, kind_of, locate, look
from reyn.workspace.earlier import is_earlier

if TYPE_CHECKING:
    from reyn.workspace.files import FolderEntry

_MAX_SUGGESTIONS = 8
_MAX_COMPARED = 500


def read_file(call: Call, arguments: dict[str, Any], location: Location, env: Env) -> dict[str, Any]:
    text = text_at(location, env)
    if text is None:
        raise not_found(location, env)
    first, count = arguments["offset"], arguments.get("limit")
    selected = text if not first and count is None else select_lines(text, first, count)
    fields = {"path": location.display_path, "content": selected, "total_lines": count_lines(text)}
    if arguments["start"] or "length" in arguments:
        start, length = arguments["start"], arguments.get("length")
        fields["content"] = selected[start:] if length is None else selected[start : start + length]
        fields["total_chars"] = len(selected)
    return call.ok(**fields)


def text_at(location: Location, env: Env, guard: Guard | None = None) -> str | None:
    """Return the text of a file, or `None` if it does not exist. Recorded content counts towards no limit."""
    if location.zone == "recorded":
        name = env.recorded.find(location.parts)
        if name is None and env.recorded.is_folder(location.parts):
            raise FileError(f"`{location.display_path}` is a folder")
        if name is None:
            return None
        content = env.content(name)
        if handle := env.secret_in(content):
            raise HoldsSecret(handle)
        return decode_text(content, location)
    image, _ = look_at(location, env, guard)
    return None if image is None else decode_text(image.content, location)


def look_at(location: Location, env: Env, guard: Guard | None = None) -> tuple[FileImage | None, tuple[str, ...]]:
    """Return a file as it is, and the folders to create for it if it does not exist. Counts what is read."""
    env.budget.check_read()
    found = look(location, guard or Guard(env.roots), env.file_bytes)
    if found[0] is not None:
        # A result shows no secret that is read in pieces, or found by searching.
        if handle := env.secret_in(found[0].content):
            raise HoldsSecret(handle)
        env.budget.add_read(len(found[0].content))
    return found


def is_readable_below(folder: Location, env: Env) -> Callable[[Location], bool]:
    """Return which files in or below a location may be read with it: an approval covers what its rule asks about."""
    verdict = env.gate.search(folder)

    def is_readable(location: Location) -> bool:
        found = env.gate.read_listed(location)
        is_same = isinstance(found, NeedsApproval) and isinstance(verdict, NeedsApproval) and found.rule == verdict.rule
        return is_same or isinstance(found, Allowed)

    return is_readable


def not_found(location: Location, env: Env) -> OpFailed:
    """Return the error for a missing file, with similar names that the run may read, or else the first names."""
    if location.zone == "recorded" and is_earlier(location.parts):
        return OpFailed(
            f"`{location.display_path}` was content of an earlier run; this run does not have it. "
            "Use what the messages say about it, or do again what had this result"
        )
    above, names = _nearest_entries(location, env)
    missing = location.parts[len(above.parts)] if location.parts else ""
    similar = difflib.get_close_matches(missing, names[:_MAX_COMPARED], _MAX_SUGGESTIONS)
    paths = (above.below(name).display_path for name in similar or names)
    readable = (path for path in paths if isinstance(env.gate.read_listed(locate(path, env.roots)), Allowed))
    return OpFailed(f"there is no file `{location.display_path}`", suggestions=list(islice(readable, _MAX_SUGGESTIONS)))


def _nearest_entries(location: Location, env: Env) -> tuple[Location, list[str]]:
    """Return the nearest parent folder that is not empty, and its entries; names of folders end in a slash."""
    guard, above = Guard(env.roots), location.above()
    while above.parts and not entries_at(above, env, guard):
        above = above.above()
    return above, [entry.name + ("/" if entry.is_folder else "") for entry in entries_at(above, env, guard)]


def entries_at(location: Location, env: Env, guard: Guard) -> Sequence[FolderEntry]:
    """Return the files and folders in a folder, sorted by name; none if it cannot be listed."""
    return env.recorded.entries(location.parts) if location.zone == "recorded" else entries_of(location, guard)


def is_folder(location: Location, env: Env) -> bool:
    """Return whether a location is a folder."""
    if location.zone == "recorded":
        return env.recorded.is_folder(location.parts)
    return not location.parts or kind_of(location, env.roots) == "folder"


# -- lines ----------------------------------------------------------------------------------------------------


class TextLine(NamedTuple):
    """A line: its number from 0, where it begins, and its text with its end."""

    number: int
    start: int
    text: str


def count_lines(text: str) -> int:
    return text.count("\n") + (0 if not text or text.endswith("\n") else 1)


def select_lines(text: str, first: int, count: int | None) -> str:
    """Return `count` lines from `first` on, with their ends."""
    lines = StringIO(text, newline="\n")
    for _ in islice(lines, first):
        pass
    return lines.read() if count is None else "".join(islice(lines, count))


def iterate_lines(text: str) -> Iterator[TextLine]:
    start = 0
    for number, line in enumerate(StringIO(text, newline="\n")):
        yield TextLine(number, start, line)
        start += len(line)


def lines_before(text: str, start: int, count: int) -> list[str]:
    """Return up to `count` lines before the one that begins at `start`, with their ends."""
    lines: list[str] = []
    while start > 0 and len(lines) < count:
        above = text.rfind("\n", 0, start - 1) + 1
        lines.append(text[above:start])
        start = above
    return lines[::-1]


def lines_after(text: str, end: int, count: int) -> list[str]:
    """Return up to `count` lines from the position `end` on, with their ends."""
    lines: list[str] = []
    while end < len(text) and len(lines) < count:
        below = text.find("\n", end) + 1 or len(text)
        lines.append(text[end:below])
        end = below
    return lines
