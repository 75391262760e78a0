"""What an embedded model has read once is kept on the disk: its state after a phase's stable text.

Reading is what a small machine does slowly, and every command is a new process; what was read on this machine is not
read again. Only stable text is kept, never what a run works on. The files can be removed at any time; those that were
not used for longest are removed when there are too many.

A file's name tells the text it stands for and the hash of what it holds: llama.cpp ends the process over a file that
was cut short, so none is shown to it that is not whole.
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

ROOM = 512 << 20
"""How many bytes are kept. A token of the smallest model takes 23 KB, a phase some ten MB."""

_SUFFIX = ".kv"


class Prefixes:
    """The kept states of one model. A cache: where the disk fails, there is none."""

    def __init__(self, model: Path, engine: str) -> None:
        self.folder = cache_folder("prefixes")
        about = model.stat()
        self._model = f"{engine}\0{model.resolve()}\0{about.st_size}\0{about.st_mtime_ns}\0"

    def find(self, text: str) -> str | None:
        """The name of the file that holds the state after a text; one that is damaged is removed."""
        with contextlib.suppress(OSError):
            for path in self.folder.glob(f"{self._key(text)}-*{_SUFFIX}"):
                if path.stem.endswith(file_digest(path)):
                    os.utime(path)
                    return path.name
                path.unlink()
        return None

    def keep(self, text: str, write: Callable[[str], bool]) -> None:
        """Have a state written into the folder under a name; it can be found once it is whole."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            unseen = self.folder / f".{secrets.token_hex(8)}"
            try:
                if write(unseen.name):
                    unseen.chmod(0o600)
                    unseen.replace(self.folder / f"{self._key(text)}-{file_digest(unseen)}{_SUFFIX}")
                    self._make_room()
            finally:
                unseen.unlink(missing_ok=True)

    def _key(self, text: str) -> str:
        return hashlib.sha256((self._model + text).encode()).hexdigest()[:32]

    def _make_room(self) -> None:
        """The remains of processes that were killed while they wrote are files, too, and grow old."""
        kept = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in self.folder.iterdir())
        total = sum(size for _, size, _ in kept)
        for _, size, path in kept:
            if total <= ROOM:
                return
            path.unlink(missing_ok=True)
            total -= size
