"""What a person sees of an op that needs approval: exactly what would happen."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.ops.op import Call, Plan
    from reyn.workspace import Change

MAX_CHARACTERS = 20_000


def preview(call: Call, plan: Plan, content: Callable[[str], bytes]) -> str:
    """Return a diff of the files that an op would change, or its arguments if it changes none."""
    blobs = {blob.hash: blob.content for blob in plan.blobs}

    def text(name: str | None) -> list[str]:
        found = b"" if name is None else blobs[name] if name in blobs else content(name)
        return found.decode(errors="backslashreplace").splitlines(keepends=True)

    if plan.changes:
        shown = "".join(_diff(change, text(change.before), text(change.after)) for change in plan.changes)
    else:
        shown = msgspec.json.format(msgspec.json.encode(call.args), indent=2).decode()
    if len(shown) <= MAX_CHARACTERS:
        return shown
    return f"{shown[:MAX_CHARACTERS]}\n[truncated: {len(shown):,} characters]\n"


def _diff(change: Change, before: list[str], after: list[str]) -> str:
    old = "/dev/null" if change.before is None else change.path
    new = "/dev/null" if change.after is None else change.path
    lines = difflib.unified_diff(before, after, old, new)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
