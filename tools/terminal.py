"""A terminal for programs: runs a command on a pseudo-terminal and keeps its screen as text.

It knows the control sequences that prompts and rich text use: cursor movements, erasing, reports of the position.
Colours are ignored.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path

ROWS, COLUMNS = 500, 96
SECONDS = 120
"""How long to wait for what a program prints."""
_SEQUENCE = re.compile(
    r"\x1b\[([?>=]?)([0-9;]*)([@-~])|\x1b[()][A-Z0-9]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>78MD]"
)
_INCOMPLETE = re.compile(r"\x1b(?:\[[?>=]?[0-9;]*|\][^\x07\x1b]*|[()])?$")


class Screen:
    """The text of a terminal. It is so high that nothing scrolls."""

    def __init__(self) -> None:
        self._lines: list[list[str]] = [[]]
        self._row = self._column = 0
        self._pending = ""

    def feed(self, text: str) -> str:
        """Draw what a program prints; return what the terminal answers."""
        text, self._pending = self._pending + text, ""
        if rest := _INCOMPLETE.search(text):
            text, self._pending = text[: rest.start()], rest[0]
        answers, at = "", 0
        for found in _SEQUENCE.finditer(text):
            self._draw(text[at : found.start()])
            at = found.end()
            if found[3] == "n" and found[2] == "6":
                answers += f"\x1b[{self._row + 1};{self._column + 1}R"
            elif found[3] and not found[1]:
                self._control(found[3], [int(part or 0) for part in found[2].split(";")])
        self._draw(text[at:])
        return answers

    def _control(self, command: str, numbers: list[int]) -> None:
        count = max(1, numbers[0])
        match command:
            case "A":
                self._row = max(0, self._row - count)
            case "B":
                self._row = min(ROWS - 1, self._row + count)
            case "C":
                self._column = min(COLUMNS - 1, self._column + count)
            case "D":
                self._column = max(0, self._column - count)
            case "G":
                self._column = count - 1
            case "H" | "f":
                self._row, self._column = count - 1, (max(1, numbers[1]) if len(numbers) > 1 else 1) - 1
            case "J":
                self._line[self._column :] = []
                del self._lines[self._row + 1 :]
            case "K":
                self._line[self._column :] = []

    @property
    def _line(self) -> list[str]:
        while len(self._lines) <= self._row:
            self._lines.append([])
        return self._lines[self._row]

    def _draw(self, text: str) -> None:
        for char in text:
            match char:
                case "\r":
                    self._column = 0
                case "\n":
                    self._row += 1
                case "\b":
                    self._column = max(0, self._column - 1)
                case _ if char.isprintable() and not unicodedata.combining(char):
                    self._put(char)

    def _put(self, char: str) -> None:
        if self._column >= COLUMNS:
            self._row, self._column = self._row + 1, 0
        line = self._line
        line.extend(" " * (self._column + 1 - len(line)))
        line[self._column] = char
        self._column += 1

    def __str__(self) -> str:
        lines = ["".join(line).rstrip() for line in self._lines]
        return "\n".join(lines).rstrip()


class Program:
    """A command on a terminal of its own."""

    def __init__(self, arguments: list[str], folder: Path, environ: dict[str, str]) -> None:
        self._descriptor, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._child = subprocess.Popen(
            arguments, stdin=other, stdout=other, stderr=other, cwd=folder, env=environ, start_new_session=True
        )
        os.close(other)
        self.screen = Screen()

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._descriptor, text.encode())

    def wait_until(self, condition: Callable[[str], bool], what: str) -> None:
        """Wait until the screen fulfils a condition."""
        deadline = time.monotonic() + SECONDS
        while not condition(str(self.screen)):
            if time.monotonic() > deadline or not self._read(deadline - time.monotonic()):
                raise SystemExit(f"timed out waiting for {what}:\n{self.screen}")

    def finish(self) -> str:
        """Wait until the program has ended; return what is on the screen."""
        while self._read(SECONDS):
            pass
        self._child.wait()
        os.close(self._descriptor)
        return str(self.screen)

    def kill(self) -> str:
        """Kill the program; return what it left on the screen."""
        self._child.send_signal(signal.SIGKILL)
        return self.finish()

    def _read(self, seconds: float) -> bool:
        screen = select.poll()  # unlike `select`, it takes descriptors above 1,023
        screen.register(self._descriptor, select.POLLIN)
        ready = screen.poll(max(0.0, seconds) * 1000)
        try:
            content = os.read(self._descriptor, 1 << 16) if ready else b""
        except OSError:  # the program has ended
            content = b""
        if answers := self.screen.feed(content.decode(errors="replace")):
            self.type(answers)
        return bool(content)
