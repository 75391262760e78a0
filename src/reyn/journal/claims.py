"""File locks that admit one driver per run on one machine.

The operating system releases a lock when its process dies. Across machines, `expected_seq` prevents a second history.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import AbstractContextManager, suppress

from reyn.errors import RunBusy, StateFolderUnsafe, StoreUnavailable
from reyn.folders import OpenFolder, make_folders, open_beneath
from reyn.journal.state_folder import file_status

_LOCKS = "locks"
_WAIT_SECONDS = 0.1
"""How long to wait for another driver, which may be about to release the run."""


def open_lock(name: str, folder: int, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open a lock file in an open folder. Anything else in its place is refused: it may have been planted.

    Raises:
        OSError: The file is a link or has another name, or cannot be opened.
    """
    if "/" in name:  # a recorded id that Reyn would not have given
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    handle = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=folder)
    status = os.fstat(handle)
    if status.st_nlink > 1 or not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise OSError(errno.EPERM, "it is not a file of its own")
    return handle


class FileClaims:
    """Claims on runs, one file each in the folder `locks` of the state folder."""

    def __init__(self, state: OpenFolder) -> None:
        self._state = state
        self._locks: OpenFolder | None = None

    def hold(self, run_id: str) -> AbstractContextManager[None]:
        """Hold the claim on a run during the block. Raises `RunBusy` if another process holds it."""
        return _Claim(self, run_id)

    def is_held(self, run_id: str) -> bool:
        """Return whether a live process holds the claim on a run."""
        try:
            if self._locks is None:
                path = f"{self._state.path}/{_LOCKS}"
                self._locks = OpenFolder(path, open_beneath(self._state.handle, _LOCKS))
            handle = open_lock(f"{run_id}.lock", self._locks.handle, os.O_RDONLY)
        except OSError:
            return False
        try:
            return _is_exclusive(handle)
        finally:
            os.close(handle)

    def close(self) -> None:
        """Close the folder, unless a claim is held in it."""
        self._locks = None

    def open_lock(self, name: str) -> tuple[int, OpenFolder]:
        """Open a lock file. Returns its descriptor, and its folder, which is created if needed and stays open."""
        try:
            if self._locks is not None:
                with suppress(FileNotFoundError):  # the folder was removed
                    return open_lock(name, self._locks.handle), self._locks
            path = f"{self._state.path}/{_LOCKS}"
            self._locks = locks = OpenFolder(path, make_folders(self._state.handle, _LOCKS))
            return open_lock(name, locks.handle), locks
        except OSError as error:
            self._check_deleted()
            with suppress(OSError):
                self._check_planted(name)
            raise StoreUnavailable(f"cannot create `{_LOCKS}/{name}`: {error.strerror}") from error

    def _check_deleted(self) -> None:
        """Raise `StoreUnavailable` if the state folder, with the journal in it, does not exist any more."""
        if os.fstat(self._state.handle).st_nlink == 0:
            raise StoreUnavailable(
                f"the state directory `{self._state.path}` was deleted, moved or replaced while it was in use",
                hint="The journal in it is gone, and its runs cannot be resumed. If you have a backup of it, put "
                "that there; then open the project again. Without one, new runs start with an empty journal.",
            )

    def _check_planted(self, name: str) -> None:
        """Raise `StateFolderUnsafe` if a lock file, or the folder of all of them, is not Reyn's own."""
        if self._locks is not None:
            file_status(self._locks.handle, name, self._locks.path)
        elif not stat.S_ISDIR(os.stat(_LOCKS, dir_fd=self._state.handle, follow_symlinks=False).st_mode):
            message = f"`{self._state.path}/{_LOCKS}` is a link, or not a folder"
            raise StateFolderUnsafe(message, hint="Move it away; it may have been planted.")


class _Claim(AbstractContextManager[None]):
    """A claim on a run while its block is executed. A class, not a generator: it costs half as much."""

    def __init__(self, claims: FileClaims, run_id: str) -> None:
        self._claims = claims
        self._run_id = run_id
        self._name = f"{run_id}.lock"
        self._handle = -1
        self._folder: OpenFolder | None = None

    def __enter__(self) -> None:
        self._handle = self._acquire()
        try:
            # Fixed width, so that the file is never truncated: some file systems flush truncated files on close.
            os.pwrite(self._handle, b"%-20d" % os.getpid(), 0)
        except OSError:  # on a full disk the lock works; only its holder stays unnamed
            return

    def _acquire(self) -> int:
        """Lock the file; return its descriptor. Raises `RunBusy` if another process holds the lock."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            handle, self._folder = self._claims.open_lock(self._name)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
                is_driven = _is_exclusive(handle)
                os.close(handle)
                # `is_held` takes a shared lock for an instant; that is not a driver.
                if is_driven and time.monotonic() > deadline:
                    if holder == str(os.getpid()):
                        raise RunBusy.in_this_process(self._run_id) from None
                    message = f"run `{self._run_id}` is being executed by process {holder}"
                    raise RunBusy(message, run_id=self._run_id) from None
                time.sleep(0.005)
                continue
            if _is_at(self._name, self._folder.handle, handle):
                return handle
            os.close(handle)  # the previous holder removed the file meanwhile; lock the new one

    def __exit__(self, *_: object) -> None:
        assert self._folder is not None
        try:
            os.unlink(self._name, dir_fd=self._folder.handle)
        except OSError:
            return
        finally:
            os.close(self._handle)


def _is_at(name: str, folder: int, handle: int) -> bool:
    try:
        on_disk, current = os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(handle)
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
