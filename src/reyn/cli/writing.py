"""Writing files that are not there yet: all of them or none, and never over somebody's work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import FileTaken, ProjectNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping
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
