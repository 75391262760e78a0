"""Ports of a run besides journal and model: clock, ids, and the user who answers questions.

Answers go through the run's inbox, like those of other processes, so they are durable before the run continues.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from reyn.journal.kinds import Wait

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Clock(Protocol):
    def now(self) -> int:
        """Return microseconds since 1970, UTC."""
        ...


class Ids(Protocol):
    def new(self) -> str:
        """Return a new unique id."""
        ...


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1000


class TimedIds:
    """Ids that sort by time and end in a random part: `20260704T120000-k3m9qxdt`."""

    def new(self) -> str:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        return f"{stamp}-{''.join([_ALPHABET[byte % 32] for byte in secrets.token_bytes(8)])}"


class Later:
    """The user does not answer now: the run stops and waits."""

    def __repr__(self) -> str:
        return "LATER"


LATER = Later()


class People(Protocol):
    async def ask(self, run_id: str, wait: Wait) -> Any:
        """Return the JSON value of the answer, or `LATER`. Cancelled when another process answers the question."""
        ...


@runtime_checkable
class NamedPeople(Protocol):
    """People whose name is recorded with their answers."""

    @property
    def name(self) -> str: ...


class Unattended:
    """No user is present: every question waits for an answer of another process."""

    async def ask(self, run_id: str, wait: Wait) -> Any:
        return LATER
