"""The specification of a child: a sub-skill, a background skill, a function and a message to an agent differ in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from reyn.errors import FAILURES_OF_SKILLS, SubRunFailed
from reyn.journal import ENDED, Blob, kinds

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.kernel.core.snapshot import Models, RunState
    from reyn.kernel.runtime_types import People
    from reyn.kernel.world.services import OutputCheck, StoredHistory

MAX_CHILD_DEPTH = 8
"""The maximum nesting of children."""
STOPPED = (*ENDED, "failed", "limited")
"""The statuses that no reply to a question changes."""


class ChildSpec(NamedTuple):
    """How one child runs; its intent says what runs.

    Attributes:
        settings: Its settings. Its limits are a share of what the parent has left.
        model: The model to call.
        rights: `caller` bounds its permissions and secrets by those of its parent; `own` leaves those of its skill.
        people: Who replies to its questions; by default the people of the project.
        check: Validates its final output in addition to the schema.
        history: The messages before its input, and their content.
        images: The images of its input, and their content.
        ask: The message of an agent that it answers: its input, or the next message of the conversation.
        text: The text of that message.
        blobs: The content of its copies, if its intent is not an event of the parent.
        waits: Whether its parent awaits its end. Otherwise a stopped child stays as it is until a user continues it.
    """

    settings: RunSettings
    model: Models
    rights: Literal["caller", "own"] = "caller"
    people: People | None = None
    check: OutputCheck | None = None
    history: StoredHistory = ((), ())
    images: tuple[tuple[kinds.ImageRef, ...], tuple[Blob, ...]] = ((), ())
    ask: kinds.AskRef | None = None
    text: str = ""
    blobs: tuple[Blob, ...] = ()
    waits: bool = True

    def is_settled(self, state: RunState) -> bool:
        """Return whether there is nothing left to execute: it ended, or it stopped and that is its result."""
        if not self.waits:
            return state.status in STOPPED
        if self.ask is None:
            return state.status in ENDED or is_final(state)
        if state.received is None or state.received.ask.key != self.ask.key:
            return state.status in ENDED
        if state.status == "waiting":
            is_message = state.wait is None or state.wait.is_message
            return is_message and state.received.state in ("completed", "canceled")
        return state.status in STOPPED


class ChildEnd(NamedTuple):
    """A child that ended or stopped: its state, its last event and the hash of that, and where to read its content.

    `active` is the time in which it was executed now, in microseconds.
    """

    state: RunState
    seq: int
    head: str
    content: Callable[[str], bytes]
    active: int = 0


def is_final(state: RunState) -> bool:
    """Return whether a failure is the result of a sub-run, so that its parent continues with it."""
    return state.status == "failed" and state.stop.code in FAILURES_OF_SKILLS


def charge_of(charge: kinds.Charge) -> kinds.Charge | None:
    """Return a charge as it is recorded; `None` if no call was counted."""
    return charge if charge.calls else None


def depth_below(started: kinds.RunStarted) -> int:
    """Return the nesting depth of the runs that a run starts.

    Raises:
        SubRunFailed: They would be nested too deep.
    """
    depth = (started.parent.depth if started.parent else 0) + 1
    if depth > MAX_CHILD_DEPTH:
        raise SubRunFailed(f"sub-runs are nested deeper than {MAX_CHILD_DEPTH} levels")
    return depth
