"""File locks that admit one driver per run on one machine.

The operating system releases a lock when its process dies. Across machines, `expected_seq` prevents a second history.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from reyn.errors import RunBusy, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_WAIT_SECONDS = 0.1
"""How long to wait for another driver, which may be about to release the run."""


def open_lock(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open a lock file. A link in its place is not followed: it may have been planted.

    Raises:
        OSError: The file is a link, or cannot be opened.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


class FileClaims:
    """Claims on runs, one lock file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def hold(self, run_id: str) -> Iterator[None]:
        """Hold the claim on a run during the block. Raises `RunBusy` if another process holds it."""
        path = self._folder / f"{run_id}.lock"
        handle = self._acquire(path, run_id)
        try:
            with suppress(OSError):  # on a full disk the lock works; only its holder stays unnamed
                # Fixed width, so that the file is never truncated: some file systems flush truncated files on close.
                os.pwrite(handle, f"{os.getpid():<20}".encode(), 0)
            yield
        finally:
            with suppress(OSError):
                path.unlink()
            os.close(handle)

    def is_held(self, run_id: str) -> bool:
        """Whether a live process holds the claim on a run."""
        try:
            handle = open_lock(self._folder / f"{run_id}.lock", os.O_RDONLY)
        except OSError:
            return False
        try:
            return _is_exclusive(handle)
        finally:
            os.close(handle)

    def _acquire(self, path: Path, run_id: str) -> int:
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            handle = self._open(path)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
                is_driven = _is_exclusive(handle)
                os.close(handle)
                # `is_held` takes a shared lock for an instant; that is not a driver.
                if is_driven and time.monotonic() > deadline:
                    raise RunBusy(f"run `{run_id}` is being executed by process {holder}") from None
                time.sleep(0.005)
                continue
            if self._is_at(path, handle):
                return handle
            os.close(handle)  # the previous holder removed the file meanwhile; lock the new one

    def _open(self, path: Path) -> int:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._folder.is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            return open_lock(path)
        except OSError as error:
            raise StoreUnavailable(f"cannot create `{path}`: {error.strerror}") from error

    @staticmethod
    def _is_at(path: Path, handle: int) -> bool:
        try:
            on_disk, current = path.lstat(), os.fstat(handle)
        except FileNotFoundError:
            return False
        return (on_disk.st_dev, on_disk.st_ino) == (current.st_dev, current.st_ino)


def _is_exclusive(handle: int) -> bool:
    """Whether another process holds the exclusive lock. Takes a shared lock; closing the handle releases it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
