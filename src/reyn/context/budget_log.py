"""The context budget log: one JSON line per assembled context with a budget, for other programs.

It is a projection of `context_budget_applied` events: written after they are durable, and completed when a run is
resumed, so that a crash neither loses nor duplicates a line. A replay writes nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from reyn.folders import FOLDER, OpenFolder, make_folders, open_beneath
from reyn.journal import Event, decode, kinds

if TYPE_CHECKING:
    from pathlib import Path


BUDGET_LOG = ".agents/rpi/context-budget-log.jsonl"
"""The path of the log in a project."""
_BUDGET_APPLIED = kinds.ContextBudgetApplied.kind


class BudgetLog:
    """Appends lines to the log of a project. Its folder is created with the first line."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def append(self, events: Iterable[Event]) -> str:
        """Write the lines of new events; return the error, or an empty string."""
        lines = _lines(events)
        return self._write(lines) if lines else ""

    def complete(self, run_id: str, events: Iterable[Event]) -> str:
        """Write the missing lines of a run; return the error, or an empty string.

        Args:
            run_id: The run.
            events: All of its events.
        """
        lines = _lines(event for event in events if event.run_id == run_id)
        try:
            missing = lines[self._count(run_id) :] if lines else []
        except OSError as error:
            return _reason(error)
        return self._write(missing) if missing else ""

    def _count(self, run_id: str) -> int:
        """Return the number of whole lines of a run."""
        count = 0
        try:
            with os.fdopen(self._open(os.O_RDONLY), "rb") as file:
                for line in file:
                    try:
                        entry = msgspec.json.decode(line)
                    except msgspec.DecodeError:
                        continue
                    count += isinstance(entry, dict) and entry.get("run_id") == run_id and line.endswith(b"\n")
        except FileNotFoundError:
            return 0
        return count

    def _write(self, lines: list[bytes]) -> str:
        try:
            with os.fdopen(self._open(os.O_RDWR | os.O_APPEND | os.O_CREAT), "r+b", buffering=0) as file:
                end = file.seek(0, os.SEEK_END)
                is_torn = end > 0 and os.pread(file.fileno(), 1, end - 1) != b"\n"
                file.write((b"\n" if is_torn else b"") + b"".join(lines))
        except OSError as error:
            return _reason(error)
        return ""

    def _open(self, flags: int) -> int:
        """Open the log; create its folders if it is written. No part of its path in the project may be a link."""
        folders, _, name = BUDGET_LOG.rpartition("/")
        with OpenFolder("", os.open(self._root, FOLDER)) as root:
            opened = make_folders(root, folders) if flags & os.O_CREAT else open_beneath(root, folders)
            with OpenFolder(folders, opened) as folder:
                handle = open_beneath(folder, name, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            os.close(handle)
            raise PermissionError(errno.EPERM, f"`{BUDGET_LOG}` is not a regular file, or has another name")
        return handle


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _lines(events: Iterable[Event]) -> list[bytes]:
    lines = []
    for event in events:
        if event.kind != _BUDGET_APPLIED:
            continue
        body = decode(event)
        assert isinstance(body, kinds.ContextBudgetApplied)
        if body.budget_tokens > 0:
            entry = {
                "run_id": event.run_id,
                "phase": body.ordinal,
                "original_tokens": body.original_tokens,
                "budget_tokens": body.budget_tokens,
                "truncated_tokens": body.truncated_tokens,
                "was_truncated": body.was_truncated,
                "ts": f"{datetime.fromtimestamp(event.ts // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}",
            }
            lines.append(msgspec.json.encode(entry) + b"\n")
    return lines
