"""What ops can act on, as the prompt of a conversation lists it: skills, agents, memories."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from reyn.context.words import one_line
from reyn.journal import Blob, kinds, ordered
from reyn.ops.execution import overview_of
from reyn.ops.op import HasOverview

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.ops import Env, OpTable, Overview
    from reyn.secrets import Scrubber

_MAX_LINES = 200


def find_overviews(
    op_kinds: Iterable[str], query: str, env: Env, ops: OpTable, secrets: Scrubber
) -> tuple[dict[str, Overview], list[str]]:
    """Return what ops can act on, by op kind, and the reasons why some could not tell."""
    found: dict[str, Overview] = {}
    failed: list[str] = []
    for kind in op_kinds:
        op: object = ops.get(kind)
        if not isinstance(op, HasOverview):
            continue
        overview = overview_of(op, query, env, is_foreign=ops.is_foreign(kind))
        if isinstance(overview, str):
            failed.append(f"{kind}: {overview}")
        elif secrets.find(_section(overview).encode(errors="replace") + ordered(overview.targets or ())):
            failed.append(f"{kind}: it holds a secret")
        else:
            found[kind] = overview
    return found, failed


def overviews_read(
    key: str, found: dict[str, Overview], failed: list[str]
) -> tuple[kinds.OverviewsRead, tuple[Blob, ...]]:
    """Return the event that records overviews, and their content."""
    sections = "".join(map(_section, found.values()))
    targets = {kind: overview.targets for kind, overview in found.items() if overview.targets is not None}
    text = Blob.of(sections.encode(errors="replace")) if sections else None
    listed = Blob.of(ordered(targets)) if targets else None
    best = tuple(name for overview in found.values() for name in overview.best)
    names = [blob.hash if blob is not None else None for blob in (text, listed)]
    read = kinds.OverviewsRead(key, names[0], tuple(failed), names[1], best)
    return read, tuple(blob for blob in (text, listed) if blob is not None)


@lru_cache(4096)
def _item(line: str) -> str:
    return f"- {one_line(line)}\n"


def _section(overview: Overview) -> str:
    """Return a section of a prompt. No line of it can pass for a heading."""
    lines = [_item(line) for line in overview.lines[:_MAX_LINES]]
    return f"\n# {one_line(overview.heading)}\n{''.join(lines)}" if lines else ""
