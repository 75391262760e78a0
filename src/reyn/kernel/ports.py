"""Ports of a run besides journal and model: clock, ids, and the user who replies to questions.

Replies go through the run's inbox, like those of other processes, so they are durable before the run continues.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from reyn.journal.kinds import Question

_LETTERS = b"0123456789abcdefghjkmnpqrstvwxyz" * 8
"""The letter of an id for each byte."""


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
        return f"{stamp}-{secrets.token_bytes(8).translate(_LETTERS).decode()}"


class Later:
    """Return value of `People.ask`: there is no reply now, so the run stops and waits."""

    def __repr__(self) -> str:
        return "LATER"


LATER = Later()


class People(Protocol):
    """Replies to the questions of runs in the process that executes them: a terminal, a chat, a queue."""

    async def ask(self, run_id: str, question: Question) -> Any:
        """Return the JSON value of the reply, or `LATER`. Cancelled when another process replies first."""
        ...


@runtime_checkable
class NamedPeople(Protocol):
    """People whose name is recorded with their replies."""

    @property
    def name(self) -> str: ...


class Unattended:
    """No user is present: a run that asks waits for a reply from another process."""

    async def ask(self, run_id: str, question: Question) -> Any:
        return LATER
