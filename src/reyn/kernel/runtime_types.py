"""Types at the boundary of the kernel: the ports that callers provide, the results and errors that they receive.

Ports besides journal and model are the clock, ids, and the user who replies to questions. Replies go through the run's
inbox, like those of other processes, so they are durable before the run continues.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from reyn.errors import (
    AppendConflict,
    InputInvalid,
    ReplayMismatch,
    ReynError,
    RunBlocked,
    RunBusy,
    RunNotFound,
    RunNotResumable,
)
from reyn.journal import Status
from reyn.journal.results import EXIT_CODES, Cost, RunResult, display_status

if TYPE_CHECKING:
    from reyn.journal.kinds import Question

__all__ = [
    "EXIT_CODES",
    "LATER",
    "AppendConflict",
    "Clock",
    "Cost",
    "Ids",
    "InputInvalid",
    "Later",
    "NamedPeople",
    "People",
    "ReplayMismatch",
    "ReplayReport",
    "ReynError",
    "RunBlocked",
    "RunBusy",
    "RunNotFound",
    "RunNotResumable",
    "RunResult",
    "SystemClock",
    "TimedIds",
    "Unattended",
    "VerifyReport",
    "display_status",
]

_LETTERS = b"0123456789abcdefghjkmnpqrstvwxyz" * 8
"""The letter of an id for each byte."""


# -- ports --------------------------------------------------------------------------------------------


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


@runtime_checkable
class BackgroundPeople(Protocol):
    """People who also execute the background runs of a conversation: its run alone does not."""

    @property
    def executes_background_runs(self) -> bool: ...


class Unattended:
    """No user is present: a run that asks waits for a reply from another process."""

    async def ask(self, run_id: str, question: Question) -> Any:
        return LATER


# -- results ------------------------------------------------------------------------------------------


class ReplayReport(msgspec.Struct, frozen=True):
    """The result of a replay: how many events were derived again and found equal."""

    run_id: str
    events: int
    visits: int
    status: Status
    reworded: int = 0
    """Events that were compared without their derived texts, because these have another wording."""
    inherited: int = 0
    """Events of a fork's origin under rules that are not supported; they were verified, not derived."""
    missing_ops: tuple[str, ...] = ()
    """Op kinds of the run that are not installed; their recorded results were used."""
    notes: tuple[str, ...] = ()
    """The environments with packages that have changed since, or are not here; recorded results were used."""


class VerifyReport(msgspec.Struct, frozen=True):
    """The result of a verification: the number of events and contents whose hashes are correct."""

    run_id: str
    events: int
    blobs: int
    head: str
    """The hash of the last event. Note it elsewhere to compare with it later."""
    sub_runs: int = 0
    """Number of verified sub-runs: those whose results the run used. Each still has the events that it had then."""
    noted_at: int | None = None
    """The event with the hash to compare with; the events after it were appended since."""
    unchecked: tuple[str, ...] = ()
    """What cannot be checked, because a run that it refers to is not in the journal."""
