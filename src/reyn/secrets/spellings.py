"""Build regular expressions that match a value in every encoding in which it may occur in text.

Covered are plain text, JSON escapes, percent-encoding and Python's `repr`, also nested in each other (the JSON of a
tool call inside the JSON of a request), and Base64 at any offset, as in `Basic` credentials of `user:value`.
"""

from __future__ import annotations

import base64
import re
from string import ascii_letters, digits

_PLAIN = frozenset(ascii_letters + digits + "_-.")
"""Characters that no encoding escapes."""
_SHORT = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a"}
_NEEDLESS = re.compile(r"\\{1,16}+u00([2-7][0-9a-fA-F])")
_URL_SAFE = str.maketrans("+/", "-_")

# Quantifiers are bounded, so that text with long runs of escapes cannot cause catastrophic backtracking. In JSON that
# is nested four times, 15 backslashes precede a quote. Possessive quantifiers of alternatives do not match reliably
# before Python 3.11.5, so only those of fixed texts are possessive.
_PERCENT = r"%(?:25){0,8}+"
_BACKSLASH = rf"(?:\\|{_PERCENT}5[cC])"
_BACKSLASHES = _BACKSLASH + "{1,16}"


def spellings(value: str) -> list[str]:
    """Return the value and its Base64 encodings, longest encoding first."""
    raw = value.encode()
    whole = base64.b64encode(raw).decode()
    encoded = {whole, whole.rstrip("="), *(_base64_core(raw, shift) for shift in range(3))}
    encoded |= {text.translate(_URL_SAFE) for text in encoded}
    return [value, *sorted(encoded, key=lambda text: (-len(text), text))]


def pattern_of(spelling: str) -> str:
    """Return a regular expression that matches every escaped form of a spelling."""
    return "".join(map(_character_pattern, re.findall(r"\\+|.", spelling, re.DOTALL)))


def without_needless_escapes(text: str) -> str:
    """Return the text with escapes of plain characters, such as `\\u0061`, decoded."""
    return _NEEDLESS.sub(lambda match: char if (char := chr(int(match[1], 16))) in _PLAIN else match[0], text)


def anchor_of(spelling: str) -> str:
    """Return the longest substring that every escaped form of a spelling contains."""
    return max("".join(char if char in _PLAIN else " " for char in spelling).split(" "), key=len)


def _base64_core(raw: bytes, shift: int) -> str:
    """Return the Base64 characters that depend on the value alone if it starts at byte `shift` of a group of three."""
    encoded = base64.b64encode(bytes(shift) + raw).decode()
    return encoded[-(-shift * 8 // 6) : (shift + len(raw)) * 8 // 6]


def _character_pattern(char: str) -> str:
    """Return a pattern for every form of one character, or of a run of backslashes."""
    if char in _PLAIN:
        return re.escape(char)
    escapes = f"{_BACKSLASHES}(?i:{'|'.join(_escapes(char[0]))})"
    if char[0] == "\\":
        return f"(?:(?:{escapes}){{{len(char)}}}|{_BACKSLASH}{{{len(char)},{16 * len(char)}}})"
    unescaped = [re.escape(char), f"(?i:{''.join(map(_percent, char.encode()))})"]
    if char == " ":
        unescaped.append(r"\+")
    prefix = "" if char == "%" else f"{_BACKSLASH}{{0,16}}"  # the value itself may contain `%5c`
    return f"(?:{prefix}(?:{'|'.join(unescaped)})|{escapes})"


def _escapes(char: str) -> list[str]:
    """Return the escapes that JSON and Python write after a backslash."""
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
