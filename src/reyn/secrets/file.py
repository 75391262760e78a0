"""The secrets file: values for machines without a keyring, and the names of the values in the keyring.

The file is opened relative to the descriptor of its folder, without following links, and is rejected if other users
have access to it. Updates are atomic and happen under a lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.errors import SecretStoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_NEW, _LOCK = ".secrets.new", ".secrets.lock"
_ACCESSIBLE_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_LOCK_TIMEOUT_SECONDS = 10.0
"""Generous: another process holds the lock for milliseconds."""


class Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the secrets file."""

    format: Literal[1] = 1
    values: dict[str, str] = {}
    keyring: frozenset[str] = frozenset()
    """Names of the values in the keyring, because keyrings cannot list their entries."""

    def __repr__(self) -> str:
        return f"Contents(values of {sorted(self.values)}, keyring={sorted(self.keyring)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("names", sorted({*self.values, *self.keyring}))]

    def with_value(self, name: str, value: str) -> Contents:
        return msgspec.structs.replace(self, values=self.values | {name: value})

    def without_value(self, name: str) -> Contents:
        return msgspec.structs.replace(self, values={key: value for key, value in self.values.items() if key != name})

    def with_keyring_name(self, name: str) -> Contents:
        return msgspec.structs.replace(self, keyring=self.keyring | {name})

    def without_keyring_name(self, name: str) -> Contents:
        return msgspec.structs.replace(self, keyring=self.keyring - {name})


def secrets_path(environ: Mapping[str, str], home: Path | None = None) -> Path:
    """Return the path of the secrets file, which need not exist. A relative `XDG_CONFIG_HOME` is ignored."""
    configured = environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(configured):  # noqa: PTH117 - an empty string is not a path
        return Path(configured) / "reyn" / "secrets.json"
    try:
        return (home or Path.home()) / ".config" / "reyn" / "secrets.json"
    except RuntimeError as error:
        hint = "Set `HOME` or `XDG_CONFIG_HOME`."
        raise SecretStoreUnavailable(f"no folder for the secrets file: {error}", hint=hint) from error


class SecretsFile:
    """Reads and updates the secrets file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"SecretsFile({str(self.path)!r})"

    def read(self) -> Contents:
        """Return the contents; empty if the file does not exist. Creates nothing."""
        with self._os_errors_translated("read"):
            try:
                with self._open_folder() as folder:
                    return self._read(folder)
            except FileNotFoundError:
                return Contents()

    def update(self, transform: Callable[[Contents], Contents]) -> None:
        """Replace the contents by `transform(contents)` under the lock."""
        with self._os_errors_translated("write"):
            with suppress(FileExistsError):
                self.path.parent.mkdir(mode=0o700, parents=True)
            with self._open_folder() as folder, self._lock(folder):
                before = self._read(folder)
                after = transform(before)
                if after != before:
                    _write(folder, self.path.name, after)

    @contextmanager
    def _open_folder(self) -> Iterator[int]:
        path = self.path.parent
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise self._refusal(path, "is a symbolic link or not a folder", "Move it away.") from error
            raise
        try:
            self._check(path, os.fstat(folder), _WRITABLE_BY_OTHERS, "other users can write to it", "chmod 700")
            yield folder
        finally:
            os.close(folder)

    def _read(self, folder: int) -> Contents:
        try:
            # Opening a FIFO without a writer would block.
            handle = os.open(self.path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            return Contents()
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._refusal(self.path, "is a symbolic link", "Replace the link by the file.") from error
            raise
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise self._refusal(self.path, "is not a regular file", "Move it away.")
            self._check(self.path, status, _ACCESSIBLE_TO_OTHERS, "other users can read or change it", "chmod 600")
            with os.fdopen(handle, "rb", closefd=False) as file:
                content = file.read()
        finally:
            os.close(handle)
        try:
            return msgspec.json.decode(content, type=Contents)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # No cause: the message of a decoder may quote a value.
            hint = "Fix it or move it away. A newer version of Reyn may have written it."
            raise self._refusal(self.path, "is damaged or has an unsupported format", hint) from None

    @contextmanager
    def _lock(self, folder: int) -> Iterator[None]:
        handle = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            deadline = time.monotonic() + _LOCK_TIMEOUT_SECONDS
            while not _try_lock(handle):
                if time.monotonic() > deadline:
                    raise self._refusal(self.path, "is locked by another process", "Try again.")
                time.sleep(0.005)
            yield
        finally:
            os.close(handle)

    def _check(self, path: Path, status: os.stat_result, forbidden: int, reason: str, command: str) -> None:
        if status.st_uid != os.geteuid():
            raise self._refusal(path, "belongs to another user", "Run Reyn as the user who owns it.")
        if status.st_mode & forbidden:
            mode = stat.S_IMODE(status.st_mode)
            hint = f"Run: {command} {shlex.quote(str(path))}"
            raise self._refusal(path, f"is not safe: {reason} (mode {mode:04o})", hint)

    @staticmethod
    def _refusal(path: Path, reason: str, hint: str) -> SecretStoreUnavailable:
        return SecretStoreUnavailable(f"`{path}` {reason}", hint=hint)

    @contextmanager
    def _os_errors_translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SecretStoreUnavailable(f"cannot {verb} `{self.path}`: {error.strerror}") from error


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(folder: int, name: str, contents: Contents) -> None:
    with suppress(FileNotFoundError):  # left by a process that died; we have the lock
        os.unlink(_NEW, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(_NEW, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o600)  # independent of the umask
            file.write(msgspec.json.format(msgspec.json.encode(contents, order="deterministic"), indent=2))
            file.flush()
            os.fsync(handle)
        os.rename(_NEW, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(_NEW, dir_fd=folder)
        raise
    os.fsync(folder)
