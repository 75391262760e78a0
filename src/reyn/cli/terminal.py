"""Detect the abilities of the terminal from the environment."""

from __future__ import annotations

import os


def is_plain() -> bool:
    """Return whether to print neither colour nor a live line: `NO_COLOR` is not empty, or `TERM` is `dumb`."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
