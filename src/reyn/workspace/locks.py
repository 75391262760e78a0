"""Lock a folder while one of its files is looked at and replaced, against other runs in any process.

The lock is advisory: it keeps Reyn's processes apart, not other programs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from typing import TYPE_CHECKING

from reyn.workspace.files import FileError

if TYPE_CHECKING:
    from reyn.workspace.paths import Location, Roots

LOCK_SECONDS = 10.0
"""Maximum wait for the lock of a concurrent change, which is held for milliseconds."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.01
_NOT_LOCKABLE = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""Some network file systems do not lock folders."""
_LOCK_FILE = "files.lock"


class FolderLock:
    """Context manager that holds the lock of an open folder.

    Where the file system cannot lock a folder, a file in the state directory serves for all of them.

    Raises:
        FileError: Another process holds the lock.
    """

    def __init__(self, folder: int, location: Location, roots: Roots) -> None:
        self._handle = folder
        self._location = location
        self._roots = roots
        self._file: int | None = None

    def __enter__(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait()
        except OSError as error:
            if error.errno not in _NOT_LOCKABLE:
                raise
            path = os.path.join(self._roots.state, _LOCK_FILE)  # noqa: PTH118 - text is faster
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._handle = self._file = os.open(path, flags, 0o600)
            self._wait()

    def __exit__(self, *_: object) -> None:
        # Not left to `close`: a process that was forked meanwhile would keep the lock.
        fcntl.flock(self._handle, fcntl.LOCK_UN)
        if self._file is not None:
            os.close(self._file)

    def _wait(self) -> None:
        until, pause = time.monotonic() + LOCK_SECONDS, _FIRST_PAUSE
        while True:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    self._give_up()
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                return

    def _give_up(self) -> None:
        if self._file is not None:
            os.close(self._file)
        raise FileError(f"`{self._location.display_path}` is locked by another process; try again later")
