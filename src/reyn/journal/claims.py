"""File locks that admit one driver per run on one machine.

The operating system releases a lock when its process dies. Across machines, `expected_seq` prevents a second history.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from reyn.errors import RunBusy, StoreUnavailable

if TYPE_CHECKING:
    from pathlib import Path

_WAIT_SECONDS = 0.1
"""How long to wait for another driver, which may be about to release the run."""


def open_lock(path: Path | str, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open a lock file. A link in its place is not followed: it may have been planted.

    Raises:
        OSError: The file is a link, or cannot be opened.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


class FileClaims:
    """Claims on runs, one lock file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Text, because every run comes here: joining and converting a `Path` costs more than the system calls.
        self._folder_text = os.fspath(folder)

    def hold(self, run_id: str) -> AbstractContextManager[None]:
        """Hold the claim on a run during the block. Raises `RunBusy` if another process holds it."""
        return _Claim(self, self._path(run_id), run_id)

    def is_held(self, run_id: str) -> bool:
        """Return whether a live process holds the claim on a run."""
        try:
            handle = open_lock(self._path(run_id), os.O_RDONLY)
        except OSError:
            return False
        try:
            return _is_exclusive(handle)
        finally:
            os.close(handle)

    def acquire(self, path: str, run_id: str) -> int:
        """Lock a file; return its descriptor. Raises `RunBusy` if another process holds the lock."""
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
                    raise RunBusy(f"run `{run_id}` is being executed by process {holder}", run_id=run_id) from None
                time.sleep(0.005)
                continue
            if _is_at(path, handle):
                return handle
            os.close(handle)  # the previous holder removed the file meanwhile; lock the new one

    def _path(self, run_id: str) -> str:
        return f"{self._folder_text}/{run_id}.lock"

    def _open(self, path: str) -> int:
        try:
            try:
                status = os.lstat(self._folder_text)
            except FileNotFoundError:
                self._folder.mkdir(parents=True, exist_ok=True)
                status = os.lstat(self._folder_text)
            if stat.S_ISLNK(status.st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            return open_lock(path)
        except OSError as error:
            raise StoreUnavailable(f"cannot create `{path}`: {error.strerror}") from error


class _Claim(AbstractContextManager[None]):
    """A claim on a run while its block is executed. A class, not a generator: it costs half as much."""

    def __init__(self, claims: FileClaims, path: str, run_id: str) -> None:
        self._claims = claims
        self._path = path
        self._run_id = run_id
        self._handle = -1

    def __enter__(self) -> None:
        self._handle = self._claims.acquire(self._path, self._run_id)
        try:
            # Fixed width, so that the file is never truncated: some file systems flush truncated files on close.
            os.pwrite(self._handle, b"%-20d" % os.getpid(), 0)
        except OSError:  # on a full disk the lock works; only its holder stays unnamed
            return

    def __exit__(self, *_: object) -> None:
        try:
            os.unlink(self._path)  # noqa: PTH108 - text, see `FileClaims`
        except OSError:
            return
        finally:
            os.close(self._handle)


def _is_at(path: str, handle: int) -> bool:
    try:
        on_disk, current = os.lstat(path), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (on_disk.st_dev, on_disk.st_ino) == (current.st_dev, current.st_ino)


def _is_exclusive(handle: int) -> bool:
    """Return whether another process holds the exclusive lock. Takes a shared lock; closing the handle releases it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
