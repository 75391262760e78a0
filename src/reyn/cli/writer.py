"""The only writer to standard output and standard error.

Text can come from a model, a file or a server. Whatever could steer or deceive a terminal is escaped here, after all
decoding (`reyn.characters`). Colours are values (`Styled`), never sequences in a text. `guard_streams`
makes prints of libraries and tracebacks pass here, too.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self, TextIO

import click
import msgspec

from reyn.characters import clean, escape, escape_json

# -- lines ----------------------------------------------------------------------------------------------------

_CODES = {"red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36", "white": "37"}
_CLEAR_LINE = "\r\x1b[2K"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class Styled(NamedTuple):
    """A text with the parameters of SGR sequences, such as `31;1`; none if they are empty."""

    text: str
    codes: str = ""

    def __str__(self) -> str:
        return self.text


def styled(text: str, colour: str = "", *, bold: bool = False, dim: bool = False) -> Styled:
    """Return a text in a colour."""
    codes = (_CODES.get(colour, ""), "1" if bold else "", "2" if dim else "")
    return Styled(text, ";".join(code for code in codes if code))


class Line(tuple["str | Styled", ...]):
    """A line of parts, some with colours."""

    __slots__ = ()

    def __new__(cls, *parts: str | Styled) -> Self:
        return super().__new__(cls, parts)

    def __str__(self) -> str:
        return "".join(map(str, self))


class Raw(str):
    """A text with its own line breaks. A file or a pipe gets it as it is, a terminal gets it escaped."""

    __slots__ = ()


Printed = str | Styled | Line
"""What the writer prints as a line; `Raw` is a `str`."""


class Report(NamedTuple):
    """What a command returns.

    Attributes:
        value: What `--json` prints.
        lines: What is printed otherwise; evaluated only then.
        code: The exit code.
        each: Whether `--json` prints each item of `value` on a line of its own.
    """

    value: Any
    lines: Iterable[Printed] = ()
    code: int = 0
    each: bool = False


def wants_json() -> bool:
    """Return whether the command line has `--json`."""
    return bool(click.get_current_context().obj.get("json"))


def is_plain() -> bool:
    """Return whether to print neither colour nor a live line: `NO_COLOR` is not empty, or `TERM` is `dumb`."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def is_terminal(*, err: bool = False) -> bool:
    """Return whether standard output or standard error is a terminal; it may also be closed."""
    stream = sys.stderr if err else sys.stdout
    return stream is not None and stream.isatty()


def is_attended() -> bool:
    """Return whether a user can see a question and type a reply."""
    return sys.stdin is not None and sys.stdin.isatty() and is_terminal(err=True)


# -- terminals ------------------------------------------------------------------------------------------------


class _Screen:
    """The terminal of this process. It serialises what is written, above the status line or above a prompt."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._status: tuple[TextIO, str] | None = None
        self._is_mid_line = False
        self.above_prompt: Any = None

    def write(self, stream: TextIO, text: str) -> None:
        """Write a text whose sequences are Reyn's own."""
        with self._lock:
            if self._status is not None and not self._is_mid_line:
                self._status[0].write(_CLEAR_LINE)
                self._status[0].flush()
            target = self.above_prompt or stream
            target.write(text)
            target.flush()
            self._is_mid_line = not text.endswith("\n") if text else self._is_mid_line
            self._draw()

    def show_status(self, stream: TextIO, text: str) -> None:
        """Draw the status line, which stays the last one; without a text, remove it."""
        with self._lock:
            if text:
                if self._status is None:
                    self._is_mid_line = False  # it begins after a question, whose reply ended the line
                    stream.write(_HIDE_CURSOR)
                self._status = (stream, text)
                self._draw()
            elif self._status is not None:
                self._status = None
                stream.write(f"{'' if self._is_mid_line else _CLEAR_LINE}{_SHOW_CURSOR}")
                stream.flush()

    def _draw(self) -> None:
        if self._status is None or self._is_mid_line:
            return
        stream, text = self._status
        columns = shutil.get_terminal_size().columns
        text = text if len(text) < columns else f"{text[: columns - 2]}…"
        stream.write(f"{_CLEAR_LINE}{_NO_WRAP}\x1b[2m{text}\x1b[0m{_WRAP}")
        stream.flush()


