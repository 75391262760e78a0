"""Events of agents that talk to each other: a message to another agent, and its reply."""

from __future__ import annotations

from typing import Literal

from reyn.journal.kinds.shapes import ArtifactRef, Charge, ContentName, Count, Hash, HistoryPart, Usage
from reyn.journal.registry import Body, event

TaskState = Literal[
    "submitted", "working", "completed", "failed", "canceled", "rejected", "input-required", "auth-required"
]
"""The states of a message to an agent, as the A2A protocol names those of a task."""


@event("agent_asked", v=1, origin="outcome")
class AgentAsked(Body, frozen=True):
    """A message to another agent is about to be sent.

    `run` is the conversation of that agent: one that an earlier message opened, or a new one, whose id derives from
    this run and `call`. `text` is the message, `depth` counts the agents that asked one another, this message included.
    A new conversation has the pinned copy `skill_hash` of the agent's skill, the op specifications `ops`, the first
    message as its `input`, and the messages of an earlier conversation with the agent as its `history`. `problem` is
    set if the message cannot be sent.
    """

    call: str
    agent: str
    run: str
    text: ContentName
    depth: Count = 1
    skill_hash: ContentName | None = None
    ops: ContentName | None = None
    input: ArtifactRef | None = None
    history: tuple[HistoryPart, ...] = ()
    problem: str = ""


@event("agent_replied", v=1, origin="outcome")
class AgentReplied(Body, frozen=True):
    """Another agent replied to a message, or will not.

    `state` is the state of the message; only `completed` has a reply, `text`. Otherwise `error` is the reason.
    `timed_out` is true if the reply took too long. `usage`, `answers` and `charge` count what the conversation `run`
    used since the last message to it, `active` is its execution time in microseconds. `seq` and `head` are the last
    event of the conversation and its hash. `open` is true if the conversation can take another message.
    """

    call: str
    agent: str
    run: str
    state: TaskState
    text: ContentName | None = None
    error: str = ""
    timed_out: bool = False
    usage: Usage = Usage()
    answers: Count = 0
    charge: Charge | None = None
    active: Count = 0
    seq: Count = 0
    head: Hash | None = None
    open: bool = False
