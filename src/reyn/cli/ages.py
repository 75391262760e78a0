"""The `AGE` of options such as `--since`: a duration before now, or a date."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import click

_AGE = re.compile(r"([0-9]{1,9})(s|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Age(click.ParamType[int]):
    """Parses an age into the time it denotes, in microseconds since 1970."""

    name = "age"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if match := _AGE.fullmatch(value):
            return now() - int(match[1]) * _SECONDS[match[2]] * 1_000_000
        try:
            date = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"`{value}` is neither an age (30m, 2h, 3d, 1w) nor a date (2026-07-04)", param, ctx)
        return int((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1_000_000)


def now() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000


def age_text(microseconds: int) -> str:
    """Return an age for a table: `just now`, `4 min ago`, `2 h ago`, `3 d ago`."""
    seconds = microseconds // 1_000_000
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds // 60} min ago"
    return f"{seconds // 3600} h ago" if seconds < 2 * 86_400 else f"{seconds // 86_400} d ago"
