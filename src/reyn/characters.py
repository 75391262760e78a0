"""Escape what could steer a terminal or deceive a reader: control characters, bidirectional controls, invisible ones.

The writer to terminals and the values that notebooks show use it.
"""

from __future__ import annotations

import re
from functools import cache

_EMOJI = r"\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_JOINING = (
    r"\u0600-\u1cff\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff\U0001e900-\U0001e95f"
    rf"{_EMOJI}\ufe0f"
)
"""Characters after which a joiner changes what is seen: Arabic, Indic and similar scripts, emoji."""
_HAN = r"\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_FLAG = "\U0001f3f4\U000e0067\U000e0062(?:{})\U000e007f".format(  # England, Scotland, Wales
    "|".join("".join(chr(0xE0000 + ord(char)) for char in name) for name in ("eng", "sct", "wls"))
)
_IGNORABLE = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    r"\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""The property Default_Ignorable_Code_Point of Unicode 16: what is not visible if a font does not know it."""
_SHAPING = "|".join((
    rf"(?<=[{_JOINING}])[\u200c\u200d]",
    r"(?<=[\u1820-\u18aa])[\u180b-\u180f]",  # Mongolian
    r"\u115f(?=[\u1161-\u11a7\ud7b0-\ud7c6])",  # a Hangul syllable without its first or its second letter
    r"(?<=[\u1100-\u115e\ua960-\ua97c])\u1160(?=[\u11a8-\u11ff\ud7cb-\ud7fb])",
    rf"(?<=[{_EMOJI}])[\ufe0e\ufe0f]",
    r"(?<=[0-9#*])\ufe0f(?=\u20e3)",  # a keycap
    r"(?<=[\u1000-\u109f\u2190-\u2bff\ua840-\ua877])\ufe00",  # standardized variants
    rf"(?<=[{_HAN}])[\ufe00-\ufe02\U000e0100-\U000e01ef]",
))  # fmt: skip
"""Ignorable characters where they change what is seen."""
_UNSEEN = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, without tab and line feed
    r"\u2028\u2029\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"  # separators, annotations, no characters
    rf"{_IGNORABLE}]"
)


@cache  # compiling takes longer than many a command
def _hidden() -> re.Pattern[str]:
    """Return what matches a character to escape; its group matches what looks like one and stays."""
    return re.compile(f"({_FLAG}|{_SHAPING})|{_UNSEEN}")


def _is_plain_ascii(text: str) -> bool:
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def escape(text: str) -> str:
    """Return a text of any number of lines as a terminal may show it."""
    return text if _is_plain_ascii(text) else _hidden().sub(_escaped, text)


def clean(text: str) -> str:
    """Return a text as one line that a terminal may show: line breaks and tabs are escaped, too."""
    return escape(text).replace("\t", "\\t").replace("\n", "\\n")


def _escaped(match: re.Match[str]) -> str:
    return match[0] if match[1] else match[0].encode("unicode_escape").decode()


def escape_json(text: str) -> str:
    """Escape a text of JSON as JSON allows: what `escape` escapes, and everything else that is not printable."""
    if text.isascii() and text.isprintable():
        return text
    text = _hidden().sub(lambda match: _json_units(match[0]), text)
    return "".join(char if char.isprintable() else _json_units(char) for char in text)


def _json_units(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
