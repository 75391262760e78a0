"""Answers that have not arrived completely: the text of a reply, and the data of a result as far as it is known.

Pieces may end anywhere, also in an escape sequence. What is malformed adds nothing; the verdict on the whole answer is
that of `reyn.contract.judge`. Each character is looked at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

_DATA = (["artifact", "data"], ["data"])
"""Where the data is in a decision: in the full form, and in the short one."""
_REPLY = tuple([*path, "text"] for path in _DATA)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_FENCE = "```json"
_MAX_DEPTH = 64


class PartialReply:
    """Receives the pieces of one answer. An answer that is no JSON object is the reply itself.

    Args:
        is_plain: Whether the answer is the reply, whatever it begins with.
    """

    def __init__(self, *, is_plain: bool = False) -> None:
        self.is_plain = is_plain
        self._kind: Literal["unknown", "plain", "json"] = "plain" if is_plain else "unknown"
        self._head = ""
        self._scanner = _Scanner()

    def feed(self, piece: str) -> str:
        """Return what a piece adds to the reply."""
        if self._kind == "unknown":
            piece = self._head = (self._head + piece).lstrip()
            if not piece or (_FENCE.startswith(piece) and len(piece) < len(_FENCE)):
                return ""
            self._kind = "json" if piece.startswith(("{", _FENCE)) else "plain"
        return piece if self._kind == "plain" else self._scanner.feed(piece)


class KnownData(NamedTuple):
    """JSON that was closed where it ends so far.

    Attributes:
        value: The value.
        open_text: The path of the text that it ends in; `None` if it ends in none.
    """

    value: Any
    open_text: tuple[str | int, ...] | None = None


class PartialData:
    """Receives the pieces of one answer, and knows the data of its decision as far as it has arrived.

    Attributes:
        length: The characters of the data so far.
    """

    def __init__(self) -> None:
        self._is_json = False
        self._scanner = _Capture()

    @property
    def length(self) -> int:
        """The characters of the data so far."""
        return len(self._scanner.raw)

    def feed(self, piece: str) -> None:
        """Read a piece."""
        if not self._is_json:
            start = piece.find("{")
            if start < 0:
                return  # a code fence, or thoughts
            self._is_json, piece = True, piece[start:]
        self._scanner.feed(piece)

    def completions(self) -> Iterator[KnownData]:
        """Yield the data as far as it is known: all of it, then without the text or the containers that are open."""
        for text, path in self._scanner.closed():
            try:
                yield KnownData(json.loads(text), path)
            except (ValueError, RecursionError):
                continue


class _Scanner:
    """Follows JSON whose end has not arrived yet, and finds the text of a reply in it."""

    def __init__(self) -> None:
        self._path: list[str | None] = []
        """The key of each object that is open; `None` for an array, or before the first key."""
        self._is_object: list[bool] = []
        self._string: list[str] | None = None
        self._escape = ""
        self._high = ""
        self._is_key = False

    def feed(self, piece: str) -> str:
        """Return what a piece adds to the text of the reply."""
        found: list[str] = []
        for char in piece:
            self._next(char, found)
        return "".join(found)

    def _next(self, char: str, found: list[str]) -> None:
        if self._string is None:
            self._structure(char)
        elif self._escape:
            self._add(self._unescaped(char), found)
        elif char == "\\":
            self._escape = char
        elif char == '"':
            self._end_string()
        else:
            self._add(char, found)

    def _structure(self, char: str) -> None:
        match char:
            case '"':
                self._string = []
            case "{" | "[" if len(self._path) < _MAX_DEPTH:
                self._path.append(None)
                self._is_object.append(char == "{")
                self._is_key = char == "{"
            case "}" | "]" if self._path:
                self._path.pop()
                self._is_object.pop()
                self._is_key = False
            case ",":
                self._is_key = bool(self._is_object) and self._is_object[-1]
            case ":":
                self._is_key = False

    def _end_string(self) -> None:
        if self._is_key and self._path and self._string is not None:
            self._path[-1] = "".join(self._string)
        self._string = None
        self._high = ""

    def _unescaped(self, char: str) -> str:
        """Return the character that an escape sequence stands for, once it is complete."""
        self._escape += char
        if self._escape.startswith("\\u"):
            if len(self._escape) < 6:
                return ""
            digits, self._escape = self._escape[2:], ""
            try:
                code = int(digits, 16)
            except ValueError:
                return ""
            if 0xD800 <= code < 0xDC00:  # the first half of a character
                self._high = digits
                return ""
            if 0xDC00 <= code < 0xE000:
                high, self._high = self._high, ""
                return bytes.fromhex(high + digits).decode("utf-16-be") if high else "\ufffd"
            return chr(code)
        self._escape = ""
        return _ESCAPES.get(char, char)

    def _add(self, text: str, found: list[str]) -> None:
        assert self._string is not None
        if self._is_key:
            self._string.append(text)
        elif self._path in _REPLY:
            found.append(text)


class _Capture(_Scanner):
    """Keeps the data of a decision as it was written, and where it can be closed.

    Attributes:
        raw: The characters of the data.
    """

    def __init__(self) -> None:
        super().__init__()
        self.raw: list[str] = []
        self._base = 0
        """The depth of the data; 0 before it."""
        self._is_whole = False
        self._is_literal = False
        self._end = 0
        """Where the last complete value ends, or the last container begins."""
        self._starts: list[int] = []
        """Where the data can be cut to leave out each container that is open, without the data itself."""
        self._counts: list[int] = []
        """The complete elements of each container that is open."""

    def _next(self, char: str, found: list[str]) -> None:
        if self._is_whole:
            return
        if self._base:
            self.raw.append(char)
            was_value = self._string is not None and not self._is_key
            if self._string is None:
                self._capture(char)
            super()._next(char, found)
            if was_value and self._string is None:
                self._complete(len(self.raw))
            return
        is_data = char == "{" and self._string is None and self._path in _DATA and not self._is_key
        super()._next(char, found)
        if is_data:
            self.raw, self._base, self._end = [char], len(self._path), 1
            self._counts.append(0)

    def _capture(self, char: str) -> None:
        """Note what a character outside of texts begins or ends."""
        at = len(self.raw)
        if self._is_literal and (char in ",]}" or char.isspace()):
            self._is_literal = False
            self._complete(at - 1)
        if char in "{[":
            self._starts.append(self._end)
            self._counts.append(0)
            self._end = at
        elif char in "]}":
            self._is_whole = len(self._path) <= self._base
            self._counts.pop()
            if self._is_whole:
                self._end = at
            else:
                self._starts.pop()
                self._complete(at)
        elif char not in '",:' and not char.isspace():
            self._is_literal = True

    def _complete(self, end: int) -> None:
        self._end = end
        if self._counts:
            self._counts[-1] += 1

    def closed(self) -> Iterator[tuple[str, tuple[str | int, ...] | None]]:
        """Yield the data closed where it ends, each time with less of what is open, and the path of an open text."""
        if not self._base:
            return
        ends = ["}" if is_object else "]" for is_object in self._is_object[self._base - 1 :]]
        if self._is_whole:
            yield "".join(self.raw), None
            return
        if self._string is not None and not self._is_key:
            end = len(self.raw) - len(self._escape)
            if self._high and "".join(self.raw[end - 6 : end]) == f"\\u{self._high}":
                end -= 6  # the first half of a character
            text = "".join(self.raw[:end])
            yield f'{text}"{"".join(reversed(ends))}', self._open_path()
        yield "".join(self.raw[: self._end]) + "".join(reversed(ends)), None
        for left in range(len(self._starts) - 1, -1, -1):
            yield "".join(self.raw[: self._starts[left]]) + "".join(reversed(ends[: left + 1])), None

    def _open_path(self) -> tuple[str | int, ...]:
        start = self._base - 1
        keys = zip(self._path[start:], self._is_object[start:], self._counts, strict=True)
        return tuple((key or "") if is_object else count for key, is_object, count in keys)
