"""Writing files: new ones all or none, and never over somebody's work; a large one whole or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from reyn.errors import FileTaken, ProjectNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def write_new(root: Path, files: Mapping[str, str], keep: Mapping[str, str] = {}) -> None:
    """Write new files; one that exists is an error before anything is written. Files to `keep` are written only if
    they do not exist."""
    taken = [name for name in files if (root / name).exists()]
    if taken:
        raise FileTaken(f"`{taken[0]}` exists already; nothing was written")
    missing = {name: text for name, text in keep.items() if not (root / name).exists()}
    written: list[Path] = []
    try:
        for name, text in {**files, **missing}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            written.append(path)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise ProjectNotFound(f"cannot write below `{root}`: {error}") from error


def write_whole(path: Path, lines: Iterable[bytes]) -> int:
    """Write a file that is there whole or not at all; how many bytes it has."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            with beside.open("wb") as file:
                file.writelines(lines)
                size = file.tell()
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ProjectNotFound(f"cannot write `{path}`: {error.strerror}", hint="Give a place you may write.") from error
    return size
