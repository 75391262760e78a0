"""The command line as tests reach it: in this process, in another one, at a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

IN = '{"text": "in"}'
_PATIENCE = 60


class Said:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


def write_answers(folder: Path, *answers: Any, name: str = "answers.jsonl") -> None:
    (folder / name).write_text("\n".join(json.dumps(answer) for answer in answers))


class Terminal:
    """A process that sits at a terminal of its own."""

    def __init__(self, folder: Path, *words: str, program: tuple[str, ...] = ("-m", "reyn")) -> None:
        self._screen, theirs = pty.openpty()
        self.child = subprocess.Popen(
            [sys.executable, *program, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "200"},
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def wait_for(self, words: str) -> str:
        """Read on until the words are on the screen; return what stood before them, which is not looked at again."""
        deadline = time.monotonic() + _PATIENCE
        while words not in self.seen:
            assert time.monotonic() < deadline, f"{words!r} never came; seen: {self.seen!r}"
            assert self._read(), f"it ended without {words!r}; seen: {self.seen!r}"
        before, _, self.seen = self.seen.partition(words)
        return before

    def type(self, words: str) -> None:
        os.write(self._screen, words.encode())

    def end(self) -> Said:
        """What is shown until it ends."""
        while self._read():
            pass
        os.close(self._screen)
        return Said(self.child.wait(_PATIENCE), self.seen, "")

    def _read(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], _PATIENCE)
        try:
            chunk = os.read(self._screen, 65536) if ready else b""
        except OSError:  # the other side is closed
            chunk = b""
        self.seen += chunk.decode(errors="replace")
        return bool(chunk)
