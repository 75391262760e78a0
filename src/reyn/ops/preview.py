"""Render the preview of an op that needs approval.

What the op says about its plan comes first, then a list of every file that would be created, changed or deleted, then
the diff. Only LF ends a line, as in
the files, and binary content is described by size and hash, so no change is invisible.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from reyn.journal import canonical, digest

if TYPE_CHECKING:
    from reyn.ops.op import Call, Plan
    from reyn.workspace import Change

MAX_COMPARED_LINES = 1_000
"""Above this number of changed lines, the diff replaces them as a whole: comparing them could take minutes."""
_CONTEXT = 3


def preview(call: Call, plan: Plan, content: Callable[[str], bytes]) -> str:
    """Return a diff of the files that an op would change, or its arguments if it changes none."""
    blobs = {blob.hash: blob.content for blob in plan.blobs}

    def read(name: str | None) -> bytes | None:
        return None if name is None else blobs[name] if name in blobs else content(name)

    if not plan.changes:
        return msgspec.json.format(canonical(call.args), indent=2).decode()
    images = [(change, read(change.before), read(change.after)) for change in plan.changes]
    summaries = [_summary(change, before, after) for change, before, after in images]
    return "".join([plan.about, *summaries, *(file_diff(change.path, *pair) for change, *pair in images)])


def _summary(change: Change, before: bytes | None, after: bytes | None) -> str:
    path = _quoted(change.path)
    if after is None:
        return f"delete {path} ({_size(before)})\n"
    if before is None:
        folders = f", in the new folder {_quoted(change.made[-1])}" if change.made else ""
        return f"create {path} ({_size(after)}{folders})\n"
    return f"change {path} ({_size(before)} → {_size(after)})\n"


def _size(content: bytes | None) -> str:
    return f"{len(content or b''):,} bytes"


def _quoted(path: str) -> str:
    """Quote a path that could be taken for more than a path."""
    is_plain = path.isprintable() and " " not in path and "`" not in path
    return path if is_plain else msgspec.json.encode(path).decode()


def file_diff(path: str, before: bytes | None, after: bytes | None) -> str:
    """Return the diff of two contents of a file; `None` is no file. Binary content is described by its hash."""
    old, new = _text(before), _text(after)
    if old is None or new is None:
        return f"{_quoted(path)} is not text: {_hash(before)} → {_hash(after)}\n"
    names = ("/dev/null" if content is None else _quoted(path) for content in (before, after))
    head = "--- {}\n+++ {}\n".format(*names)
    body = "".join(f"{line}" for line in _hunks(_lines(old), _lines(new)))
    return head + body if body else ""


def _text(content: bytes | None) -> str | None:
    try:
        text = (content or b"").decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _hash(content: bytes | None) -> str:
    return "no file" if content is None else f"SHA-256 {digest(content)}"


def _lines(text: str) -> list[str]:
    *complete, rest = text.split("\n")
    return [f"{line}\n" for line in complete] + ([rest] if rest else [])


def _hunks(old: list[str], new: list[str]) -> Iterator[str]:
    first, last = _unchanged(old, new)
    end_old, end_new = len(old) - last, len(new) - last
    if end_old + end_new - 2 * first <= MAX_COMPARED_LINES:
        # Only the changed lines and their context are compared: the rest would cost time and change nothing.
        begin, after = max(0, first - _CONTEXT), max(0, last - _CONTEXT)
        compared = difflib.SequenceMatcher(None, old[begin : len(old) - after], new[begin : len(new) - after])
        groups = list(compared.get_grouped_opcodes(_CONTEXT))
    else:
        begin, groups = 0, [[("replace", first, end_old, first, end_new)]]
    for group in groups:
        steps = [(tag, begin + a, begin + b, begin + c, begin + d) for tag, a, b, c, d in group]
        yield f"@@ -{_range(steps[0][1], steps[-1][2])} +{_range(steps[0][3], steps[-1][4])} @@\n"
        for tag, a, b, c, d in steps:
            signed = [(" ", old[a:b])] if tag == "equal" else [("-", old[a:b]), ("+", new[c:d])]
            for sign, lines in signed:
                yield from (_line(f"{sign}{line}") for line in lines)


def _line(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n\\ No newline at end of file\n"


def _unchanged(old: list[str], new: list[str]) -> tuple[int, int]:
    """Return the number of equal lines at the beginning and at the end."""
    shorter = min(len(old), len(new))
    first = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    rest = shorter - first
    last = next((index for index in range(rest) if old[-1 - index] != new[-1 - index]), rest)
    return first, last


def _range(begin: int, end: int) -> str:
    count = end - begin
    return f"{begin + 1}" if count == 1 else f"{begin + 1},{count}" if count else f"{begin},0"
