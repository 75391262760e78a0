"""Files with the state of a local model after the static part of a prompt, in the user's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from reyn.folders import FILE, FOLDER, OpenFolder
from reyn.models.weights import cache_folder

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

MAX_CACHE_BYTES = 512 << 20
"""Maximum size of the cache of prompts. The smallest model needs 23 KB per token, about 10 MB per phase."""
_SUFFIX = ".kv"
_NAME = re.compile(rf"([0-9a-f]{{32}}-[0-9a-f]{{64}}|\.[0-9a-f]{{16}}){re.escape(_SUFFIX)}")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PromptCache:
    """The states of one model after the static part of a prompt, stored for other processes. So are topics of choices.

    Only static text is cached, never the data of a run. Files can be deleted at any time; above `MAX_CACHE_BYTES` the
    least recently used are deleted. A file name contains the hash of the file, which is verified before use: llama.cpp
    aborts the process when it loads a truncated file. I/O errors count as misses.
    """

    def __init__(self, model: Path, engine: str) -> None:
        self.folder = cache_folder("prefixes")
        status = model.stat()
        self._model_id = f"{engine}\0{model.resolve()}\0{status.st_size}\0{status.st_mtime_ns}\0"

    def find(self, text: str) -> str | None:
        """Return the name of the file with the state after a text; delete damaged files."""
        with contextlib.suppress(OSError), self._opened() as folder:
            for name in _names(folder):
                if name.startswith(self._key(text)):
                    if _digest(name, folder) in name:
                        os.utime(name, dir_fd=folder)
                        return name
                    os.unlink(name, dir_fd=folder)
        return None

    def read(self, name: str) -> bytes:
        """Return the content of a file that was found."""
        with self._opened() as folder, _open(name, folder) as file:
            return file.read()

    def write(self, name: str, content: bytes) -> bool:
        """Write a file while it is stored."""
        with self._opened() as folder, os.fdopen(os.open(name, _NEW, 0o600, dir_fd=folder), "wb") as file:
            return file.write(content) > 0

    def store(self, text: str, write: Callable[[str], bool]) -> None:
        """Let `write` create a file in the folder, then publish it atomically as the state after a text."""
        with contextlib.suppress(OSError):
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = f".{secrets.token_hex(8)}{_SUFFIX}"
            with self._opened() as folder:
                try:
                    if write(temporary):
                        final = f"{self._key(text)}-{_digest(temporary, folder)}{_SUFFIX}"
                        os.chmod(temporary, 0o600, dir_fd=folder)
                        os.rename(temporary, final, src_dir_fd=folder, dst_dir_fd=folder)
                        _evict(folder)
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(temporary, dir_fd=folder)

    def _opened(self) -> OpenFolder:
        """Open the folder. Raises `OSError` if there is none, or it is a link."""
        if self.folder is None:
            raise FileNotFoundError("the user has no home directory")
        return OpenFolder("", os.open(self.folder, FOLDER | os.O_NOFOLLOW))

    def _key(self, text: str) -> str:
        return hashlib.sha256((self._model_id + text).encode()).hexdigest()[:32]


def _names(folder: int) -> list[str]:
    """Return the names of the cache in its folder; files of other names are not the cache's."""
    return [name for name in os.listdir(folder) if _NAME.fullmatch(name)]


def _open(name: str, folder: int) -> BufferedReader:
    return os.fdopen(os.open(name, FILE | os.O_NOFOLLOW, dir_fd=folder), "rb")


def _digest(name: str, folder: int) -> str:
    with _open(name, folder) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _evict(folder: int) -> None:
    """Delete the oldest files, including temporary files of killed processes, until the cache fits."""
    found = [(os.stat(name, dir_fd=folder, follow_symlinks=False), name) for name in _names(folder)]
    total = sum(status.st_size for status, _ in found)
    for status, name in sorted(found, key=lambda one: one[0].st_mtime):
        if total <= MAX_CACHE_BYTES:
            return
        os.unlink(name, dir_fd=folder)
        total -= status.st_size
