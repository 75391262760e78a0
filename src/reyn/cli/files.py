"""Write files of the user: new ones without overwriting any, large ones atomically. Print their paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from reyn.documents import read_error
from reyn.errors import FileExists, ProjectNotFound, UsageError
from reyn.folders import create_file, remove_file, replace_file


def relative_path(path: Path) -> str:
    """Return a path that opens from the current folder: relative if it is below it, else absolute."""
    try:
        absolute, current = Path(os.path.abspath(path)), Path.cwd()  # noqa: PTH100 - links are not followed
    except OSError:  # the current folder was deleted
        return str(path)
    return str(absolute.relative_to(current) if absolute.is_relative_to(current) else absolute)


def write_new_files(root: Path, files: Mapping[str, str | bytes], optional: Mapping[str, str] = {}) -> None:
    """Write new files below a folder: all of them or none.

    Args:
        root: The folder; created if it does not exist.
        files: Content by path.
        optional: Further files, which are skipped if they exist.

    Raises:
        FileExists: One of `files` exists.
        ProjectNotFound: The folder cannot be written.
    """
    taken = [name for name in files if os.path.lexists(root / name)]
    if taken:
        raise FileExists(f"`{taken[0]}` already exists; nothing was written")
    missing = {name: text for name, text in optional.items() if not os.path.lexists(root / name)}
    written: list[str] = []
    try:
        root.mkdir(parents=True, exist_ok=True)
        for name, content in {**files, **missing}.items():
            create_file(root, name, content.encode() if isinstance(content, str) else content)
            written.append(name)
    except OSError as error:
        for name in written:
            with suppress(OSError):
                remove_file(root, name)
        raise ProjectNotFound(f"cannot write below `{root}`: {read_error(error)}") from error


def remove_user_file(root: Path, name: str) -> None:
    """Remove a file below a folder. A link is removed itself; no folder on the way may be a link.

    Raises:
        ProjectNotFound: It cannot be removed.
    """
    try:
        remove_file(root, name)
    except OSError as error:
        raise ProjectNotFound(f"cannot remove `{name}`: {read_error(error)}") from error


def write_atomically(path: Path, lines: Iterable[bytes]) -> int:
    """Write a file by renaming a complete temporary one; return its size in bytes.

    Raises:
        UsageError: The path cannot be written.
    """
    try:
        return replace_file(path, lines)
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror}", hint="Choose a writable path.") from error