_screen = _Screen()


class GuardedStream(io.TextIOBase):
    """A stream of a terminal that writes nothing unescaped. It has no `buffer`: bytes cannot get past it.

    Attributes:
        terminal: The stream of the terminal itself.
    """

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base class declares a variable
        return self.terminal.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # the base class declares a variable
        return self.terminal.errors

    def fileno(self) -> int:
        return self.terminal.fileno()

    def isatty(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        _screen.write(self.terminal, escape(text))
        return len(text)

    def flush(self) -> None:
        self.terminal.flush()


def guard_streams() -> None:
    """Escape everything that any code of this process prints to a terminal from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty() and not isinstance(stream, GuardedStream):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, GuardedStream(stream))


def _terminal(stream: TextIO) -> TextIO | None:
    """Return the terminal that a stream belongs to; `None` for another stream."""
    if isinstance(stream, GuardedStream):
        return stream.terminal
    return stream if stream.isatty() else None


# -- the writer -----------------------------------------------------------------------------------------------


class Writer:
    """Prints lines, texts and JSON.

    Attributes:
        written: How often it printed something.
    """

    def __init__(self) -> None:
        self.written = 0

    def line(self, text: Printed = "", *, err: bool = False) -> None:
        """Print a line."""
        self._write(text, "" if isinstance(text, Raw) else "\n", err=err)

    def note(self, text: Printed = "") -> None:
        """Print a line to standard error."""
        self.line(text, err=True)

    def text(self, text: str, before: str = "", *, err: bool = False) -> None:
        """Print a piece of a text without a line break; `before` is the character before it."""
        self.written += 1
        stream = sys.stderr if err else sys.stdout
        if stream is None:
            return
        if (terminal := _terminal(stream)) is None:
            stream.write(text)
            stream.flush()
        else:
            # A joiner at the beginning belongs to the character before it.
            _screen.write(terminal, escape(before + text)[len(escape(before)) :])

    def content(self, lines: Iterable[bytes]) -> None:
        """Print lines of JSON that a file or a pipe gets byte by byte. A terminal gets them escaped as JSON."""
        if sys.stdout is None:
            return
        if (terminal := _terminal(sys.stdout)) is None:
            sys.stdout.buffer.writelines(lines)
            sys.stdout.buffer.flush()
            return
        for line in lines:
            text = line.decode("utf-8", "surrogateescape").rstrip("\n")
            _screen.write(terminal, escape_json(text) + "\n")

    def json(self, value: Any) -> None:
        """Print a value as JSON on one line. Characters that could steer a terminal are escaped as JSON allows."""
        text = msgspec.json.encode(value).decode()
        self._write(escape_json(text), "\n", err=False)

    def report(self, report: Any) -> int:
        """Print what a command returned, unless it has printed itself, and return the exit code."""
        if not isinstance(report, Report):
            return report if isinstance(report, int) else 0
        if wants_json():
            for value in report.value if report.each else (report.value,):
                self.json(value)
        else:
            for line in report.lines:
                self.line(line)
        return report.code

    def status(self, text: str, *, err: bool = False) -> None:
        """Draw a line that stays below everything that is printed; without a text, remove it."""
        stream = sys.stderr if err else sys.stdout
        if stream is not None and (terminal := _terminal(stream)) is not None:
            _screen.show_status(terminal, clean(text))

    def confirm(self, question: str, *, abort: bool = False) -> bool:
        """Ask a question at the terminal; `abort` ends the command unless the reply is yes."""
        return click.confirm(clean(question), default=False, err=True, abort=abort)

    def ask_hidden(self, question: str) -> str:
        """Ask for a text at the terminal that is not shown while it is typed."""
        from getpass import getpass

        return getpass(clean(question), stream=sys.stderr)

    @property
    def terminal(self) -> TextIO:
        """The terminal itself, for an object that escapes text as the writer does."""
        terminal = None if sys.stdout is None else _terminal(sys.stdout)
        assert terminal is not None
        return terminal

    def flush(self) -> None:
        if sys.stdout is not None:
            sys.stdout.flush()

    def discard(self) -> None:
        """Send further output to the null device, so that the interpreter's last flush does not fail."""
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            try:
                os.dup2(null, stream.fileno())
            except (AttributeError, OSError, ValueError):  # closed, or replaced by an object without a file
                continue
        os.close(null)

    @contextmanager
    def above(self, prompt: Any) -> Iterator[None]:
        """Print above a prompt, through an object that draws the prompt again."""
        _screen.above_prompt = prompt
        try:
            yield
        finally:
            _screen.above_prompt = None

    def _write(self, text: Printed, end: str, *, err: bool) -> None:
        self.written += 1
        stream = sys.stderr if err else sys.stdout
        if stream is None:  # the caller closed it
            return
        if (terminal := _terminal(stream)) is None:
            stream.write((text if isinstance(text, Raw) else clean(str(text))) + end)
            stream.flush()
        elif isinstance(text, Raw):
            _screen.write(terminal, escape(text) + end)
        else:
            parts = text if isinstance(text, Line) else (text,)
            columns = _columns(terminal)
            lines = wrapped([Styled(clean(str(part)), _codes_of(part)) for part in parts], columns)
            _screen.write(terminal, "\n".join("".join(map(_coloured, line)) for line in lines) + end)


def _codes_of(part: str | Styled) -> str:
    return part.codes if isinstance(part, Styled) and not is_plain() else ""


def _coloured(part: Styled) -> str:
    if not part.codes:
        return part.text
    codes = "".join(f"\x1b[{code}m" for code in part.codes.split(";"))
    return f"{codes}{part.text}\x1b[0m"


# -- long lines -----------------------------------------------------------------------------------------------

_MIN_COLUMNS = 20
"""Narrower terminals break lines themselves."""


def _columns(terminal: TextIO) -> int:
    """Return the width of a terminal."""
    try:
        size = os.get_terminal_size(terminal.fileno()).columns
    except (OSError, ValueError, AttributeError):
        size = 0
    return shutil.get_terminal_size().columns if "COLUMNS" in os.environ or not size else size


def wrapped(parts: Sequence[Styled], columns: int) -> list[list[Styled]]:
    """Break a line between words where it is wider than a terminal. Blanks there and at the end are left out.

    An indented line goes on below its indentation. The terminal itself would continue it at its left edge, where a text
    of a model could look like a line of Reyn; so a word that is too long is broken, too. In other lines it stays whole.

    Args:
        parts: The parts of the line, clean.
        columns: The width of the terminal; 0 if it is unknown.
    """
    text = "".join(part.text for part in parts).rstrip(" ")
    if columns < _MIN_COLUMNS or _width(text) <= columns:
        return [list(parts)]
    indent = min(len(text) - len(text.lstrip(" ")), columns // 2)
    margin = Styled(f"{' ' * indent}… " if indent else "")
    first, *others = (list(_between(parts, *row)) for row in _rows(text, columns, len(margin.text)))
    return [first, *([margin, *row] for row in others)]


def _rows(text: str, columns: int, margin: int) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of each row of a text. All rows but the first have a margin."""
    first = end = used = 0
    for word in re.finditer(r"( *)([^ ]+)", text):
        blanks, width = len(word[1]), _width(word[2])
        fits_a_row = not margin or margin + width <= columns
        if end > first and fits_a_row and used + blanks + width > columns:
            yield first, end
            first, used, blanks = word.start(2), margin, 0
        end, used = word.end(), used + blanks
        if margin and used + width > columns:
            for at, char in enumerate(word[2], word.start(2)):
                if (width := _width(char)) + used > columns:
                    yield first, at
                    first, used = at, margin
                used += width
        else:
            used += width
    yield first, end


def _between(parts: Sequence[Styled], start: int, stop: int) -> Iterator[Styled]:
    """Yield what the parts have between two positions of their text."""
    at = 0
    for part in parts:
        if piece := part.text[max(0, start - at) : max(0, stop - at)]:
            yield Styled(piece, part.codes)
        at += len(part.text)


def _width(text: str) -> int:
    """Return how many columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(_WIDTHS.get(unicodedata.east_asian_width(char), 1) * (not unicodedata.combining(char)) for char in text)


_WIDTHS = {"W": 2, "F": 2}


out = Writer()
