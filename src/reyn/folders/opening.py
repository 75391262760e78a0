"""Open files and folders beneath an open folder. No part of the path may be a symbolic link.

The kernel resolves a long path at once (`openat2`, Linux 5.6); elsewhere each folder is opened relative to that above
it. Both fail with `ELOOP` or `ENOTDIR` at a link, also at one that appears meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
DEFINITIONS = "reyn"
"""The folder of a project whose files runs write only if a grant names it: skills, agents, accepted tools."""
FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""`O_NONBLOCK`: opening a FIFO without a writer must not block."""

_SPECIAL = frozenset(("", ".", ".."))
_MANY = 3
"""A path of so many names is opened by `openat2`. Loading `ctypes` costs as much as a thousand shorter paths."""
_OPENAT2 = 437
_BENEATH, _NO_SYMLINKS, _NO_MAGICLINKS = 0x08, 0x04, 0x02


class OpenFolder:
    """A folder that stays open as long as something refers to it.

    Attributes:
        path: Where it was when it was opened, for messages.
        handle: The descriptor.
    """

    def __init__(self, path: str, handle: int) -> None:
        self.path = path
        self.handle = handle

    def __enter__(self) -> int:
        return self.handle

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it. It is closed anyway when nothing refers to it any more."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        self.close()

    def is_at(self, path: str) -> bool:
        """Return whether a path leads to this folder, and is not a link."""
        try:
            there, here = os.lstat(path), os.fstat(self.handle)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def clean_names(path: str) -> list[str]:
    """Return the names of a relative path. Raises `OSError` for one that is absolute or has `.` or `..`."""
    names = path.split("/")
    if not _SPECIAL.isdisjoint(names):
        raise OSError(errno.EXDEV, "it leads out of its folder")
    return names


def open_beneath(above: int, path: str, flags: int = FOLDER, mode: int = 0o666) -> int:
    """Open a file or a folder beneath an open folder.

    Args:
        above: The descriptor of the folder.
        path: A relative path without `.` and `..`.
        flags: As for `os.open`; by default a folder is opened.
        mode: The permission bits of a new file.

    Raises:
        OSError: There is nothing, a part of it is a link, or it cannot be opened.
    """
    names = path.split("/")  # `clean_names` without the call: every op comes here
    if not _SPECIAL.isdisjoint(names):
        raise OSError(errno.EXDEV, "it leads out of its folder")
    if len(names) >= _MANY and (openat2 := _openat2()) is not None:
        return openat2(above, path, flags | os.O_CLOEXEC, mode)
    return _open_each(above, names, flags | os.O_CLOEXEC, mode)


def _open_each(above: int, names: list[str], flags: int, mode: int) -> int:
    *folders, last = names
    outer = -1
    try:
        for name in folders:
            handle = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=above)
            if outer >= 0:
                os.close(outer)
            above = outer = handle
        return os.open(last, flags | os.O_NOFOLLOW, mode, dir_fd=above)
    finally:
        if outer >= 0:
            os.close(outer)


@cache
def _openat2() -> Callable[[int, str, int, int], int] | None:
    """Return `openat2` with all links refused; `None` if the system does not have it."""
    return _linux_openat2() if sys.platform == "linux" else None


def _linux_openat2() -> Callable[[int, str, int, int], int] | None:
    import ctypes

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    resolve = _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS

    def openat2(above: int, path: str, flags: int, mode: int) -> int:
        how = struct.pack("QQQ", flags, mode if flags & os.O_CREAT else 0, resolve)
        handle: int = syscall(_OPENAT2, above, os.fsencode(path), how, len(how))
        if handle < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return handle

    try:  # a container may deny the call
        with OpenFolder("/", os.open("/", FOLDER)) as root:
            os.close(openat2(root, ".", FOLDER, 0))
    except OSError:
        return None
    return openat2


def make_folders(above: int, path: str, mode: int = 0o777) -> int:
    """Open a folder beneath an open folder; create it and those on the way if they are missing.

    Raises:
        OSError: A part of the path is a link or a file, or cannot be created.
    """
    handle = os.dup(above)
    try:
        for name in clean_names(path):
            with suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=handle)
            outer, handle = handle, os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            os.close(outer)
    except BaseException:
        os.close(handle)
        raise
    return handle


def inside(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> str | None:
    """Return the path relative to a folder with all links resolved; `None` if it is not below the folder.

    It may change at any time, so open it with `open_beneath`.
    """
    base, target = os.path.realpath(root).rstrip("/"), os.path.realpath(path)
    return target[len(base) + 1 :] if target.startswith(f"{base}/") else None


def open_inside(
    root: str | os.PathLike[str] | OpenFolder, path: str | os.PathLike[str], flags: int = FOLDER, *, below: str = ""
) -> int | None:
    """Open a file or a folder below a folder. Links may lead to it inside the folder, and are resolved first.

    Args:
        root: The folder. One that is open is used even if its path leads elsewhere now.
        path: A path that starts with that of the folder.
        flags: As for `os.open`; by default a folder is opened.
        below: A folder in it that links must not lead out of.

    Returns:
        The descriptor; `None` if the path leads out of the folder.

    Raises:
        OSError: There is nothing, or it cannot be opened.
    """
    if not isinstance(root, OpenFolder):
        with OpenFolder("", os.open(root, FOLDER)) as above:
            return _open_inside(above, os.fspath(root), os.fspath(path), flags, below)
    return _open_inside(root.handle, root.path, os.fspath(path), flags, below)


def _open_inside(above: int, root: str, path: str, flags: int, below: str) -> int | None:
    base = root.rstrip("/")
    if path.startswith(f"{base}/"):
        with suppress(_LinkOnTheWay):
            return _open_plain(above, path[len(base) + 1 :], flags)
    relative = inside(root, path)
    if relative is None:
        return None
    handle = open_beneath(above, relative, flags)
    if below and not relative.startswith(f"{below}/"):
        os.close(handle)
        return None
    return handle


class _LinkOnTheWay(Exception):
    """A path has links, or special names."""


def _open_plain(above: int, path: str, flags: int) -> int:
    """Open a path that has no links. Resolving links first costs several times as much."""
    try:
        return open_beneath(above, path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EXDEV):
            raise _LinkOnTheWay from error
        raise


_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.01


def take_lock(handle: int, seconds: float = 0.0) -> bool:
    """Take the exclusive lock of an open file or folder; return whether it was free within some seconds."""
    until, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            return True


def names_in(root: str | os.PathLike[str] | OpenFolder, folder: str = "", *, below: str = "") -> list[str]:
    """Return the names in a folder below another, sorted; none if it does not exist or a link leads out.

    Args:
        root: The folder that links must not lead out of.
        folder: Its path relative to the root; by default the root itself.
        below: A folder in the root that links must not lead out of.
    """
    path = root.path if isinstance(root, OpenFolder) else os.fspath(root)
    try:
        if not folder:
            return sorted(os.listdir(root.handle if isinstance(root, OpenFolder) else root))  # noqa: PTH208 - a descriptor, or text
        handle = open_inside(root, f"{path.rstrip('/')}/{folder}", below=below)
        if handle is None:
            return []
        with OpenFolder("", handle):
            return sorted(os.listdir(handle))  # noqa: PTH208 - a descriptor
    except OSError:
        return []
