"""Types at the boundary of the kernel: the ports that callers provide, the results and errors that they receive.

Ports besides journal and model are the clock, ids, and the user who replies to questions. Replies go through the run's
inbox, like those of other processes, so they are durable before the run continues.
"""

from __future__ import annotations

import secrets
import time
from decimal import Decimal
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
from reyn.journal.kinds import Charge, Question, Usage
from reyn.kernel.versions import SUPPORTED_RULES

if TYPE_CHECKING:
    from reyn.journal import RunRow

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


class Unattended:
    """No user is present: a run that asks waits for a reply from another process."""

    async def ask(self, run_id: str, question: Question) -> Any:
        return LATER


# -- results ------------------------------------------------------------------------------------------

EXIT_CODES: dict[Status, int] = {
    "running": 0,
    "finished": 0,
    "failed": 1,
    "limited": 3,
    "waiting": 4,
    "aborted": 5,
    "cancelled": 6,
    "blocked": 7,
}


class Cost(msgspec.Struct, frozen=True):
    """What the model calls of a run and its sub-runs were charged.

    Attributes:
        amount: The sum, in `currency`; without the calls whose price is unknown.
        currency: The currency; empty if no price is known.
        tokens: The tokens that were charged.
        calls: The number of calls, with retries.
        unpriced: The calls whose price is unknown or in another currency.
        assumed: The calls that were charged in full, because the model reported no usage or the answer was lost.
    """

    amount: Decimal
    currency: str
    tokens: int
    calls: int
    unpriced: int = 0
    assumed: int = 0

    @classmethod
    def of(cls, charge: Charge) -> Cost | None:
        """Return the cost of a charge; `None` if no call was counted."""
        if not charge.calls:
            return None
        amount = Decimal(charge.cost).scaleb(-9).normalize() + 0
        return cls(amount, charge.currency, charge.tokens, charge.calls, charge.unpriced, charge.assumed)


class RunResult(msgspec.Struct, frozen=True):
    """The result of a run that ended or stopped.

    Attributes:
        run_id: The run.
        status: `finished`, `failed`, `limited`, `waiting`, `aborted`, `cancelled` or `blocked`; `running` if its
            process died.
        reason: Why the run stopped; empty for a finished run.
        artifact: The final output, `{"type": …, "data": …}`; `None` if there is none.
        usage: Token counts of all model calls.
        path: The last 20 phases.
        warnings: Messages for the operator, for example about skipped steps.
        question: The open question of a waiting run.
        code: The error code of a failed run; docs/reference/errors.md explains it.
        hint: What to do before a failed run is retried.
        cost: What its model calls were charged; `None` if none was counted. Calls of scripted models are
            counted only under a budget.
        ok: Whether the run is `finished`.
        exit_code: The exit code of `reyn run` for this status.
    """

    run_id: str
    status: Status
    reason: str
    artifact: dict[str, Any] | None
    usage: Usage
    path: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    question: Question | None = None
    code: str = ""
    hint: str = ""
    cost: Cost | None = None

    @property
    def ok(self) -> bool:
        """Whether the run is `finished`."""
        return self.status == "finished"

    @property
    def exit_code(self) -> int:
        """The exit code of `reyn run` for this status."""
        return EXIT_CODES[self.status]


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


def display_status(row: RunRow, *, is_claimed: bool) -> str:
    """Return the status that users see: interrupted if no process executes the run, blocked if its rules are not
    supported. An imported run has the status that it had in its own project."""
    assert row.status is not None
    if row.imported:
        return f"{row.status} (imported)"
    if row.status not in ("running", "limited", "failed", "waiting"):
        return row.status
    if row.rules not in SUPPORTED_RULES:
        return "blocked"
    if row.status == "running" and not is_claimed:
        return "running (interrupted)"
    return row.status
