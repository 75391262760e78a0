"""A value becomes the pattern of all the ways in which a text may write it.

A character stands as it is, or as JSON, a URL or Python's `repr` write it; also where one is nested in another, as the
JSON of a tool call is in the JSON of a request. Base64 is known by the characters that the value alone decides,
wherever in the encoded text it stands: in that of `user:value`, too.
"""

from __future__ import annotations

import base64
import re
from string import ascii_letters, digits

_PLAIN = frozenset(ascii_letters + digits + "_-.")
"""What is written in one way everywhere."""
_SHORT = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a"}
_NEEDLESS = re.compile(r"\\{1,16}+u00([2-7][0-9a-fA-F])")
_URL_SAFE = str.maketrans("+/", "-_")

# Runs are possessive where nothing after them can begin alike, and short: a text that repeats one without end must not
# hold us up. In JSON that is nested four times, a quote has 15 backslashes before it.
_PERCENT = r"%(?:25){0,8}+"
_BACKSLASH = rf"(?:\\|{_PERCENT}5[cC])"
_BACKSLASHES = _BACKSLASH + "{1,16}+"


def spellings(value: str) -> list[str]:
    """The value, then what Base64 makes of it, the longest first."""
    raw = value.encode()
    whole = base64.b64encode(raw).decode()
    encoded = {whole, whole.rstrip("="), *(_decided_by(raw, shift) for shift in range(3))}
    encoded |= {text.translate(_URL_SAFE) for text in encoded}
    return [value, *sorted(encoded, key=lambda text: (-len(text), text))]


def pattern_of(spelling: str) -> str:
    """A regular expression of all the ways to write a text."""
    return "".join(map(_part, re.findall(r"\\+|.", spelling, re.DOTALL)))


def without_needless_escapes(text: str) -> str:
    """The text with every `\\u0061` written as the letter that it is."""
    return _NEEDLESS.sub(lambda match: char if (char := chr(int(match[1], 16))) in _PLAIN else match[0], text)


def anchor_of(spelling: str) -> str:
    """The longest part of a text that every way to write it contains."""
    return max("".join(char if char in _PLAIN else " " for char in spelling).split(" "), key=len)


def _decided_by(raw: bytes, shift: int) -> str:
    """The characters of which every bit is the value's, if `shift` bytes of a group of three stand before it."""
    encoded = base64.b64encode(bytes(shift) + raw).decode()
    return encoded[-(-shift * 8 // 6) : (shift + len(raw)) * 8 // 6]


def _part(char: str) -> str:
    """The ways to write one character, or a run of backslashes."""
    if char in _PLAIN:
        return re.escape(char)
    escapes = f"{_BACKSLASHES}(?i:{'|'.join(_escapes(char[0]))})"
    if char[0] == "\\":
        return f"(?:(?:{escapes}){{{len(char)}}}|{_BACKSLASH}{{{len(char)},{16 * len(char)}}})"
    unescaped = [re.escape(char), f"(?i:{''.join(map(_percent, char.encode()))})"]
    if char == " ":
        unescaped.append(r"\+")
    perhaps = "" if char == "%" else f"{_BACKSLASH}{{0,16}}+"  # `%5c` may be what the value says
    return f"(?:{perhaps}(?:{'|'.join(unescaped)})|{escapes})"


def _escapes(char: str) -> list[str]:
    """What JSON and Python write after a backslash."""
    units = char.encode("utf-16-be")
    found = [
        _BACKSLASHES.join(f"u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)),
        _BACKSLASHES.join(f"x{byte:02x}" for byte in char.encode()),
    ]
    if 0x80 <= ord(char) <= 0xFF:
        found.append(f"x{ord(char):02x}")
    if ord(char) > 0xFFFF:
        found.append(f"U{ord(char):08x}")
    if char in _SHORT:
        found.append(_SHORT[char])
    return found


def _percent(byte: int) -> str:
    return "%(?:25){1,9}" if byte == ord("%") else f"{_PERCENT}{byte:02x}"
