"""The seam: what every journal does, whatever it is kept in. `reyn.testing.journal_conformance` proves one.

An append is all or nothing and names the sequence number it expects to follow, so that two drivers can never write two
histories. Messages from outside go through the inbox, so that an outsider's append never costs a driver a paid answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from reyn.errors import AppendConflict, EventInvalid, JournalError
from reyn.journal import kinds, registry
from reyn.journal.canonical import Blob, canonical
from reyn.journal.event import GENESIS, Event

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from reyn.journal.projections import RunRow
    from reyn.journal.registry import Body


class Batch(msgspec.Struct, frozen=True):
    """Events of one run that become durable together, with the content they refer to."""

    run_id: str
    expected_seq: int
    events: Sequence[Event]
    blobs: Sequence[Blob] = ()


class Cancel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stop for good."""

    reason: str = ""


class RaiseLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cap is larger from now on; `None` is no cap at all."""

    limit: str
    value: int | None


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody answers to an open question."""

    wait: str
    value: Any
    by: str = ""


Said = Cancel | RaiseLimit | Answer

MESSAGES: dict[str, type[Said]] = {"cancel": Cancel, "raise_limit": RaiseLimit, "answer": Answer}
"""What can be said to a run, by the word it is stored under."""


class Message(msgspec.Struct, frozen=True):
    """Something said to a run from outside. Ids grow; a run remembers the last one it took."""

    id: int
    said: Said


class Approval(msgspec.Struct, frozen=True):
    """A standing approval: this version of a skill may use an op where a rule asks. `id` is 0 until it is stored."""

    skill: str
    skill_hash: str
    op: str
    rule: str
    by: str
    at: int
    run_id: str
    id: int = 0

    def covers(self, skill_hash: str, op: str, rule: str) -> bool:
        """A change of the skill, the op or the rule asks again."""
        return (self.skill_hash, self.op, self.rule) == (skill_hash, op, rule)


class Journal(Protocol):
    """All runs: their events, the content those refer to, and what was said to them."""

    def append(self, run_id: str, expected_seq: int, events: Sequence[Event], blobs: Sequence[Blob] = ()) -> int:
        """Store the events in one transaction and return the new last sequence number.

        `AppendConflict` if the run's last event is not `expected_seq`; `EventInvalid` if an event is not known or not
        chained; in both cases no event is stored.
        """
        ...

    def append_many(self, batches: Sequence[Batch]) -> list[int | JournalError]:
        """Store batches of different runs in one transaction. A batch that is refused does not touch the others."""
        ...

    def read(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """The events of a run in order; of a fork, first those of the run that it goes on from. An unknown run has
        none."""
        ...

    def blob(self, hash: str) -> bytes:
        """Content by its name; `BlobMissing` if it is absent or does not give its name."""
        ...

    def post(self, run_id: str, said: Said) -> int:
        """Say something to a run; returns the message's id. `EventInvalid` if it is not well-formed."""
        ...

    def drain(self, run_id: str, after: int = 0) -> list[Message]:
        """Every committed message to a run after message `after`, from any process. Draining removes nothing: an event
        of the run records that it took a message."""
        ...

    def claim(self, run_id: str) -> AbstractContextManager[None]:
        """Hold the right to drive a run; `RunBusy` while another holds it. Freed when its process dies."""
        ...

    def is_claimed(self, run_id: str) -> bool:
        """Whether a live driver holds the run."""
        ...

    def find(self, run_id: str) -> RunRow | None:
        """Where a run stands."""
        ...

    def runs(self, prefix: str = "") -> list[RunRow]:
        """Where every run stands, newest first; only those whose id begins with `prefix`."""
        ...

    def approvals(self) -> list[Approval]:
        """Standing approvals, oldest first."""
        ...

    def approve(self, approval: Approval) -> int:
        """Store a standing approval and return its id; one that exists already is not stored twice."""
        ...

    def revoke(self, approval_id: int) -> bool:
        """Remove a standing approval. Returns whether it existed."""
        ...

    def close(self) -> None: ...


def write_message(said: Said) -> tuple[str, bytes]:
    """What is stored of a message: its word and its content. Refused here, it can spoil no run."""
    kind = next((kind for kind, cls in MESSAGES.items() if type(said) is cls), None)
    if kind is None:
        raise EventInvalid(f"{said!r} cannot be said to a run", hint=f"Known are: {', '.join(MESSAGES)}.")
    content = canonical(said)
    read_message(kind, content)
    return kind, content


def read_message(kind: str, content: bytes) -> Said:
    if kind not in MESSAGES:
        raise EventInvalid(f"nobody knows what `{kind}` says")
    try:
        return msgspec.json.decode(content, type=MESSAGES[kind])
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise EventInvalid(f"`{kind}` is said wrongly: {error}") from error


def fork_point(batch: Batch) -> kinds.ForkPoint | None:
    """What a batch that opens a run goes on from: `None` where the run begins with itself."""
    body = registry.decode(batch.events[0]) if batch.events else None
    return body.point if isinstance(body, kinds.RunForked) else None


_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Run ids are also names of files."""
MAX_RUN_ID = 240
MAX_ROOT_RUN_ID = 100
"""The ids of sub-runs extend the id of their root run, so that one has to be shorter."""


def is_run_id(text: str, most: int = MAX_RUN_ID) -> bool:
    """Whether a run can have this id, of at most so many characters."""
    return len(text) <= most and _RUN_ID.fullmatch(text) is not None


def check_batch(batch: Batch, head_seq: int, head_hash: str, *, opens_fork: bool = False) -> list[Body]:
    """The rule of every append: follows the head, chained, known, well-formed. Returns the typed data. Of a fork that
    opens, the head is the event that it goes on from."""
    if head_seq != batch.expected_seq:
        raise AppendConflict(
            f"run `{batch.run_id}` is at event {head_seq}, not {batch.expected_seq}: another driver appended first"
        )
    if (head_seq == 0 or opens_fork) and not is_run_id(batch.run_id):
        raise EventInvalid(f"`{batch.run_id}` cannot name a run")
    seq, prev = head_seq, head_hash if head_seq else GENESIS
    bodies: list[Body] = []
    for event in batch.events:
        seq += 1
        if event.seq != seq or event.prev != prev or event.run_id != batch.run_id:
            raise EventInvalid(f"event {event.seq} of run `{event.run_id}` does not follow event {seq - 1}")
        body = registry.decode(event)
        is_fork = type(body) is kinds.RunForked
        if (body.origin == "start") != (seq == 1) or is_fork != (opens_fork and not bodies):
            raise EventInvalid(f"event {seq}: a run begins with one `run_started` or `run_forked`, not so")
        bodies.append(body)
        prev = event.hash
    return bodies
