"""The values of unquoted YAML scalars. They follow YAML 1.2 (`yes` and dates are strings): every value ends as JSON."""

from __future__ import annotations

import math
import re
from typing import Any

_INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", "+.inf", ".Inf", ".INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_YAML_1_1_BOOLEANS = {"yes", "no", "on", "off"}


def plain_scalar(text: str) -> Any:
    """Return the value of an unquoted scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def is_plain_text(text: str) -> bool:
    """Return whether an unquoted scalar is this text, also for readers of YAML 1.1."""
    return bool(plain_scalar(text) == text) and text.lower() not in _YAML_1_1_BOOLEANS
