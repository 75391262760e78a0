"""Disks that fill up or become read-only, and commands in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support import write_skill

IN = '{"text": "in"}'


class Disk:
    """A file system of a fixed size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def mount(self, size: str, folder: Path | None = None) -> None:
        self.folder = folder or self.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._do("mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(self.folder))

    def move_to(self, folder: Path, size: str) -> None:
        """Unmount the disk and mount a new one elsewhere."""
        self.unmount()
        self.mount(size, folder)

    def resize(self, size: str) -> None:
        self._do("mount", "-o", f"remount,size={size}", str(self.folder))

    def make_read_only(self) -> None:
        self._do("mount", "-o", "remount,ro", str(self.folder))

    def make_writable(self) -> None:
        self._do("mount", "-o", "remount,rw", str(self.folder))

    def fill(self) -> Path:
        """Use all free space."""
        filler = self.folder / "filler"
        handle = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with suppress(OSError):
            while os.write(handle, bytes(4096)):
                pass
        os.close(handle)
        return filler

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=False, capture_output=True)

    def _do(self, *words: str) -> None:
        subprocess.run(words, check=True, capture_output=True, text=True)


class CommandResult:
    """The output and the exit code of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit {self.code}\n{self.out}\n{self.err}"

    def is_error(self, code: str) -> bool:
        """A clean end: a code, exit 1, and no traceback."""
        return self.code == 1 and f"error {code}" in self.err and "Traceback" not in self.err


def reyn(root: Path, *words: str) -> CommandResult:
    """Execute a command in a separate process."""
    done = subprocess.run(
        [sys.executable, "-m", "reyn", "--project", str(root), *words],
        capture_output=True,
        text=True,
        cwd=root,
        timeout=60,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def ask_and_write(root: Path) -> None:
    write_skill(root, "pair", {"first": ["second"], "second": ["end"]}, ops={"first": "file, ask_user"})


def temporaries(root: Path) -> list[Path]:
    return list(root.rglob(".reyn-tmp-*"))
