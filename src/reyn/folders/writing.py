"""Write and remove single files without following links that were planted.

A temporary file has a name that cannot be guessed and is created exclusively, in a folder that was opened before.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from reyn.folders.opening import FOLDER, OpenFolder, clean_names, make_folders, open_beneath

if TYPE_CHECKING:
    from pathlib import Path

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
    with OpenFolder("", os.open(path.parent, FOLDER)) as folder:
        return replace_in(folder, path.name, chunks, mode=mode)


def replace_beneath(root: Path, name: str, content: bytes) -> None:
    """Write a file below a folder; create the folders on the way. No folder on the way may be a link.

    Raises:
        OSError: A part of the path is a link or cannot be written.
    """
    *folders, last = clean_names(name)
    with OpenFolder("", os.open(root, FOLDER)) as above, OpenFolder("", _made(above, folders)) as folder:
        replace_in(folder, last, [content])


def replace_in(
    folder: int, name: str, chunks: Iterable[bytes], *, mode: int | None = None, temporary: str | None = None
) -> int:
    """Write a file in an open folder, as `replace_file`. `temporary` is the name of the temporary file."""
    bits = mode if mode is not None else _mode_of(folder, name)
    temporary = temporary or f".{name[:100]}.{secrets.token_hex(8)}"
    handle = os.open(temporary, _NEW, 0o666 if bits is None else 0o600, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(chunks)
            size = file.tell()
            file.flush()
            if bits is not None:
                os.fchmod(handle, bits)
            os.fsync(handle)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _unlink(temporary, folder)
        raise
    os.fsync(folder)
    return size


def create_file(root: Path, name: str, content: bytes) -> None:
    """Create a new file below a folder. No folder on the way, and not the file itself, may be a link.

    Raises:
        FileExistsError: There is something already, be it a link that leads nowhere.
        OSError: A part of the path is a link or cannot be written.
    """
    *folders, last = clean_names(name)
    with OpenFolder("", os.open(root, FOLDER)) as above, OpenFolder("", _made(above, folders)) as folder:
        handle = os.open(last, _NEW, 0o666, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
        except BaseException:
            _unlink(last, folder)
            raise


def remove_file(root: Path, name: str) -> None:
    """Remove a file below a folder. A link is removed itself; no folder on the way may be a link."""
    *folders, last = clean_names(name)
    with OpenFolder("", os.open(root, FOLDER)) as above:
        if not folders:
            os.unlink(last, dir_fd=above)
            return
        with OpenFolder("", open_beneath(above, "/".join(folders))) as folder:
            os.unlink(last, dir_fd=folder)


def _made(above: int, folders: list[str]) -> int:
    return make_folders(above, "/".join(folders)) if folders else os.dup(above)


def _unlink(name: str, folder: int) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _mode_of(folder: int, name: str) -> int | None:
    """Return the permission bits of a regular file; `None` if there is none."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return stat.S_IMODE(status.st_mode) & 0o777 if stat.S_ISREG(status.st_mode) else None
