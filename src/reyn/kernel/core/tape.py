"""The history of a run during execution: first its recorded events, then new ones.

While recorded events remain, every emitted event must equal the recorded one, hash for hash. After that, emitted events
are buffered and become durable together at the next flush. A visit cannot tell the two apart, so starting, resuming and
replaying are the same code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from reyn.errors import ChainBroken, ReplayMismatch
from reyn.journal import Blob, Body, Event, decode, encode, kinds, link
from reyn.journal.registry import kinds as registered
from reyn.journal.registry import without_text
from reyn.kernel import versions
from reyn.kernel.core.run_state import apply

if TYPE_CHECKING:
    from reyn.kernel.core.effects import Effect
    from reyn.kernel.core.snapshot import RunState

    Append = Callable[[str, int, Sequence[Event], Sequence[Blob]], Awaitable[int]]


B = TypeVar("B", bound=Body)
_BROKEN, _CHILD_ENDED = kinds.RunBroken.kind, kinds.ChildEnded.kind
_EXTERNAL = frozenset(kind for (kind, _), cls in registered().items() if cls.origin == "outside")


_MAX_NEW_BYTES = 500_000
"""The size of the content of past visits that may stay in memory."""


class RecordingEnded(Exception):
    """A read-only tape has ended; the recorded run may have crashed here."""


class Mark(NamedTuple):
    """A place between two buffered events of a tape."""

    seq: int
    hash: str
    ts: int
    state: RunState
    pending: int


class Tape:
    """The events of one run. `seq`, `hash` and `ts` belong to the last event taken or emitted."""

    def __init__(
        self,
        run_id: str,
        state: RunState,
        *,
        seq: int,
        hash: str,
        ts: int,
        recorded: Iterable[Event],
        content: Callable[[str], bytes],
        is_read_only: bool = False,
        check: Callable[[Effect[Any], Body], str] | None = None,
    ) -> None:
        self.run_id = run_id
        self._check = check
        """Returns why a recorded outcome cannot be one of an effect; a replay checks more than the effect does."""
        self._is_read_only = is_read_only
        self.state = state
        self.seq = seq
        self.hash = hash
        self.ts = ts
        self._recorded: Iterator[Event] = iter(recorded)
        self.upcoming: Event | None = next(self._recorded, None)
        """The next recorded event; `None` after the last one."""
        self._stored_content = content
        self._new_content: dict[str, bytes] = {}
        self._new_bytes = 0
        """The size of the content that was emitted since content was last dropped."""
        self._pending: list[Event] = []
        self._pending_blobs: dict[str, Blob] = {}
        self.visit_start: tuple[RunState, int, str, int] | None = None
        """The state before the visit in progress, with seq, hash and ts of the event before it."""
        self.visit_events: list[Event] = []
        """The events of the visit in progress."""
        self.early: dict[str, Body] = {}
        """Outcomes that were recorded before the visit awaited them, by call: of ops that are performed together."""
        self.reworded = 0
        """The number of recorded events that were compared without their derived texts."""

    @property
    def started(self) -> kinds.RunStarted:
        """The first event of the run, with what a resumption or a fork has changed."""
        return self.state.started

    # -- recorded events ------------------------------------------------------------------------------

    def recall(self, effect: Effect[Any]) -> Body | None:
        """Return the outcome of an effect, which must be the next recorded event.

        An outcome of an op that is performed at the same time is kept in `early`, and nothing is returned.
        """
        assert self.upcoming is not None
        body, ended, known = decode(self.upcoming), effect, effect.outcomes + effect.failures
        call: str | None = body.call if isinstance(body, known) else None  # type: ignore[attr-defined]  # outcomes have it
        if call != effect.key and not effect.ends_with(call):
            found = effect.beside(call) if call is not None and call not in self.early else None
            if found is None:
                raise self._mismatch(f"an outcome of `{effect.key}`")
            ended = found
        wrong = ended.mismatch(body)
        if not wrong and ended.may_follow_reply and self._check is not None:
            wrong = self._check(ended, body)
        if wrong:
            raise ReplayMismatch(f"event {self.upcoming.seq}: {wrong}", seq=self.upcoming.seq, kind=self.upcoming.kind)
        self._take(body)
        if ended is effect:
            return body
        self.early[ended.key] = body
        return None

    def has_outcome(self, effect: Effect[Any]) -> bool:
        """Return whether the next recorded event is an outcome of an effect."""
        if self.upcoming is None or all(self.upcoming.kind != outcome.kind for outcome in effect.outcomes):
            return False
        return decode(self.upcoming).call == effect.key  # type: ignore[attr-defined, no-any-return]  # outcomes have it

    def record_early(self, call: str, outcome: Body, now: int, *blobs: Blob) -> None:
        """Record the outcome of an effect that the visit has not awaited yet."""
        self.record(outcome, now, *blobs)
        self.early[call] = outcome

    def ensure_at_end(self, expected: str) -> None:
        """Raise `ReplayMismatch` if an event is recorded here instead of the expected one."""
        if self.upcoming is not None:
            raise self._mismatch(expected)

    def take_external(self) -> bool:
        """Take recorded events that reached the run from outside; return whether there were any."""
        has_taken = False
        while (event := self.upcoming) is not None and (event.kind in _EXTERNAL or event.kind == _CHILD_ENDED):
            body = decode(event)
            if isinstance(body, kinds.ChildEnded) and body.type != "function":
                break  # the outcome of an effect
            self._take(body)
            has_taken = True
        return has_taken

    def _take(self, body: Body) -> Body:
        """Take the next recorded event, whose hash the journal has compared. Its place in the chain is checked."""
        event = self.upcoming
        assert event is not None
        if event.prev != self.hash:
            raise ChainBroken(f"event {event.seq} `{event.kind}` of run `{self.run_id}` does not follow the last one")
        self._apply(body, event)
        self.upcoming = next(self._recorded, None)
        return body

    def _reworded(self, event: Event, body: B, raw: bytes) -> B:
        """Take a recorded event that differs from the derived one, if only in derived texts of another wording."""
        if self.state.wording != versions.WORDING and raw != event.raw:
            recorded = decode(event) if (event.kind, event.v, event.ts) == (body.kind, body.version, self.ts) else None
            if isinstance(recorded, type(body)) and without_text(recorded) == without_text(body):
                self.reworded += 1
                self._take(recorded)
                return recorded
        raise self._mismatch(f"`{body.kind}`", body, raw)

    def _mismatch(self, derived: str, body: Body | None = None, raw: bytes = b"") -> ReplayMismatch:
        event = self.upcoming
        assert event is not None
        message = f"event {event.seq} is recorded as `{event.kind}`; the rules derive {derived}"
        if body is not None and body.kind == event.kind:
            message = f"event {event.seq} `{event.kind}`: {_difference(event, raw)}"
        return ReplayMismatch(message, seq=event.seq, kind=event.kind)

    # -- new events ------------------------------------------------------------------------------------

    def emit(self, body: B, *blobs: Blob) -> B:
        """Add a derived event, with the content that it refers to.

        Returns:
            The event as it is recorded, which may contain derived texts of another wording.
        """
        for blob in blobs:
            self._new_content[blob.hash] = blob.content
            self._new_bytes += len(blob.content)
        if (upcoming := self.upcoming) is not None and upcoming.kind == _BROKEN:
            self.take_external()  # an internal error can be recorded anywhere
            upcoming = self.upcoming
        if upcoming is not None:
            raw = encode(body)
            if raw != upcoming.raw or (body.kind, body.version, self.ts) != (upcoming.kind, upcoming.v, upcoming.ts):
                return self._reworded(upcoming, body, raw)
            self._take(body)
            return body
        if self._is_read_only:
            raise RecordingEnded
        raw, seq, kind, version = encode(body), self.seq + 1, body.kind, body.version
        chained = link(seq, self.ts, kind, version, raw, self.hash)
        event = Event(seq, self.run_id, self.ts, kind, version, raw, self.hash, chained)
        self._pending.append(event)
        for blob in blobs:
            self._pending_blobs[blob.hash] = blob
        self._apply(body, event)
        return body

    def record(self, body: Body, now: int, *blobs: Blob) -> None:
        """Add an input from the world. Events that are derived from it inherit its time."""
        assert self.upcoming is None, "an input cannot be recorded in the middle of a recording"
        self.ts = max(self.ts, now)
        self.emit(body, *blobs)

    def _apply(self, body: Body, event: Event) -> None:
        """Apply the next event to the state. The first event of a visit is derived, so it has the time of the last."""
        before = self.state
        self.seq, self.hash, self.ts = event.seq, event.hash, event.ts
        self.state = after = apply(before, body, event.ts)
        if not after.visit.is_open:
            if self.visit_events:
                self.visit_start, self.visit_events = None, []
        elif before.visit.is_open:
            self.visit_events.append(event)
        else:
            self.visit_start, self.visit_events = (before, event.seq - 1, event.prev, event.ts), [event]

    def mark(self) -> Mark:
        """Return the end of the tape, to rewind to if what follows cannot be made durable."""
        return Mark(self.seq, self.hash, self.ts, self.state, len(self._pending))

    def rewind(self, mark: Mark) -> None:
        """Drop buffered events after a mark; they have no content of their own."""
        assert len(self._pending) >= mark.pending, "events after the mark are durable"
        self.seq, self.hash, self.ts, self.state = mark.seq, mark.hash, mark.ts, mark.state
        del self._pending[mark.pending :]
        self.visit_events = [event for event in self.visit_events if event.seq <= mark.seq]

    @property
    def pending(self) -> Sequence[Event]:
        """Events that are buffered and not durable yet."""
        return self._pending

    async def flush(self, append: Append) -> list[Event]:
        """Make the buffered events durable in one commit, and return them."""
        events, blobs = self._pending, self._pending_blobs
        if not events:
            return []
        # Ops in progress may record the ends of functions meanwhile; those events are part of the next commit.
        self._pending, self._pending_blobs = [], {}
        try:
            await append(self.run_id, events[0].seq - 1, events, list(blobs.values()))
        except BaseException:
            self._pending, self._pending_blobs = events + self._pending, blobs | self._pending_blobs
            raise
        return events

    # -- content --------------------------------------------------------------------------------------

    def content(self, name: str) -> bytes:
        """Return content by its hash: new content of this execution, or stored content."""
        content = self._new_content.get(name)
        return content if content is not None else self._stored_content(name)

    def drop_content(self) -> None:
        """Drop the content of past visits from memory if it is large, except what the next visit reads first."""
        if self._new_bytes < _MAX_NEW_BYTES:
            return
        self._new_bytes = 0
        needed = {reference.hash for reference in (self.state.visit.input, self.state.output.artifact) if reference}
        needed.update(handoff for _, handoff in self.state.history.handoffs.latest)
        needed.update(self._pending_blobs)  # not durable yet
        if self.state.started.summaries is not None:
            needed.add(self.state.started.summaries)
        self._new_content = {name: content for name, content in self._new_content.items() if name in needed}


def _difference(event: Event, raw: bytes) -> str:
    """Describe the first field in which a derived event differs from the recorded one."""
    recorded: Any = event.data
    derived: dict[str, Any] = msgspec.json.decode(raw)
    if not isinstance(recorded, dict):
        return f"its data is {recorded!r}"
    for name in sorted(recorded.keys() | derived.keys()):
        if recorded.get(name) != derived.get(name):
            return f"`{name}` is recorded as {recorded.get(name)!r}, but the rules derive {derived.get(name)!r}"
    return "its time or its place in the chain differs from what the rules derive"
