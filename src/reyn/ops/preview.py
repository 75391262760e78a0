"""What a person sees of an op that needs approval: exactly what would happen.

Every line of a file starts with a space, `+` or `-`, and characters that a terminal or another reader may treat as a
line end, a command or a change of direction are escaped, so that a file can neither hide a line nor forge one.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reyn.ops.op import Call, Plan
    from reyn.workspace import Change

MAX_CHARACTERS = 20_000
_MAX_COMPARISONS = 1_000_000
"""Lines before times lines after. A larger difference is shown as removed and added lines, without looking for those
that stay: that can take minutes."""
_MAX_LINES = 100_000
"""Lines that are compared; the rest of a file counts as one."""
_CONTEXT = 3
_NO_NEWLINE = "\\ No newline at end of file\n"
_ESCAPED = "\\ Control characters are escaped in the line above\n"


def preview(call: Call, plan: Plan, content: Callable[[str], bytes]) -> str:
    """Return a diff of the files that an op would change, or its arguments if it changes none."""
    blobs = {blob.hash: blob.content for blob in plan.blobs}

    def lines(name: str | None) -> list[str]:
        found = b"" if name is None else blobs[name] if name in blobs else content(name)
        *complete, rest = found.decode(errors="backslashreplace").split("\n", _MAX_LINES)
        return [f"{line}\n" for line in complete] + ([rest] if rest else [])

    if plan.changes:
        shown = "".join(_diff(change, lines(change.before), lines(change.after)) for change in plan.changes)
    else:
        text = msgspec.json.format(msgspec.json.encode(call.args), indent=2).decode()
        shown = "\n".join(map(_escape, text.split("\n")))
    if len(shown) <= MAX_CHARACTERS:
        return shown
    return f"{shown[:MAX_CHARACTERS]}\n[truncated: {len(shown):,} characters]\n"


def _diff(change: Change, before: list[str], after: list[str]) -> str:
    path = _escape(change.path)
    header = [
        f"--- {'/dev/null' if change.before is None else path}\n",
        f"+++ {'/dev/null' if change.after is None else path}\n",
    ]
    return "".join([*header, *map(_line, _hunks(before, after))])


def _hunks(before: list[str], after: list[str]) -> Iterator[str]:
    """Yield the lines of a unified diff, without its header."""
    head = _common(before, after)
    rest = min(len(before), len(after)) - head
    tail = min(rest, _common(before[::-1], after[::-1]))
    removed, added = before[head : len(before) - tail], after[head : len(after) - tail]
    if len(removed) * len(added) <= _MAX_COMPARISONS:
        yield from list(difflib.unified_diff(before, after))[2:]
        return
    above, below = before[max(0, head - _CONTEXT) : head], before[len(before) - tail :][:_CONTEXT]
    first = head - len(above) + 1
    counts = (len(above) + len(lines) + len(below) for lines in (removed, added))
    yield "@@ -{0},{1} +{0},{2} @@\n".format(first, *counts)
    for sign, lines in ((" ", above), ("-", removed), ("+", added), (" ", below)):
        yield from (f"{sign}{line}" for line in lines)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines two texts have in common at their beginning."""
    for number, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return number
    return min(len(one), len(other))


def _line(line: str) -> str:
    body, end = (line[:-1], "\n") if line.endswith("\n") else (line, "")
    escaped = _escape(body)
    return f"{escaped}\n" + ("" if escaped == body else _ESCAPED) + ("" if end else _NO_NEWLINE)


def _escape(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode() for char in text
    )
