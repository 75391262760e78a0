"""Summaries of phases that other programs left in a project, the fallback of a run without structured handoffs.

They are read once, when a run starts, and recorded with it.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from reyn.context.handoff import fold_lines
from reyn.context.tokens import truncate_to_length
from reyn.journal import Blob, canonical

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FOLDER = ".agents/rpi"
MAX_SUMMARIES = 20
MAX_SUMMARY_CHARS = 4_000
_MAX_BYTES = 64_000
_NAME = re.compile(r"phase-([1-9][0-9]{0,2})-summary\.md")


def read_summaries(root: Path, scrub: Callable[[str], str]) -> Blob | None:
    """Return the summaries `.agents/rpi/phase-N-summary.md` of a project as JSON, by N; `None` without any.

    A file that cannot be read appears with the reason. Links are not followed. `scrub` removes secrets.
    """
    folder = root / FOLDER
    try:
        if not folder.resolve().is_relative_to(root.resolve()):
            return None
        names = sorted((int(match[1]), path.name) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name)))
    except OSError:
        return None
    summaries = {str(number): scrub(_read(folder / name)) for number, name in names[:MAX_SUMMARIES]}
    return Blob.of(canonical(summaries)) if summaries else None


def _read(path: Path) -> str:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return "(could not be read: not a file)"
            content = file.read(_MAX_BYTES)
    except OSError as error:
        return f"(could not be read: {error.strerror})"
    return truncate_to_length(fold_lines(content.decode("utf-8", "replace")), MAX_SUMMARY_CHARS)
