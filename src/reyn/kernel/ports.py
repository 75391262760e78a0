"""Ports of a run besides journal and model: clock, ids, and the user who replies to questions.

Replies go through the run's inbox, like those of other processes, so they are durable before the run continues.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from reyn.journal.kinds import Question
    from reyn.kernel.effects import DeliverMessage, EventWithBlobs, PlanMessage
    from reyn.kernel.tape import Tape

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
    """Return value of `People.ask`: there is no reply now, so the run stops and waits."""

    def __repr__(self) -> str:
        return "LATER"


LATER = Later()


class AgentMessenger(Protocol):
    """Carries messages between agents: plans a message, then delivers it and awaits the reply."""

    def plan(self, effect: PlanMessage, tape: Tape) -> EventWithBlobs:
        """Return the `agent_asked` event of a message."""
        ...

    async def deliver(self, effect: DeliverMessage, tape: Tape) -> EventWithBlobs:
        """Deliver a message once, whatever happened before, and return its `agent_replied` event."""
        ...


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
