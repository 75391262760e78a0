"""The clock and the ids: the two small seams through which time and chance enter a run."""

from __future__ import annotations

import secrets
import time
from typing import Protocol

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Clock(Protocol):
    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        ...


class Ids(Protocol):
    def new(self) -> str:
        """A name nobody has used."""
        ...


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1000


class TimedIds:
    """Sortable by time, unguessable in the rest: `20260704T120000-k3m9qxdt`."""

    def new(self) -> str:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        return f"{stamp}-{''.join(secrets.choice(_ALPHABET) for _ in range(8))}"
