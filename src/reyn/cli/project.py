"""Which project is meant, and what the words of a command line stand for."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.errors import InputInvalid, ProjectNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.kernel import SyncRuntime


def project_root() -> Path:
    """`--project`, else the nearest folder here or above with a `reyn.yaml`, else this folder."""
    named = click.get_current_context().obj["project"]
    if named is not None:
        if not Path(named).is_dir():
            raise ProjectNotFound(f"no folder `{named}`")
        return Path(named)
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / "reyn.yaml").is_file()), here)


@contextmanager
def open_project(**settings: Any) -> Iterator[SyncRuntime]:
    from reyn.kernel import SyncRuntime

    with SyncRuntime.open(project_root(), **settings) as runtime:
        yield runtime


@contextmanager
def look_at_project() -> Iterator[SyncRuntime]:
    """For commands that only read: where nothing was recorded yet, nothing is made."""
    from reyn.journal import MemoryJournal
    from reyn.kernel.os_runtime import STATE

    is_there = (project_root() / STATE / "journal.db").exists()
    with open_project(journal=None if is_there else MemoryJournal()) as runtime:
        yield runtime


def parse_input(words: str | None) -> Any:
    """Text stays text; a JSON object becomes one; `-` is standard input, `@file` a file's content."""
    if words is None:
        return None
    if words == "-":
        words = sys.stdin.read()
    elif words.startswith("@"):
        try:
            words = Path(words[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputInvalid(f"cannot read the input `{words[1:]}`: {error}") from error
    if not words.lstrip().startswith("{"):
        return words
    try:
        return msgspec.json.decode(words)
    except msgspec.DecodeError as error:
        raise InputInvalid(
            f"the input begins like a JSON object but is none: {error}",
            hint='For text that begins with a brace, write {"text": "…"}.',
        ) from error
