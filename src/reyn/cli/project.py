"""Which project is meant, and what the words of a command line stand for."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.errors import InputInvalid, ProjectNotFound, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.journal import Journal
    from reyn.runtime import SyncRuntime


def project_root() -> Path:
    """`--project`, else the nearest folder here or above with a `reyn.yaml`, else this folder."""
    named = click.get_current_context().obj["project"]
    if named is not None:
        with suppress(OSError):
            if Path(named).is_dir():
                return Path(named)
        raise ProjectNotFound(f"no folder `{named[:200]}`")
    try:
        here = Path.cwd()
    except OSError as error:
        raise ProjectNotFound(f"the folder you stand in is gone: {error.strerror}") from error
    return next((folder for folder in (here, *here.parents) if (folder / "reyn.yaml").is_file()), here)


@contextmanager
def open_project(**settings: Any) -> Iterator[SyncRuntime]:
    from reyn.runtime import SyncRuntime

    with SyncRuntime.open(project_root(), **settings) as runtime:
        yield runtime


@contextmanager
def look_at_project(**settings: Any) -> Iterator[SyncRuntime]:
    """For commands about runs that exist: where nothing was recorded yet, nothing is made."""
    with open_project(journal=journal_at(project_root()), **settings) as runtime:
        yield runtime


@contextmanager
def look_without_config() -> Iterator[SyncRuntime]:
    """The same where the configuration may be what is wrong."""
    from reyn.config import Config
    from reyn.runtime import OSRuntime, SyncRuntime

    root = project_root().resolve()
    with SyncRuntime(OSRuntime(root, Config(), journal=journal_at(root))) as runtime:
        yield runtime


def journal_at(root: Path) -> Journal | None:
    """What to read runs from where nothing may be made: `None` is the project's own journal."""
    from reyn.journal import MemoryJournal
    from reyn.runtime.os_runtime import STATE

    folder = root / STATE
    database = folder / "journal.db"
    if folder.exists() and not folder.is_dir():
        raise StoreUnavailable(f"`{STATE}` is not a folder")
    if not database.exists() or database.stat().st_size == 0:
        return MemoryJournal()
    if not os.access(folder, os.W_OK):
        from reyn.journal.sqlite import SqliteJournal

        return SqliteJournal(folder, is_read_only=True)
    return None


def skill_name(words: str) -> str:
    """A path of a skill is meant from where one stands; a name is a name."""
    from reyn.skills.resolve import is_path

    # A `Path` fails without a home.
    return os.path.abspath(os.path.expanduser(words)) if is_path(words) else words  # noqa: PTH100, PTH111


def model_name(words: str | None) -> str | None:
    """A script is meant from where one stands, if it is there; the run knows it by its place in the project."""
    adapter, _, place = (words or "").partition(":")
    if adapter != "scripted" or not place or not Path(place).is_file():
        return words
    return f"scripted:{os.path.relpath(place, project_root())}"


def _read_stdin() -> str:
    if sys.stdin is None:
        raise InputInvalid("standard input is closed")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputInvalid(f"cannot read standard input: {error}") from error


def parse_input(words: str | None) -> Any:
    """Text stays text; a JSON object becomes one; `-` is standard input, `@file` a file's content."""
    if words is None:
        return None
    if words == "-":
        words = _read_stdin()
    elif words.startswith("@"):
        try:
            words = Path(words[1:]).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputInvalid(f"cannot read the input `{words[1:]}`: {error}") from error
    if not words.lstrip().startswith("{"):
        return words
    try:
        return msgspec.json.decode(words)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputInvalid(
            f"the input begins like a JSON object but is none: {error}",
            hint='For text that begins with a brace, write {"text": "…"}.',
        ) from error
