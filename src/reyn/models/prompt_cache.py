"""Store the state of a local model after the static part of a prompt, so that other processes need not read it again.

The topics of choices are stored, too.

Only static text is cached, never the data of a run. Files can be deleted at any time; above `MAX_BYTES` the least
recently used are deleted. A file name contains the hash of the file, which is verified before use: llama.cpp aborts the
process when it loads a truncated file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from typing import TYPE_CHECKING

from reyn.models.weights import cache_folder, file_digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAX_BYTES = 512 << 20
"""Maximum size of the cache. The smallest model needs 23 KB per token, about 10 MB per phase."""

_SUFFIX = ".kv"


class PromptCache:
    """The cached states of one model. I/O errors count as misses."""

    def __init__(self, model: Path, engine: str) -> None:
        self.folder = cache_folder("prefixes")
        status = model.stat()
        self._model_id = f"{engine}\0{model.resolve()}\0{status.st_size}\0{status.st_mtime_ns}\0"

    def find(self, text: str) -> str | None:
        """Return the name of the file with the state after a text; delete damaged files."""
        with contextlib.suppress(OSError):
            for path in self.folder.glob(f"{self._key(text)}-*{_SUFFIX}"):
                if path.stem.endswith(file_digest(path)):
                    os.utime(path)
                    return path.name
                path.unlink()
        return None

    def store(self, text: str, write: Callable[[str], bool]) -> None:
        """Let `write` create a file in the folder, then publish it atomically as the state after a text."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = self.folder / f".{secrets.token_hex(8)}"
            try:
                if write(temporary.name):
                    temporary.chmod(0o600)
                    temporary.replace(self.folder / f"{self._key(text)}-{file_digest(temporary)}{_SUFFIX}")
                    self._evict()
            finally:
                temporary.unlink(missing_ok=True)

    def _key(self, text: str) -> str:
        return hashlib.sha256((self._model_id + text).encode()).hexdigest()[:32]

    def _evict(self) -> None:
        """Delete the oldest files, including temporary files of killed processes, until the cache fits."""
        files = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in self.folder.iterdir())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= MAX_BYTES:
                return
            path.unlink(missing_ok=True)
            total -= size
