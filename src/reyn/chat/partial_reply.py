"""Read the reply from a model's answer while it arrives: plain text as it is, the text field of a JSON decision."""

from __future__ import annotations

from typing import Literal

_PATHS = (["artifact", "data", "text"], ["data", "text"])
"""Where the reply is in a decision: in the full form, and in the short one."""
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
        self._scanner = _ReplyText()

    def feed(self, piece: str) -> str:
        """Return what a piece adds to the reply."""
        if self._kind == "unknown":
            self._head += piece
            piece = self._head.lstrip()
            if not piece or (_FENCE.startswith(piece) and len(piece) < len(_FENCE)):
                return ""
            self._kind = "json" if piece.startswith(("{", _FENCE)) else "plain"
        return piece if self._kind == "plain" else self._scanner.feed(piece)


class _ReplyText:
    """Finds a text in JSON whose end has not arrived yet. What is malformed adds nothing."""

    def __init__(self) -> None:
        self._path: list[str | None] = []
        """The key of each object that is open; `None` for an array, or before the first key."""
        self._is_object: list[bool] = []
        self._string: list[str] | None = None
        self._escape = ""
        self._high = ""
        self._is_key = False

    def feed(self, piece: str) -> str:
        found: list[str] = []
        for char in piece:
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
        return "".join(found)

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
        elif self._path in _PATHS:
            found.append(text)
