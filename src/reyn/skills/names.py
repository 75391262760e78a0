"""What a skill, a phase or an artifact can be called."""

from __future__ import annotations

import re

from reyn.skills.values import END

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")
_TAKEN = {END, "null", "true", "false", "yes", "no", "on", "off"}


def is_usable_name(name: str) -> bool:
    """Whether a skill, a phase or an artifact can be called that. Words that YAML takes for other values cannot."""
    return _NAME.fullmatch(name) is not None and name.lower() not in _TAKEN
