"""The file of secrets: the values that no keyring keeps, and the names of those that one does.

It is reached through the descriptor of its folder and no link is followed. What others may read or change is not
trusted. A change is made under a lock and is there whole or not at all.
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
_OTHERS_MAY = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_PATIENCE = 10.0
"""Seconds to wait for another process, which needs milliseconds."""


class Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that the file holds."""

    format: Literal[1] = 1
    values: dict[str, str] = {}
    keyring: frozenset[str] = frozenset()
    """Names whose values a keyring keeps: keyrings cannot list."""

    def __repr__(self) -> str:
        return f"Contents(values of {sorted(self.values)}, keyring={sorted(self.keyring)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("names", sorted({*self.values, *self.keyring}))]

    def with_value(self, name: str, value: str) -> Contents:
        return msgspec.structs.replace(self, values=self.values | {name: value})

    def without_value(self, name: str) -> Contents:
        return msgspec.structs.replace(self, values={key: kept for key, kept in self.values.items() if key != name})

    def with_keyring_name(self, name: str) -> Contents:
        return msgspec.structs.replace(self, keyring=self.keyring | {name})

    def without_keyring_name(self, name: str) -> Contents:
        return msgspec.structs.replace(self, keyring=self.keyring - {name})


def secrets_path(environ: Mapping[str, str], home: Path | None = None) -> Path:
    """Where the file is, whether or not it exists. A relative `XDG_CONFIG_HOME` does not count."""
    configured = environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(configured):  # noqa: PTH117 - an empty text is no path
        return Path(configured) / "reyn" / "secrets.json"
    try:
        return (home or Path.home()) / ".config" / "reyn" / "secrets.json"
    except RuntimeError as error:
        hint = "Set `HOME` or `XDG_CONFIG_HOME`."
        raise SecretStoreUnavailable(f"there is no place for secrets: {error}", hint=hint) from error


class SecretsFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"SecretsFile({str(self.path)!r})"

    def read(self) -> Contents:
        """What the file holds; nothing where there is none. Makes nothing."""
        with self._faults_told("read"):
            try:
                with self._opened_folder() as folder:
                    return self._read(folder)
            except FileNotFoundError:
                return Contents()

    def change(self, changed: Callable[[Contents], Contents]) -> None:
        """Put in place of what the file holds what is made of it; nobody else writes meanwhile."""
        with self._faults_told("write"):
            with suppress(FileExistsError):
                self.path.parent.mkdir(mode=0o700, parents=True)
            with self._opened_folder() as folder, self._held_lock(folder):
                before = self._read(folder)
                after = changed(before)
                if after != before:
                    _write(folder, self.path.name, after)

    @contextmanager
    def _opened_folder(self) -> Iterator[int]:
        path = self.path.parent
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise self._refusal(path, "is a link, or no folder", "Move it away.") from error
            raise
        try:
            self._check(path, os.fstat(folder), _OTHERS_MAY_WRITE, "others may write to it", "chmod 700")
            yield folder
        finally:
            os.close(folder)

    def _read(self, folder: int) -> Contents:
        try:
            # A fifo without a writer must not hold us up.
            handle = os.open(self.path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            return Contents()
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._refusal(self.path, "is a link", "Put the file itself there.") from error
            raise
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise self._refusal(self.path, "is no plain file", "Move it away.")
            self._check(self.path, status, _OTHERS_MAY, "others may read or change it", "chmod 600")
            with os.fdopen(handle, "rb", closefd=False) as file:
                content = file.read()
        finally:
            os.close(handle)
        try:
            return msgspec.json.decode(content, type=Contents)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # Without the cause: nobody knows what a decoder quotes.
            hint = "Mend it or move it away; a newer Reyn may have written it."
            raise self._refusal(self.path, "is damaged, or not of this version", hint) from None

    @contextmanager
    def _held_lock(self, folder: int) -> Iterator[None]:
        handle = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            deadline = time.monotonic() + _PATIENCE
            while not _is_locked(handle):
                if time.monotonic() > deadline:
                    raise self._refusal(self.path, "is being written by another process", "Try again.")
                time.sleep(0.005)
            yield
        finally:
            os.close(handle)

    def _check(self, path: Path, status: os.stat_result, forbidden: int, why: str, remedy: str) -> None:
        if status.st_uid != os.geteuid():
            raise self._refusal(path, "belongs to another user", "Call Reyn as the user to whom it belongs.")
        if status.st_mode & forbidden:
            mode = stat.S_IMODE(status.st_mode)
            hint = f"Run: {remedy} {shlex.quote(str(path))}"
            raise self._refusal(path, f"is not safe: {why} (mode {mode:04o})", hint)

    @staticmethod
    def _refusal(path: Path, why: str, hint: str) -> SecretStoreUnavailable:
        return SecretStoreUnavailable(f"`{path}` {why}", hint=hint)

    @contextmanager
    def _faults_told(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SecretStoreUnavailable(f"cannot {verb} `{self.path}`: {error.strerror}") from error


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(folder: int, name: str, contents: Contents) -> None:
    with suppress(FileNotFoundError):  # left by a process that died: the lock says that nobody writes it now
        os.unlink(_NEW, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(_NEW, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o600)  # whatever the umask took away
            file.write(msgspec.json.format(msgspec.json.encode(contents, order="deterministic"), indent=2))
            file.flush()
            os.fsync(handle)
        os.rename(_NEW, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(_NEW, dir_fd=folder)
        raise
    os.fsync(folder)
