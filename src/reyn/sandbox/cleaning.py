"""Remove a folder that a hostile program filled: of any depth, with any names and modes, with links to anywhere."""

from __future__ import annotations

import os
import secrets
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove a folder with everything below it, if it exists. No process may write in it any more.

    A folder below is emptied by moving the folders in it up to the root of the tree. The depth therefore costs neither
    recursion nor open files nor long paths, and the work is proportional to the number of entries.

    Raises:
        OSError: Something cannot be removed.
    """
    try:
        root = _open(path)
    except FileNotFoundError:
        return
    mark = secrets.token_hex(8)  # a program cannot have used these names
    names = (f"{mark}-{number}" for number in count())
    try:
        while _empty(root, names):
            pass
    finally:
        os.close(root)
    os.rmdir(path)  # noqa: PTH106 - text in


def _empty(root: int, names: Iterator[str]) -> bool:
    """Remove the entries of the root; return whether there were any."""
    found = False
    with os.scandir(root) as entries:
        for entry in entries:
            found = True
            name: str | None = entry.name
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=root)
                continue
            while name is not None:
                name = _remove_folder(name, root, names)
    return found


def _remove_folder(name: str, root: int, names: Iterator[str]) -> str | None:
    """Remove a folder of the root. Folders in it become folders of the root; return the name of one of them."""
    folder, last = _open(name, root), None
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    os.close(_open(entry.name, folder))  # a folder without permissions could not be moved
                    last = next(names)
                    os.rename(entry.name, last, src_dir_fd=folder, dst_dir_fd=root)
                else:
                    os.unlink(entry.name, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=root)
    return last


def _open(name: str, above: int | None = None) -> int:
    """Open a folder whatever its mode is, without following a link."""
    handle = os.open(name, os.O_PATH | _FOLDER, dir_fd=above)
    try:
        os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101 - a descriptor
        return os.open(".", os.O_RDONLY | _FOLDER, dir_fd=handle)
    finally:
        os.close(handle)
