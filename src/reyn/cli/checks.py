"""Is this a place where runs can be driven? Looks at the environment of a project, and leaves nothing behind."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import sys
from typing import TYPE_CHECKING, Literal

import msgspec

from reyn.config import load_config
from reyn.errors import ConfigInvalid, JournalError
from reyn.journal.sqlite import FORMAT, SqliteJournal
from reyn.runtime.os_runtime import STATE

if TYPE_CHECKING:
    from pathlib import Path

Health = Literal["ok", "warning", "broken"]

_PYTHON = (3, 11)
_SQLITE = (3, 51, 3)
"""Before it, two connections that reset a log at once can damage it; Reyn serialises checkpoints, others may not."""
_ROOM = 1_000_000_000
_LEAST_ROOM = 10_000_000


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at, how it is, and what to do about it."""

    name: str
    health: Health
    words: str
    hint: str = ""


def check_up(root: Path) -> list[Check]:
    """Everything that is looked at, in order."""
    checks = [check_python(sys.version_info[:3]), check_sqlite(sqlite3.sqlite_version_info), check_state(root)]
    return [*checks, check_room(shutil.disk_usage(root).free), check_config(root), check_journal(root)]


def check_python(version: tuple[int, ...]) -> Check:
    words = f"{platform.python_implementation()} {_dotted(version)}"
    if version < _PYTHON:
        return Check("python", "broken", words, f"Reyn needs {_dotted(_PYTHON)} or newer.")
    return Check("python", "ok", words)


def check_sqlite(version: tuple[int, ...]) -> Check:
    if version < _SQLITE:
        hint = f"Before {_dotted(_SQLITE)} a journal can be damaged by other programs that write to it; let only Reyn."
        return Check("sqlite", "warning", _dotted(version), hint)
    return Check("sqlite", "ok", _dotted(version))


def check_state(root: Path) -> Check:
    folder = root / STATE
    if folder.exists() and not folder.is_dir():
        return Check("state", "broken", f"`{STATE}` is not a folder", "Move the file away.")
    if not os.access(folder if folder.exists() else root, os.W_OK | os.X_OK):
        return Check("state", "broken", f"`{folder}` cannot be written", "Runs can be looked at, not driven.")
    return Check("state", "ok", f"{folder}{'' if folder.exists() else ' (made by the first run)'}")


def check_room(free: int) -> Check:
    health: Health = "broken" if free < _LEAST_ROOM else "warning" if free < _ROOM else "ok"
    return Check("disk", health, f"{free / 1e9:.1f} GB free", "" if health == "ok" else "Make room.")


def check_config(root: Path) -> Check:
    try:
        model = load_config(root).model
    except ConfigInvalid as error:
        return Check("config", "broken", "; ".join(str(finding) for finding in error.findings), error.hint)
    if not model:
        return Check("config", "ok", "valid; no model is set", "Set `model:` in reyn.yaml, or give --model.")
    return Check("config", "ok", f"valid; the model is {model}")


def check_journal(root: Path) -> Check:
    path = root / STATE / "journal.db"
    if not path.is_file() or not path.stat().st_size:
        return Check("journal", "ok", "nothing is recorded yet")
    is_read_only = not os.access(path.parent, os.W_OK)
    try:
        journal = SqliteJournal(path.parent, is_read_only=is_read_only)
        try:
            count = len(journal.runs())
        finally:
            journal.close()
    except JournalError as error:
        return Check("journal", "broken", error.message, error.hint)
    form = "read-only" if is_read_only else f"format {FORMAT}"
    return Check("journal", "ok", f"{form}, {count} run{'' if count == 1 else 's'}, {path}")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
