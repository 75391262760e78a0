"""Events of the runs that a run starts: an intent before each, and how it ended or stopped."""

from __future__ import annotations

from typing import Literal

from reyn.journal.kinds.shapes import (
    ArtifactRef,
    Change,
    Charge,
    ContentName,
    Count,
    Hash,
    HistoryPart,
    PhaseArtifact,
    Question,
    RollbackRef,
    Usage,
)
from reyn.journal.registry import Body, event

ChildType = Literal["skill", "background", "function", "agent"]
"""A sub-skill that the run awaits, a background skill, a function that an op calls, a message to another agent."""
TaskState = Literal[
    "submitted", "working", "completed", "failed", "canceled", "rejected", "input-required", "auth-required"
]
"""The states of work that another run does, as the A2A protocol names those of a task."""

AGENT_PREFIX = "agent:"
"""Begins the name of the skill of an agent."""


class _Child(Body, frozen=True):
    """What a run starts, with fields that all events of it have."""

    call: str
    type: ChildType
    skill: str
    run: str

    @property
    def agent(self) -> str:
        """The agent that receives a message; empty for other children."""
        return self.skill.removeprefix(AGENT_PREFIX) if self.type == "agent" else ""


@event("child_started", v=1, origin="outcome")
class ChildStarted(_Child, frozen=True):
    """Another run is about to start for this one, or to receive a message.

    `type` is `skill` if this run awaits it, `background` if a message in the inbox reports its end, and `agent` if it
    is the conversation of another agent. `skill` is its skill, `agent:NAME` for an agent. `run` is its id, which
    derives from this run and `call`; an earlier message may have opened the conversation of an agent. A new run has the
    pinned copy `skill_hash` of its skill, its `input`, and the specifications `ops` of the ops that it may use.
    `shares_workspace` is true if it uses the workspace of this run. `text` is the message to an agent, `depth` counts
    the agents that asked one another, this message included, and `history` are the messages of an earlier conversation
    with the agent. `rollback` is set if a node of this run is visited again: why, and the artifact that it returned
    before.
    """

    skill_hash: ContentName | None = None
    input: ArtifactRef | None = None
    ops: ContentName | None = None
    shares_workspace: bool = False
    text: ContentName | None = None
    depth: Count = 1
    history: tuple[HistoryPart, ...] = ()
    rollback: RollbackRef | None = None


@event("child_ended", v=1, origin="outcome")
class ChildEnded(_Child, frozen=True):
    """A run that this one started has ended, or an agent has replied to a message or will not.

    `type` is as in `child_started`; `function` is a run of a function that the code of the op `call` called. It is
    recorded while the op is performed, has no `child_started`, and its id derives from this run, `call`, the function
    and its arguments. The state `rejected` has no `child_started` either: the run could not start, or the message could
    not be sent; `text` is the message to an agent. Only the state `completed` has an `artifact`: the final one, or the
    reply. Otherwise `error` is the reason, and `timed_out` is true if a reply took too long. `usage`, `answers` and
    `charge` count the tokens, the model answers and the charge of the run, or of the conversation since the last
    message to it; `active` is its execution time since it last stopped, in microseconds. `seq` and `head` are its last
    event and the hash of that. `changes` lists the changes that it made in files that it shares with this run,
    `summary` is the reason of its last decision, `handoff` the last handoff that one of its phases recorded, `phases`
    the artifacts of its latest visits. `acted` names the unsafe ops that it, and the runs below it, have completed or
    begun; for an agent, since the last message to it; for the state `rejected`, those of an earlier run that a
    person decided not to repeat. `open` is true if the conversation can take another message. `error_name` is the name
    of the error, if the run failed or was aborted.
    """

    state: TaskState = "completed"
    error: str = ""
    artifact: ArtifactRef | None = None
    timed_out: bool = False
    usage: Usage = Usage()
    answers: Count = 0
    charge: Charge | None = None
    active: Count = 0
    seq: Count = 0
    head: Hash | None = None
    changes: tuple[Change, ...] = ()
    summary: str = ""
    handoff: ContentName | None = None
    phases: tuple[PhaseArtifact, ...] = ()
    open: bool = False
    text: ContentName | None = None
    acted: str = ""
    error_name: str = ""


@event("child_stopped", v=1, origin="outcome")
class ChildStopped(Body, frozen=True):
    """A sub-run stopped and can be resumed; this run stops for the same reason.

    `status` and `reason` are those of the sub-run: `failed` comes with `code` and `hint`, `limited` with `limit` and
    `value`, `waiting` with `wait`. `active` is its execution time in microseconds since it last stopped. `error_name`
    is the name of its error if it is not that of the code.
    """

    call: str
    run: str
    status: Literal["failed", "limited", "waiting", "blocked"]
    reason: str
    code: str = ""
    limit: str = ""
    value: int = 0
    wait: Question | None = None
    active: Count = 0
    hint: str = ""
    error_name: str = ""
