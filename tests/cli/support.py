"""Run the command line in tests: in this process, in another one, at a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support import is_readable

IN = '{"text": "in"}'
_TIMEOUT = 60


class Output:
    """Exit code and output of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


def write_answers(folder: Path, *answers: Any, name: str = "answers.jsonl") -> None:
    (folder / name).write_text("\n".join(json.dumps(answer) for answer in answers))


class Terminal:
    """A process at its own pseudo-terminal."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        program: tuple[str, ...] = ("-m", "reyn"),
        env: dict[str, str] | None = None,
    ) -> None:
        self._screen, other_end = pty.openpty()
        self.child = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stdin=other_end,
            stdout=other_end,
            stderr=other_end,
            cwd=folder,
            env=os.environ | {"TERM": "xterm", "NO_COLOR": "", "COLUMNS": "200"} | (env or {}),
            start_new_session=True,
        )
        os.close(other_end)
        self.seen = ""

    def wait_for(self, text: str) -> str:
        """Read until the text appears; consume the output up to it and return what precedes it."""
        deadline = time.monotonic() + _TIMEOUT
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} not printed; output: {self.seen!r}"
            assert self._read(), f"the process ended without {text!r}; output: {self.seen!r}"
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def end(self) -> Output:
        """Wait for the process to end; return the rest of its output."""
        while self._read():
            pass
        os.close(self._screen)
        return Output(self.child.wait(_TIMEOUT), self.seen, "")

    def _read(self) -> bool:
        try:
            chunk = os.read(self._screen, 65536) if is_readable(self._screen, _TIMEOUT) else b""
        except OSError:  # the process has ended
            chunk = b""
        self.seen += chunk.decode(errors="replace")
        return bool(chunk)
