"""Write files outside of runs (exports, fixed skills, new projects) without following links that were planted.

A temporary file has a name that cannot be guessed and is created exclusively, in a folder that was opened before.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(path: Path, chunks: Iterable[bytes], *, mode: int | None = None) -> int:
    """Write a file by renaming a complete temporary one. A link at `path` is replaced, not followed.

    Args:
        path: The file. Its folder may be reached through links.
        chunks: The content.
        mode: The permission bits; by default those of the file that is replaced, or those of a new file.

    Returns:
        The size in bytes.
    """
    folder = os.open(path.parent, _FOLDER)
    try:
        bits = mode if mode is not None else _mode_of(folder, path.name)
        temporary = f".{path.name[:100]}.{secrets.token_hex(8)}"
        handle = os.open(temporary, _NEW, 0o666 if bits is None else 0o600, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(chunks)
                size = file.tell()
                file.flush()
                if bits is not None:
                    os.fchmod(handle, bits)
                os.fsync(handle)
            os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            _remove(temporary, folder)
            raise
        os.fsync(folder)
    finally:
        os.close(folder)
    return size


def _remove(name: str, folder: int) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _mode_of(folder: int, name: str) -> int | None:
    """Return the permission bits of a regular file; `None` if there is none."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return stat.S_IMODE(status.st_mode) & 0o777 if stat.S_ISREG(status.st_mode) else None


def create_file(root: Path, name: str, content: bytes) -> None:
    """Create a new file below a folder. No folder on the way, and not the file itself, may be a link.

    Raises:
        FileExistsError: There is something already, be it a link that leads nowhere.
        OSError: A part of the path is a link or cannot be written.
    """
    *folders, last = name.split("/")
    above = os.open(root, _FOLDER)
    try:
        for folder in folders:
            with suppress(FileExistsError):
                os.mkdir(folder, dir_fd=above)
            outer, above = above, os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
            os.close(outer)
        handle = os.open(last, _NEW, 0o666, dir_fd=above)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
        except BaseException:
            _remove(last, above)
            raise
    finally:
        os.close(above)
