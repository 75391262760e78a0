"""Files of the user's own: the project around the current folder; secrets and trusted projects in the configuration.

A file is opened relative to the descriptor of its folder, without following links, and is rejected if other users have
access to it. Updates are atomic and happen under a lock.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from reyn.errors import ProjectNotFound, ReynError
from reyn.folders import FILE, FOLDER, OpenFolder, open_beneath, replace_in, take_lock

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ACCESSIBLE_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LOCK_TIMEOUT_SECONDS = 10.0
"""Generous: another process holds the lock for milliseconds."""
MAX_FILE_BYTES = 4_000_000
CONFIG = "reyn.yaml"
"""The file that makes a folder a project."""


def user_folder(environ: Mapping[str, str], home: Path | None = None, *, is_cache: bool = False) -> Path:
    """Return the folder of the user's configuration, or of data that can be recreated; it need not exist.

    A relative path in `XDG_CONFIG_HOME`, `XDG_CACHE_HOME` or `HOME` is ignored: it would lead into the current folder,
    which may be a stranger's.

    Raises:
        RuntimeError: The user has no home directory.
    """
    variable, name = ("XDG_CACHE_HOME", ".cache") if is_cache else ("XDG_CONFIG_HOME", ".config")
    configured = environ.get(variable, "")
    if os.path.isabs(configured):  # noqa: PTH117 - an empty string is not a path
        return Path(configured) / "reyn"
    home = home or Path.home()
    if not home.is_absolute():
        raise RuntimeError(f"the home directory {str(home)!r} is a relative path")
    return home / name / "reyn"


def nearest_project(hint: str) -> Path:
    """Return the nearest folder with a `reyn.yaml`, from the current one upwards, else the current one.

    Args:
        hint: How to use a project above the current folder that belongs to another user.

    Raises:
        ProjectNotFound: The current folder does not exist, or the project above it belongs to another user.
    """
    try:
        current = Path.cwd()
    except OSError as error:
        raise ProjectNotFound(f"the current folder does not exist: {error.strerror}") from error
    found = next((folder for folder in (current, *current.parents) if (folder / CONFIG).is_file()), current)
    owners = {found.stat().st_uid, (found / CONFIG).lstat().st_uid} if found != current else set()
    if not owners <= {os.geteuid(), 0}:
        message = f"the project around the current folder, `{found}`, belongs to another user"
        raise ProjectNotFound(message, hint=hint)
    return found


class PrivateFile:
    """One file in the user's configuration folder.

    Args:
        path: The file; its folder is created by the first update.
        error: Raised with a message and a hint if the file cannot be used.
        is_confidential: Whether other users may not read it either. Other users may never write it.
    """

    def __init__(self, path: Path, error: type[ReynError], *, is_confidential: bool) -> None:
        self.path = path
        self._error = error
        self._is_confidential = is_confidential

    def __repr__(self) -> str:
        return f"PrivateFile({str(self.path)!r})"

    def read(self) -> bytes | None:
        """Return the content; `None` if the file does not exist. Creates nothing."""
        with self._os_errors_translated("read"):
            try:
                with self._open_folder() as folder:
                    return self._read(folder)
            except FileNotFoundError:
                return None

    def update(self, transform: Callable[[bytes | None], bytes | None]) -> None:
        """Replace the content by `transform(content)` under the lock; `None` leaves the file as it is."""
        with self._os_errors_translated("write"):
            with suppress(FileExistsError):
                self.path.parent.mkdir(mode=0o700, parents=True)
            with self._open_folder() as folder, self._lock(folder):
                after = transform(self._read(folder))
                if after is not None:
                    self._write(folder, after)

    def refusal(self, path: Path, reason: str, hint: str) -> ReynError:
        return self._error(f"`{path}` {reason}", hint=hint)

    @contextmanager
    def _open_folder(self) -> Iterator[int]:
        path = self.path.parent
        with OpenFolder("", os.open(path.parent, FOLDER)) as above:
            try:
                opened = OpenFolder(str(path), open_beneath(above, path.name))
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise self.refusal(path, "is a symbolic link or not a folder", "Move it away.") from error
                raise
        with opened as folder:
            self._check(path, os.fstat(folder), _WRITABLE_BY_OTHERS, "other users can write to it", "chmod 700")
            yield folder

    def _read(self, folder: int) -> bytes | None:
        try:
            handle = open_beneath(folder, self.path.name, FILE)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self.refusal(self.path, "is a symbolic link", "Replace the link by the file.") from error
            raise
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise self.refusal(self.path, "is not a regular file", "Move it away.")
            if self._is_confidential:
                self._check(self.path, status, _ACCESSIBLE_TO_OTHERS, "other users can read or change it", "chmod 600")
            else:
                self._check(self.path, status, _WRITABLE_BY_OTHERS, "other users can change it", "chmod go-w")
            with os.fdopen(handle, "rb", closefd=False) as file:
                content = file.read(MAX_FILE_BYTES + 1)
        finally:
            os.close(handle)
        if len(content) > MAX_FILE_BYTES:
            raise self.refusal(self.path, f"is larger than {MAX_FILE_BYTES} bytes", "Move it away.")
        return content

    def _write(self, folder: int, content: bytes) -> None:
        new = f".{self.path.stem}.new"
        with suppress(FileNotFoundError):  # left by a process that died; we have the lock
            os.unlink(new, dir_fd=folder)
        replace_in(folder, self.path.name, [content], mode=0o600, temporary=new)

    @contextmanager
    def _lock(self, folder: int) -> Iterator[None]:
        name = f".{self.path.stem}.lock"
        handle = open_beneath(folder, name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not take_lock(handle, _LOCK_TIMEOUT_SECONDS):
                raise self.refusal(self.path, "is locked by another process", "Try again.")
            yield
        finally:
            os.close(handle)

    def _check(self, path: Path, status: os.stat_result, forbidden: int, reason: str, command: str) -> None:
        if status.st_uid != os.geteuid():
            raise self.refusal(path, "belongs to another user", "Run Reyn as the user who owns it.")
        if status.st_mode & forbidden:
            mode = stat.S_IMODE(status.st_mode)
            hint = f"Run: {command} {shlex.quote(str(path))}"
            raise self.refusal(path, f"is not safe: {reason} (mode {mode:04o})", hint)

    @contextmanager
    def _os_errors_translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(f"cannot {verb} `{self.path}`: {error.strerror}") from error
