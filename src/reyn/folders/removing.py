"""Remove a tree of files that foreign code may have made: any depth, any names, any modes, links to anywhere.

Nothing is followed. A folder is emptied by moving its subfolders to the top of the tree, so two descriptors suffice for
any depth, and nothing is opened by way of `..`.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from itertools import islice

from reyn.folders.opening import FOLDER, OpenFolder, clean_names, open_beneath

MAX_REMOVED = 10_000_000
"""The number of files and folders that one call removes or measures."""
_BATCH = 1_000
_PATH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(above: int, name: str) -> tuple[int, bool]:
    """Remove a file, a link, or a folder with everything in it. Other file systems that are mounted there stay.

    Args:
        above: The descriptor of the folder that it is in.
        name: Its name.

    Returns:
        The size of the removed files, and whether nothing is left. One call removes at most `MAX_REMOVED` files and
        folders; call it again for more.

    Raises:
        OSError: The name is not that of an entry of the folder.
    """
    if clean_names(name) != [name]:
        raise OSError(errno.EXDEV, "it leads out of its folder")
    tree = _Tree()
    with suppress(FileNotFoundError):
        try:
            tree.size += _unlinked(name, above)
        except (IsADirectoryError, PermissionError):  # `unlink` of a folder
            with suppress(OSError):
                tree.remove(above, name)
    return tree.size, not _exists(name, above)


def remove_temporary(path: str) -> None:
    """Remove a temporary folder with everything in it, if it exists. Raises `OSError` if something is left."""
    above, name = os.path.split(path)
    with OpenFolder("", os.open(above, FOLDER)) as folder:
        if not remove_tree(folder, name)[1]:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))


class _Tree:
    def __init__(self) -> None:
        self.size = 0
        self._left = MAX_REMOVED
        self._moved = 0
        self._mark = secrets.token_hex(8)  # no existing name has it
        self._device = -1

    def remove(self, above: int, name: str) -> None:
        with OpenFolder("", _opened(above, name)) as top:
            self._device = os.fstat(top).st_dev
            is_emptied = True
            while is_emptied and self._left > 0:
                is_emptied = False
                for entry in _first(top):
                    # What could not be removed is met again, so a round without progress ends the loop.
                    with suppress(OSError):
                        is_emptied |= self._remove_entry(top, entry)
        os.rmdir(name, dir_fd=above)

    def _remove_entry(self, top: int, name: str) -> bool:
        """Remove a file at the top of the tree, or empty a folder and remove it. Returns whether something changed."""
        self._left -= 1
        try:
            self.size += _unlinked(name, top)
        except (IsADirectoryError, PermissionError):
            pass
        else:
            return True
        is_changed = False
        with OpenFolder("", _opened(top, name, self._device)) as folder:
            for inner in _first(folder):
                self._left -= 1
                with suppress(OSError):
                    try:
                        self.size += _unlinked(inner, folder)
                    except (IsADirectoryError, PermissionError):
                        self._move_up(folder, inner, top)
                    is_changed = True
        with suppress(OSError):  # not empty: it has more entries than one round removes
            os.rmdir(name, dir_fd=top)
            is_changed = True
        return is_changed

    def _move_up(self, folder: int, name: str, top: int) -> None:
        os.close(_opened(folder, name, self._device))  # a folder that its owner may not write cannot be moved
        self._moved += 1
        os.rename(name, f"{self._mark}-{self._moved}", src_dir_fd=folder, dst_dir_fd=top)


def _first(folder: int) -> list[str]:
    """Return some of the names in a folder."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, _BATCH)]


def _opened(above: int, name: str, device: int | None = None) -> int:
    """Open a folder; make it accessible first if its mode denies that. One of another device is refused."""
    with OpenFolder("", os.open(name, _PATH | os.O_DIRECTORY, dir_fd=above)) as path:
        status = os.fstat(path)
        if device is not None and status.st_dev != device:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        if status.st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{path}", 0o700)  # noqa: PTH101 - the descriptor: the name may lead elsewhere now
        return os.open(".", FOLDER, dir_fd=path)


def _unlinked(name: str, folder: int) -> int:
    """Remove a file, and return its size. Raises `IsADirectoryError` or `PermissionError` for a folder."""
    size = os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    os.unlink(name, dir_fd=folder)
    return size


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def measure_tree(above: int, name: str) -> int:
    """Return the size of the files below a folder that can be read, up to `MAX_REMOVED` files. Follows no link."""
    size, left = 0, MAX_REMOVED
    pending = [name]
    while pending and left > 0:
        here = pending.pop()
        with suppress(OSError), OpenFolder("", open_beneath(above, here)) as folder, os.scandir(folder) as entries:
            for entry in islice(entries, left):
                left -= 1
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{here}/{entry.name}")
                else:
                    size += entry.stat(follow_symlinks=False).st_size
    return size
